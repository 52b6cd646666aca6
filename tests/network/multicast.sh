#!/bin/bash
# limit: 180
# Codes that go to all nodes in one datagram: on the loopback, and over a bridge between network namespaces; the same answers with a fraction of
# the bytes, and where the network does not carry them to everybody, what goes to each by itself. The bridge is skipped where namespaces are not
# allowed.
if [ -z "${ASTRA_IN_NAMESPACE:-}" ] && unshare -rnpf --mount-proc ip link add astra0 type bridge 2>/dev/null; then
  ASTRA_IN_NAMESPACE=1 exec unshare -rnpf --mount-proc --kill-child bash "$0"
fi
. tests/network/helpers.sh
make_checkpoint "$work/model" vit-cifar 8 256 4
make_picture "$work/picture.ppm" 32
picture=$work/picture.ppm
[ -z "${ASTRA_IN_NAMESPACE:-}" ] || ip link set lo up

pictures=()
for ((k = 0; k < 24; k++)); do pictures+=("$picture"); done # so that codes outweigh questions, of which a busy machine makes more

run() { # NAME ARGUMENTS...: a request of pictures; sets answer, bytes (sent by all nodes) and masked
  name=$1
  shift
  "$program" --checkpoint "$work/model" --batch 24 "${pictures[@]}" --json "$@" >"$work/out" 2>"$work/err" || report "$name: exit code $?"
  answer=$(answer_of "$work/out")
  bytes=$(tail -1 "$work/out" | tr ',' '\n' | awk -F: '/"bytes_sent"/ { sum += $2 } END { print sum + 0 }')
  masked=$(tail -1 "$work/out" | tr ',' '\n' | awk -F: '/"masked"/ { sum += $2 } END { print sum + 0 }')
  [ "$masked" = 0 ] || report "$name: $masked tokens masked"
}
compare() { # NAME REACHES ARGUMENTS...: with --multicast as without it; REACHES 1: in less than two thirds of the bytes, 0: in as many
  local what=$1 reaches=$2
  shift 2
  run "$what, to each" "$@"
  local whole=$answer each=$bytes
  [ -n "$whole" ] || report "$what: no answer"
  run "$what, to all" "$@" --multicast
  [ "$answer" = "$whole" ] || report "$what: another answer"
  [ $((3 * bytes < 2 * each)) = "$reaches" ] || report "$what: $bytes bytes with multicast, $each without"
}

compare "the loopback" 1 --nodes 4 --transport udp
compare "the loopback, with parity" 1 --nodes 4 --transport udp --reliability fec
compare "two nodes" 0 --nodes 2 --transport udp
make_checkpoint "$work/gpt2" tiny-gpt2 4 50 4
cp tests/golden/stories260K/tok512.bin "$work/gpt2/"
for how in "" --multicast; do # only the first node's codes are for all
  # shellcheck disable=SC2086
  "$program" --checkpoint "$work/gpt2" --nodes 4 --transport udp --prompt "Once upon a time there was a dog" -m 6 --json $how >"$work/out" 2>"$work/err" ||
    report "a text: exit code $?"
  answer_of "$work/out" >"$work/text$how"
done
cmp -s "$work/text" "$work/text--multicast" && [ -s "$work/text" ] || report "a text: another one"

for refused in "--transport tcp" "--transport udp --loss 5%"; do
  # shellcheck disable=SC2086
  "$program" --checkpoint "$work/model" --nodes 4 $refused --multicast "$picture" >"$work/out" 2>"$work/err"
  [ $? -eq 2 ] && grep -q -- '--multicast' "$work/err" || report "with $refused: not refused"
done

if [ -z "${ASTRA_IN_NAMESPACE:-}" ]; then
  echo "skipped: the bridge (network namespaces are not allowed here)"
  exit $((failed ? 1 : 77))
fi

# ---- three workers, each in a namespace of its own, on a bridge
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
ip link add astra0 type bridge mcast_snooping 0
ip addr add 10.77.0.100/24 dev astra0
ip link set astra0 up
here=$program
peers=
for node in 1 2 3; do
  unshare -n sleep 1000 &
  there=$!
  for ((k = 0; k < 100; k++)); do [ "$(readlink /proc/$there/ns/net)" = "$(readlink /proc/self/ns/net)" ] || break; sleep 0.05; done
  ip link add port$node type veth peer name eth0 netns $there
  ip link set port$node master astra0 up
  nsenter -t $there -n ip addr add 10.77.0.$node/24 dev eth0
  nsenter -t $there -n ip link set eth0 up
  printf '#!/bin/bash\nexec nsenter -t %d -n %q "$@"\n' $there "$here" >"$work/there$node"
  chmod +x "$work/there$node"
  program=$work/there$node start_worker w$node 10.77.0.$node:0 -c "$work/model" --key-file "$work/key"
  peers=$peers,${address[w$node]}
done
cluster=(--peers "${peers#,}" --key-file "$work/key" --no-local)
compare "a bridge" 1 "${cluster[@]}"
ip link set port2 type bridge_slave mcast_flood off
compare "a bridge that keeps it from one worker" 0 "${cluster[@]}"
for node in 1 2 3; do stop_worker w$node; done
exit $failed
