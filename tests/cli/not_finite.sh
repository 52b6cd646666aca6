#!/bin/bash
# limit: 240
# Weights that are finite but so large that a block's output is not: an error that names the first such block, whoever computes it.
. tests/cli/helpers.sh astra-infer
make=$root/${BUILD:-build}/tests/infer/make_sample
printf '%s' iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mP4z8CAFTEMLQkAKP8/wc53yE8AAAAASUVORK5CYII= | base64 -d >red.png
"$make" good tiny 4 50 4 || exit 1
"$make" model tiny 4 50 4 0 0 1 || exit 1
"$make" plain tiny 0 50 4 0 0 2 || exit 1
"$make" words tiny-gpt2 4 50 4 0 0 1 || exit 1
cp good/selftest.safetensors model
cp "$root/tests/golden/stories260K/tok512.bin" words

fails() { # NAME BLOCK ARGUMENTS...
  local named=$1 block=$2
  shift 2
  expect "$named" 1 "$@"
  err "block $block of 3, counted from 0, gives numbers that are not finite: .* --learning-rate"
  ! grep -qi 'nan%\|inf%' "$work/out" || report "an answer was printed"
  silent out
}

fails "one node" 1 -c model -n 1 red.png; err "node 0"
for nodes in 2 4; do fails "$nodes nodes" 1 -c model -n $nodes red.png; err "error: node [0-9]* (pid [0-9]*): block 1"; done
fails "JSON" 1 -c model -n 2 --json red.png
fails "a plain model" 2 -c plain red.png
for strategy in single tp sp bp-ag bp-sp; do fails "strategy $strategy" 2 -c plain -n 2 --strategy $strategy red.png; done
fails "in parts" 1 -c model -n 2 --parts 2 red.png
for policy in rerun mask; do
  fails "on failure: $policy" 1 -c model -n 2 --on-failure $policy red.png
  ! grep -q "continuing without it" "$work/err" || report "a node is blamed for the weights"
done
mkdir -p set/train set/test
for class in 0 1 2 3 4 5 6; do for part in train test; do mkdir set/$part/c$class; cp red.png set/$part/c$class/a.png; done; done
fails "eval" 1 eval -c model -n 2 -d folder:set --quiet
fails "selftest" 1 selftest -c model
fails "generate" 1 -c words -n 1 --prompt "some words" --quiet
fails "generate on two" 1 -c words -n 2 --prompt "some words that two nodes share" --quiet
printf 'Some words, and more words of a text that is long enough to be scored by the model of the test.\n%.0s' {1..20} >text.txt
fails "eval of a text" 1 eval -c words -n 2 -d text:text.txt --quiet

called=("$bin/astra-train")
expect "evaluation alone" 1 --model ./model --dataset folder:set --eval-only --quiet
err "block 1 of 3, counted from 0, gives numbers that are not finite"
expect "training" 1 --model ./model --dataset folder:set --codebooks model --out run --epochs 1 --batch 2 --quiet
err "the loss is not a number at step 1.* in block 1 of 3, counted from 0,"
exit $failed
