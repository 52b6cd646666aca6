#!/bin/bash
# limit: 240
# Codes as datagrams over links that lose, delay and throttle them: every mode of reliability does what it says, and the same seed means the
# same losses.
. tests/network/helpers.sh

fail_on() { report "$name: $1"; }

run() { # NAME ARGUMENTS...: JSON of a run over the image; leaves it in out
  name=$1
  shift
  "$program" "$@" --json >"$work/out" 2>"$work/err" || report "$name: exit code $?"
}
json_holds() { # CONDITION of the answer, in jq's language; sum_of(FIELD) is over its nodes
  tail -n 1 "$work/out" | jq -e "def sum_of(field): [.nodes[] | field] | add; $1" >/dev/null 2>>"$work/err" || fail_on "$1"
}
answer() { tail -n 1 "$work/out" | jq -c 'if .images then [.images[].top | map([.class, .probability])] else [.prompts[].ids] end'; }
lost() { tail -n 1 "$work/out" | jq -c '[.nodes[].lost]'; } # packets, by node

make_checkpoint "$work/model" vit-cifar 8 256 4
picture=datasets/pictures/apple_0614.png
pictures=("$picture" "$picture" "$picture" "$picture")
common=(--checkpoint "$work/model" --nodes 4 --batch 1 "${pictures[@]}")
udp=("${common[@]}" --transport udp)

# ---- the same numbers over every transport
for kind in "--transport tcp" "--transport udp" "--transport udp --reliability retransmit --loss 10%" "--transport udp --mtu 576 --datagrams 4"; do
  # shellcheck disable=SC2086
  "$program" selftest --checkpoint "$work/model" $kind >"$work/out" 2>"$work/err" || report "selftest $kind"
done

run "streams" "${common[@]}"; json_holds "sum_of(.masked) == 0"; whole=$(answer)
run "datagrams" "${udp[@]}"; json_holds "sum_of(.lost) + sum_of(.late) + sum_of(.masked) == 0"
[ "$(answer)" = "$whole" ] || fail_on "another answer"
# 4 images, 12 nodes' pairs, each block in two packets at least, of 24 bytes around 12 of header and the codes
json_holds "all(.nodes[]; .messages_sent >= 4 * 3 * 2)"

# ---- losses
run "deadline" "${udp[@]}" --loss 20%; json_holds "sum_of(.lost) > 0 and sum_of(.masked) > 0 and sum_of(.resent) == 0"
json_holds "sum_of(.masked) == sum_of(.lost_tokens) + sum_of(.late_tokens)"
masked=$(answer) lost=$(lost)
[ "$masked" != "$whole" ] || fail_on "nothing was masked"
run "deadline, again" "${udp[@]}" --loss 20%
[ "$(answer)" = "$masked" ] || fail_on "the same seed, other losses"
run "deadline, another seed" "${udp[@]}" --loss 20% --link-seed 43
[ "$(answer)" != "$masked" ] || fail_on "another seed, the same losses"
bursts=("${udp[@]}" --loss 20% --loss-model gilbert-elliott)
run "bursts" "${bursts[@]}"; json_holds "sum_of(.lost) > 0"; lost_in_bursts=$(lost)
[ "$lost_in_bursts" != "$lost" ] || fail_on "packets are lost one by one"
run "bursts of 4" "${bursts[@]}" --loss-burst 4
[ "$(lost)" = "$lost_in_bursts" ] || fail_on "4 packets are not the default, or the same seed has other losses"
run "longer bursts" "${bursts[@]}" --loss-burst 8; json_holds "sum_of(.lost) > 0"
[ "$(lost)" != "$lost_in_bursts" ] || fail_on "the same bursts"
run "retransmit" "${udp[@]}" --loss 20% --reliability retransmit; json_holds "sum_of(.masked) == 0 and sum_of(.resent) > 0"
[ "$(answer)" = "$whole" ] || fail_on "another answer"
for gone in "--reliability fec" "--fec 4" --multicast "--transport mpi"; do
  # shellcheck disable=SC2086
  "$program" "${common[@]}" $gone >"$work/out" 2>"$work/err"
  [ $? -eq 2 ] && grep -q "error: ${gone% 4} was removed" "$work/err" || report "$gone: $(cat "$work/err")"
