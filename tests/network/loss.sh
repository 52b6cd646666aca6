#!/bin/bash
# limit: 240
# Codes as datagrams over links that lose, delay and throttle them: every mode of reliability does what it says, and the same seed means the
# same losses.
. tests/network/helpers.sh

fail_on() { report "$name: $1"; }

run() { # NAME ARGUMENTS...: JSON of a run over the picture; leaves it in out
  name=$1
  shift
  "$program" "$@" --json >"$work/out" 2>"$work/err" || report "$name: exit code $?"
}
holds() { # CONDITION of r (the answer), n (its nodes), and sum_of(field)
  tail -1 "$work/out" | python3 -c "
import json, sys
r = json.loads(sys.stdin.read())
n = r.get('nodes')
def sum_of(field): return sum(x[field] for x in n)
assert $1, n" 2>>"$work/err" || fail_on "$1"
}
answer() { tail -1 "$work/out" | python3 -c "
import json, sys
r = json.loads(sys.stdin.read())
print([[(t['class'], t['probability']) for t in p['top']] for p in r['pictures']] if 'pictures' in r else [p['ids'] for p in r['prompts']])"; }

command -v python3 >/dev/null || { echo "skipped: no python3"; exit 77; }
make_checkpoint "$work/model" vit-cifar 8 256 4
python3 - "$work/picture.ppm" <<'PY'
import sys
open(sys.argv[1], "wb").write(b"P6 32 32 255\n" + bytes((x * 7 + y * 13 + c * 50) % 256 for y in range(32) for x in range(32) for c in range(3)))
PY
pictures=("$work/picture.ppm" "$work/picture.ppm" "$work/picture.ppm" "$work/picture.ppm")
common=(--checkpoint "$work/model" --nodes 4 --batch 1 "${pictures[@]}")
udp=("${common[@]}" --transport udp)

# ---- the same numbers over every carrier
for kind in "--transport tcp" "--transport udp" "--transport udp --reliability retransmit --loss 10%" "--transport udp --mtu 576 --datagrams 4"; do
  # shellcheck disable=SC2086
  "$program" selftest --checkpoint "$work/model" $kind >"$work/out" 2>"$work/err" || report "selftest $kind"
done

run "streams" "${common[@]}"; holds "sum_of('masked') == 0"; whole=$(answer)
run "datagrams" "${udp[@]}"; holds "sum_of('lost') + sum_of('late') + sum_of('masked') == 0"
[ "$(answer)" = "$whole" ] || fail_on "another answer"
# 4 pictures, 12 nodes' pairs, each block in two packets at least, of 24 bytes around 12 of header and the codes
holds "all(x['messages_sent'] >= 4 * 3 * 2 for x in n)"

# ---- losses
run "deadline" "${udp[@]}" --loss 20%; holds "sum_of('lost') > 0 and sum_of('masked') > 0 and sum_of('resent') == 0"
holds "sum_of('masked') == sum_of('lost_tokens') + sum_of('late_tokens')"
masked=$(answer)
[ "$masked" != "$whole" ] || fail_on "nothing was masked"
run "deadline, again" "${udp[@]}" --loss 20%
[ "$(answer)" = "$masked" ] || fail_on "the same seed, other losses"
run "deadline, another seed" "${udp[@]}" --loss 20% --link-seed 43
[ "$(answer)" != "$masked" ] || fail_on "another seed, the same losses"
run "bursts" "${udp[@]}" --loss 20% --loss-model gilbert-elliott; holds "sum_of('lost') > 0"
run "retransmit" "${udp[@]}" --loss 20% --reliability retransmit; holds "sum_of('masked') == 0 and sum_of('resent') > 0"
[ "$(answer)" = "$whole" ] || fail_on "another answer"
for gone in "--reliability fec" "--fec 4" --multicast "--transport mpi"; do
  # shellcheck disable=SC2086
  "$program" "${common[@]}" $gone >"$work/out" 2>"$work/err"
  [ $? -eq 2 ] && grep -q "error: ${gone% 4} was removed" "$work/err" || report "$gone: $(cat "$work/err")"
done
run "tokens" "${common[@]}" --loss 20% --loss-unit token; holds "sum_of('lost') == 0 and sum_of('masked') > 0"
tokens=$(answer)
run "tokens, again" "${common[@]}" --loss 20% --loss-unit token
[ "$(answer)" = "$tokens" ] || fail_on "the same seed, other losses"

# ---- slow links: blocks wait for them
blocks=$(python3 -c "import json; print(json.load(open('$work/model/config.json'))['num_hidden_layers'])")
run "latency" "${udp[@]}" --latency 10ms; holds "min(x['wait_ms'] for x in n) > 4 * ($blocks - 1) * 9"
[ "$(answer)" = "$whole" ] || fail_on "another answer"
run "bandwidth" "${udp[@]}" --bandwidth 1mbit; holds "sum_of('masked') == 0"
[ "$(answer)" = "$whole" ] || fail_on "another answer"
run "a switch" "${udp[@]}" --bandwidth 2mbit --link-model switch; holds "sum_of('masked') == 0"
run "streams with bandwidth" "${common[@]}" --bandwidth 2mbit --latency 1ms --jitter 1ms; holds "sum_of('masked') == 0"
run "a trace" "${udp[@]}" --trace markov:20-100mbit:60; holds "sum_of('masked') == 0"
printf '0 10\n1 20\n' >"$work/trace"
run "a trace of a file" "${udp[@]}" --trace "$work/trace"; holds "sum_of('masked') == 0"
run "a strict deadline" "${udp[@]}" --latency 20ms --deadline 2ms; holds "sum_of('late') > 0 and sum_of('masked') > 0"

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
exit $failed
