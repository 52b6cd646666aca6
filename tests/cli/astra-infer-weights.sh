#!/bin/bash
# Weights of 8 and 4 bits (--weights): perplexity and accuracy of the bundled models stay within what is promised, nodes agree with the
# emulation that uses the same products, and what cannot be is refused. Usage: tests/cli/astra-infer-weights.sh; programs in $BUILD/bin
# (build/bin). limit: 180
. tests/cli/helpers.sh astra-infer
cd "$root" || exit 1
text=datasets/enwiki-sample/valid.txt

# measure KEY ARGUMENTS... : a number of the JSON into $got_number
measure() {
  expect "eval $*" 0 eval "${@:2}" -q --json
  got_number=$(jq -r ".$1" "$work/out")
}

# Mean loss of single samples into $got_number: mean_loss ARGUMENTS...
mean_loss() {
  expect "eval $*" 0 eval "$@" -q --json --per-sample "$work/samples.csv"
  got_number=$(awk -F, 'NR > 1 { items += $2; loss += $4 } END { print loss / items }' "$work/samples.csv")
}

for model in gpt2-mini gpt2-mini-g8; do
  measure perplexity -c $model --dataset text:$text -s 24
  full=$got_number
  for pair in int8:1.01 int4:1.05; do
    measure perplexity -c $model --dataset text:$text -s 24 --weights ${pair%:*}
    holds "$got_number < $full * ${pair#*:} && $got_number > $full * 0.97 && $got_number != $full"
  done
done
for bits in int8 int4; do
  for model in vit-cifar-g8 gpt2-mini-g8; do
    expect "$model, self-test with $bits" 0 selftest -c $model --weights $bits; out "on 4 nodes"; out "^passed"
  done
  expect "a prompt with $bits" 0 -c gpt2-mini-g8 --weights $bits -p "The history of the city began" -m 12 --json
  jq -e '.prompts[0] | (.ids | length) == 12 and .memory.weights < 8000000' "$work/out" >/dev/null || report "not 12 tokens, or too much memory"
  expect "divided columns with $bits" 0 eval -c vit-cifar --weights $bits --strategy tp -n 2 --dataset cifar100-sample --data-dir datasets -s 16 -q
done
expect "columns that cut blocks" 1 eval -c gpt2-mini --weights int4 --strategy tp -n 3 --dataset text:$text -s 1 -q
err "blocks of 32 inputs: use weights of int8"
expect "no such weights" 2 -c gpt2-mini --weights int3 -p "The"; err "int8"
expect "a plain model" 1 selftest -c vit-cifar --weights int8; err "selftest.safetensors"

# CIFAR-100, where it is there. The first 1,000 images by their loss, 1% and 5% as of texts: of so few, the error of a difference in top-1 is as
# large as what is promised of it, 0.3 and 1.0 points, which all 10,000 show (ASTRA_LONG=1).
shared=${ASTRA_SHARED:-../shared}/data
if [ -f "$shared/cifar100/test.bin" ]; then
  images=(-c vit-cifar-g8 --dataset cifar100 --data-dir "$shared")
  mean_loss "${images[@]}" -s 1000
  full=$got_number
  for pair in int8:1.01 int4:1.05; do
    mean_loss "${images[@]}" -s 1000 --weights ${pair%:*}
    holds "exp($got_number - $full) < ${pair#*:} && $got_number != $full"
  done
  [ -z "${ASTRA_LONG:-}" ] || measure top1 "${images[@]}"
  full=$got_number
  for pair in ${ASTRA_LONG:+int8:0.003 int4:0.01}; do
    measure top1 "${images[@]}" --weights ${pair%:*}
    holds "$got_number > $full - ${pair#*:}"
  done
else
  echo "skipped: without $shared/cifar100: accuracy over the test set is not measured"
fi
[ $failed = 0 ] && echo "weights of 8 and 4 bits: ok"
exit $failed
