#!/bin/bash
# Two devices in network namespaces of their own, joined by a pair of veth with a token bucket on either side: the same answers as --nodes, over
# streams and datagrams; everything has gone through the bucket, at its rate; a link that goes down and comes back; ways that differ are
# measured; nothing is left behind.
# What it says about speed is tools/results-namespaces.sh's. limit: 120
. tests/network/helpers.sh
make_namespaces 4mbit
make_checkpoint "$work/model" vit-cifar 32 256 2
for i in 1 2 3 4; do make_picture "$work/$i.ppm" 32; done
pictures=("$work"/[1-4].ppm)
"$program" keygen "$work/key" 2>/dev/null || report "keygen"

# NAME EXIT-CODE ARGUMENTS...: in the first namespace
lead() { attempt "$1" "$2" timeout 60 ip netns exec "$space_a" "$program" "${@:3}" --threads 1 --json; }
number() { grep -o "\"$1\":[0-9.]*" "$work/out" | sed -n "${2:-1}s/.*://p"; } # FIELD [HOW-MANIETH]

lead "one machine" 0 -c "$work/model" --nodes 2 --batch 1 "${pictures[@]}"
answer_of "$work/out" >"$work/expected"
start_worker_in_b "$work/model" "$work/key"
for transport in "--transport tcp" "--transport udp --reliability retransmit"; do
  before=$(bucket_bytes)
  # shellcheck disable=SC2086
  lead "$transport" 0 -c "$work/model" --peers "$worker_address" --key-file "$work/key" --batch 1 $transport "${pictures[@]}"
  answer_of "$work/out" >"$work/answer"
  [ -s "$work/answer" ] && cmp -s "$work/answer" "$work/expected" || report "$transport: another answer than --nodes 2"
  sent=$(number bytes_sent 1) through=$(($(bucket_bytes) - before))
  [ "$through" -ge "$sent" ] || report "$transport: $through bytes went through the bucket, $sent were sent"
  # Four images: no faster than the bucket lets their codes through. Its first 3,000 bytes are free.
  least=$(((sent - 3000) * 8 * 1000 / 4000000))
  took=$(number milliseconds 1)
  [ "${took%.*}" -ge "$least" ] || report "$transport: $took ms for $sent bytes, at least $least at 4 Mbit/s"
done

# The worker is not to be reached: the run goes on without it, and says so.
ip -n "$space_b" link set veth0 down
lead "a link that is down" 0 -c "$work/model" --peers "$worker_address" --key-file "$work/key" --batch 1 "${pictures[@]}"
grep -q 'going on without it' "$work/err" || report "$name: no word of the worker that is not there"
ip -n "$space_b" link set veth0 up
lead "the link is back" 0 -c "$work/model" --peers "$worker_address" --key-file "$work/key" --batch 1 "${pictures[@]}"
answer_of "$work/out" >"$work/answer"
cmp -s "$work/answer" "$work/expected" || report "$name: another answer than --nodes 2"

# What --split all (auto, with no device left out) measures is what the buckets let through, each way by itself (the first 3,000 of 16,384 bytes pass at once); it is
# one burst each way, and asked again where this machine did something else meanwhile.
tc -n "$space_b" qdisc change dev veth0 root tbf rate 1mbit burst 3000 latency 1s
uneven='.split.links | .[0] == null and (.[1] | .to_bits_per_second > 3.5e6 and .to_bits_per_second < 6e6
       and .from_bits_per_second > 0.85e6 and .from_bits_per_second < 1.5e6)'
for ((i = 0; i < 5; i++)); do
  lead "uneven ways" 0 -c "$work/model" --peers "$worker_address" --key-file "$work/key" --batch 1 --split all "${pictures[@]}"
  [ "$(field "$uneven")" != true ] || break
done
json_holds "$uneven"
json_holds '.split.tokens | .[0] + .[1] == 64 and .[0] > 0 and .[1] > 0'

kill -TERM "$worker_pid"
wait "$worker_pid" || report "the worker: exit code $?"
worker_pid=
[ $failed = 0 ] && echo "namespaces: ok"
exit $failed
