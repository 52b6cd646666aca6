#!/bin/bash
# runs alone
# limit: 120
# Two devices with 100 ms between them, there and back, at 10 Mbit/s: plan and --split auto measure such a link as it is, although a connection's
# window opens only as answers come; the answers are those of one machine.
. tests/network/helpers.sh
delay=$build/tests/infer/make_delay carries=
remove() {
  [ -z "$carries" ] || kill "$carries" 2>/dev/null
  remove_namespaces
}
command -v ip >/dev/null || { echo "skipped: no ip (iproute2) here"; exit 77; }
trap remove EXIT
ip netns add "$space_a" 2>"$work/err" && ip netns add "$space_b" 2>"$work/err" || { echo "skipped: no network namespaces: $(head -n 1 "$work/err")"; exit 77; }
ip netns exec "$space_a" "$delay" "/run/netns/$space_b" 0.05 1e7 >"$work/ready" 2>"$work/err" &
carries=$!
for ((i = 0; i < 50 * ${TIME_SCALE:-1}; i++)); do grep -q ready "$work/ready" && break; running $carries || break; sleep 0.1; done
if ! grep -q ready "$work/ready"; then
  if grep -q '/dev/net/tun\|TUNSETIFF' "$work/err"; then echo "skipped: no TUN devices: $(head -n 1 "$work/err")"; exit 77; fi
  report "the two networks are not joined: $(head -n 1 "$work/err")"
  exit 1
fi
ip -n "$space_a" address add 10.77.0.1/24 dev tun0 && ip -n "$space_b" address add 10.77.0.2/24 dev tun0 || report "no addresses"
for space in "$space_a" "$space_b"; do ip -n "$space" link set lo up && ip -n "$space" link set tun0 up || report "no link"; done

make_checkpoint "$work/model" vit-cifar 8 256 4
make_picture "$work/1.ppm" 32
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
start_worker_in_b "$work/model" "$work/key"
lead() { timeout 60 ip netns exec "$space_a" "$program" "$@" --key-file "$work/key" --peers "$worker_address" --threads 1 --json >"$work/out" 2>"$work/err" </dev/null; }

lead plan -c "$work/model" || report "plan: exit code $?"
jq -e '.peers[] | select(.device != "this device") | .link | .latency_ms > 49 and .latency_ms < 60 and ([.to_bits_per_second, .from_bits_per_second] | min > 7e6 and max < 1.2e7)' "$work/out" \
  >"$work/checked" || report "the link is not what it is: $(jq -c .peers "$work/out")"
timeout 60 "$program" -c "$work/model" --nodes 2 --threads 1 --json "$work/1.ppm" >"$work/one" 2>"$work/err" || report "one machine: exit code $?"
for transport in tcp udp; do
  lead -c "$work/model" --transport $transport "$work/1.ppm" || report "$transport: exit code $?"
  [ -n "$(answer_of "$work/one")" ] && [ "$(answer_of "$work/out")" = "$(answer_of "$work/one")" ] || report "$transport: another answer than --nodes 2"
done
exit $failed