done
run "tokens" "${common[@]}" --loss 20% --loss-unit token; json_holds "sum_of(.lost) == 0 and sum_of(.masked) > 0"
tokens=$(answer)
run "tokens, again" "${common[@]}" --loss 20% --loss-unit token
[ "$(answer)" = "$tokens" ] || fail_on "the same seed, other losses"

# ---- slow links: blocks wait for them
# At least three quarters of the time that what was sent takes on LINKS links of each node: waited_for LINKS KBIT/S
waited_for() { json_holds "sum_of(.wait_ms) > 0.75 * 8 * sum_of(.bytes_sent) / $1 / $2"; }
blocks=$(jq .num_hidden_layers "$work/model/config.json")
run "latency" "${udp[@]}" --latency 10ms; json_holds "([.nodes[].wait_ms] | min) > 4 * ($blocks - 1) * 9"
[ "$(answer)" = "$whole" ] || fail_on "another answer"
run "bandwidth" "${udp[@]}" --bandwidth 100kbit; json_holds "sum_of(.masked) == 0"; waited_for 3 100
[ "$(answer)" = "$whole" ] || fail_on "another answer"
run "a switch" "${udp[@]}" --bandwidth 100kbit --link-model switch; json_holds "sum_of(.masked) == 0"; waited_for 1 100
run "streams with bandwidth" "${common[@]}" --bandwidth 100kbit --latency 1ms --jitter 1ms; json_holds "sum_of(.masked) == 0"; waited_for 3 100
# The last of three that take 30 ms and up to as many more or less, evenly: 45 ms on average.
run "jitter" "${common[@]}" --latency 30ms --jitter 30ms; json_holds "sum_of(.wait_ms) > 4 * 4 * $blocks * 37"
run "a trace" "${udp[@]}" --trace markov:20-100mbit:60; json_holds "sum_of(.masked) == 0"
run "a slow trace" "${udp[@]}" --trace markov:0.1-0.1mbit:60; json_holds "sum_of(.masked) == 0"; waited_for 3 100
printf '0 0.1\n1 0.2\n' >"$work/trace"
run "a trace of a file" "${udp[@]}" --trace "$work/trace"; json_holds "sum_of(.masked) == 0"; waited_for 3 200
run "a strict deadline" "${udp[@]}" --latency 20ms --deadline 2ms; json_holds "sum_of(.late) > 0 and sum_of(.masked) > 0"

# ---- texts: codes go one way, and nobody waits
for kind in tiny-gpt2 tiny-llama; do
  make_checkpoint "$work/$kind" "$kind" 4 50 4
  cp tests/golden/stories260K/tok512.bin "$work/$kind/"
  text=(--checkpoint "$work/$kind" --nodes 4 --prompt "Once upon a time there was a dog" -m 6)
  run "$kind over streams" "${text[@]}"; whole=$(answer)
  run "$kind over datagrams" "${text[@]}" --transport udp
  [ "$(answer)" = "$whole" ] || fail_on "another text"
  run "$kind, sent again" "${text[@]}" --transport udp --reliability retransmit --loss 20% --latency 1ms
  [ "$(answer)" = "$whole" ] || fail_on "another text"
  run "$kind with losses" "${text[@]}" --transport udp --loss 20%
done
# The longest text that a model takes may be more than packets can carry; this one is not. A position costs no memory until it is used.
sed -i 's/\("max_position_embeddings": *\)[0-9]*/\1400000/' "$work/tiny-llama/config.json"
run "a long context over datagrams" "${text[@]}" --transport udp --mtu 576
[ "$(answer)" = "$whole" ] || fail_on "another text"
exit $failed
