#!/bin/bash
# The self-test through the program, on random models and on the golden cases.
. tests/network/helpers.sh

check() { # NAME ARGUMENTS...
  local name=$1
  shift
  "$program" selftest "$@" >"$work/out" 2>"$work/err" || report "$name"
  tail -1 "$work/out" | grep -q '^passed$' || report "$name: does not say that it passed"
}

make_checkpoint "$work/tiny" tiny 4 50 4
check "tiny on 4 nodes" --checkpoint "$work/tiny"
check "tiny, lost packets sent again" --checkpoint "$work/tiny" --transport udp --loss 10% --reliability retransmit
refused() { # OPTION ARGUMENTS...
  "$program" selftest --checkpoint "$work/tiny" "${@:2}" >"$work/out" 2>"$work/err"
  [ $? -eq 2 ] || report "${*:2}: exit code"
  grep -q "error: --$1[: ]" "$work/err" || report "${*:2}: --$1 is not named"
}
refused loss --loss 5% --loss-unit token
refused loss --loss 5% --loss-unit token --transport udp --reliability retransmit
refused loss --transport udp --loss 10%
refused deadline --deadline 1us
refused remote-cache --remote-cache full
make_checkpoint "$work/cifar" vit-cifar 8 1024 8
check "vit-cifar on 8 nodes" --checkpoint "$work/cifar"
make_checkpoint "$work/fine" vit-cifar 32 1000 3
check "32 groups of 1000 on 3 nodes" --checkpoint "$work/fine"

make_checkpoint "$work/gpt2" tiny-gpt2 4 50 4
check "tiny GPT-2 on 4 nodes" --checkpoint "$work/gpt2"
make_checkpoint "$work/llama" tiny-llama 2 64 5
check "tiny Llama on 5 nodes" --checkpoint "$work/llama"
make_checkpoint "$work/rotated" tiny 4r 50 4
check "tiny in another basis on 4 nodes" --checkpoint "$work/rotated"
make_checkpoint "$work/rotated-gpt2" tiny-gpt2 4r 50 3
check "tiny GPT-2 in another basis on 3 nodes" --checkpoint "$work/rotated-gpt2"
make_checkpoint "$work/predicted" tiny 4rp 50 4
check "tiny with predictions on 4 nodes" --checkpoint "$work/predicted"
make_checkpoint "$work/means" tiny 4rpm 50 4
check "tiny with predictions and means of positions on 4 nodes" --checkpoint "$work/means"
make_checkpoint "$work/predicted-gpt2" tiny-gpt2 4rp 50 3
check "tiny GPT-2 with predictions on 3 nodes" --checkpoint "$work/predicted-gpt2"
make_checkpoint "$work/exact-gpt2" tiny-gpt2 4rpx 50 3
check "tiny GPT-2 with predictions, the first block exact, on 3 nodes" --checkpoint "$work/exact-gpt2"
make_checkpoint "$work/exact-llama" tiny-llama 2rpxk 64 4
check "tiny Llama with predictions of keys and values, the first block exact, on 4 nodes" --checkpoint "$work/exact-llama"
make_checkpoint "$work/predicted-llama" tiny-llama 2rpk 64 4
check "tiny Llama with predictions of keys and values on 4 nodes" --checkpoint "$work/predicted-llama"
make_checkpoint "$work/rotated-llama" tiny-llama 2r 64 4
check "tiny Llama, keys and values in another basis" --checkpoint "$work/rotated-llama"
for case in tests/golden/{vit,gpt2,llama}-*; do
  check "$case" --checkpoint "$case" --file "$case/expected.safetensors"
  [[ $case == */vit-* ]] || grep -q '^mean loss of the labels' "$work/out" || report "$case: no loss was compared"
done

"$program" selftest --checkpoint "$work/tiny" --json >"$work/out" 2>"$work/err" || report "JSON: exit code"
json_holds '.passed and .nodes == 4 and .wrong == 0 and .codes == 4 * 3 * 16 * 4'

# A model that overflows at a token of the last node, whose codes nobody is sent.
overflow_at "$work/gpt2/model.safetensors" $((40 * 32)) 0
"$program" selftest --checkpoint "$work/gpt2" >"$work/out" 2>"$work/err"
[ $? -eq 1 ] || report "an overflow: exit code"
grep -q 'node 3.*: block 0 of 3, counted from 0, gives numbers that are not finite' "$work/err" || report "an overflow: node and block are not named"
"$program" selftest --checkpoint "$work/gpt2" --json >"$work/out" 2>"$work/err"
[ $? -eq 1 ] || report "an overflow, JSON: exit code"
grep -q 'node 3.*: block 0 of 3' "$work/err" || report "an overflow, JSON: node and block are not named"

rm "$work/tiny/selftest.safetensors"
"$program" selftest --checkpoint "$work/tiny" >"$work/out" 2>"$work/err"
[ $? -eq 1 ] || report "a missing selftest.safetensors: exit code"
grep -q 'selftest.safetensors' "$work/err" || report "a missing selftest.safetensors is not named"
exit $failed
