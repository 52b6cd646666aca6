#!/bin/bash
# The engine against the reference values of whole models, in float and in double, and that the comparison notices what it is there to
# notice. Usage: tests/golden/golden.sh (from the repository root).  limit: 60
set -u
programs=("${BUILD:-build}/tests/golden" "${BUILD:-build}/tests/golden_double")
cases=(tests/golden/{vit,gpt2,llama}-*/)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

report() { echo "FAILED: $1"; sed 's/^/    /' "$work/out"; failed=1; }

# expect NAME EXIT-CODE PROGRAM DIR... : output in $work/out
expect() {
  local name=$1 code=$2 got
  shift 2
  "$@" >"$work/out" 2>&1
  got=$?
  [ "$got" = "$code" ] || report "$name: exit status $got, expected $code"
}
says() { grep -q -e "$1" "$work/out" || report "the output lacks '$1'"; }

# place FILE TENSOR: where its first byte lies
place() {
  local header begin
  header=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
  begin=$(head -c $((header + 8)) "$1" | tail -c "$header" | grep -o "\"$2\":{[^}]*}" | grep -o 'data_offsets":\[[0-9]*' | grep -o '[0-9]*$')
  echo $((header + 8 + begin))
}

# flip FILE PLACE BITS: changes those bits of that byte
flip() {
  local byte
  byte=$(od -An -t u1 -j "$2" -N 1 "$1" | tr -d ' ')
  printf "\\x$(printf %02x $((byte ^ $3)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

copy() { rm -rf "$work/case"; cp -r "$1" "$work/case"; chmod -R u+w "$work/case"; }

[ "${#cases[@]}" -ge 7 ] || report "there are ${#cases[@]} cases, at least 7 were expected"
for program in "${programs[@]}"; do
  expect "$program" 0 "$program" "${cases[@]}"
  cat "$work/out"
  [ "$(grep -c ': ok$' "$work/out")" = "${#cases[@]}" ] || report "$program: not every case says ok"

  copy tests/golden/vit-plain # an eighth of one logit, in its fourth place
  flip "$work/case/expected.safetensors" $(($(place "$work/case/expected.safetensors" logits) + 4 * 3 + 2)) 16
  expect "a changed logit" 1 "$program" "$work/case"; says '^  logits .*OUTSIDE'; says 'OUTSIDE the tolerance$'
  [ "$(grep -c 'OUTSIDE$' "$work/out")" = 1 ] || report "a changed logit: more than the logits are outside"

  copy tests/golden/vit-g8-n3-uneven
  flip "$work/case/expected.safetensors" "$(place "$work/case/expected.safetensors" codes.astra.layers.1.x)" 1
  expect "a changed code" 1 "$program" "$work/case"; says '^  codes.astra.layers.1.x .* 1 differ *OUTSIDE'

  copy tests/golden/llama-g2-n2-uneven
  flip "$work/case/expected.safetensors" "$(place "$work/case/expected.safetensors" codes.astra.layers.0.v)" 1
  expect "a changed code of v" 1 "$program" "$work/case"; says '^  codes.astra.layers.0.v .* 1 differ *OUTSIDE'
  says '^  codes.astra.layers.0.k .* 0 differ$'

  copy tests/golden/llama-plain # other rotary positions
  sed -i 's/"rope_theta": 500000.0/"rope_theta": 10000.0/' "$work/case/config.json"
  expect "another theta" 1 "$program" "$work/case"; says '^  logits .*OUTSIDE'

  copy tests/golden/vit-g1-n4 # another codeword: what hangs on it moves
  for i in 0 1 2 3 4 5 6 7; do flip "$work/case/codebooks.safetensors" $(($(stat -c %s "$work/case/codebooks.safetensors") - 192 * (i + 1) + 2)) 64; done
  expect "another codebook" 1 "$program" "$work/case"; says '^  codes.astra.layers.2.x .*OUTSIDE'; says '^  logits .*OUTSIDE'

  copy tests/golden/vit-g1-n4; rm "$work/case/codebooks.safetensors"
  expect "no codebooks" 1 "$program" "$work/case"; says "codebook"; says ": FAILED$"
  copy tests/golden/vit-plain; head -c 2000 "$work/case/expected.safetensors" >"$work/short"; mv "$work/short" "$work/case/expected.safetensors"
  expect "cut reference" 1 "$program" "$work/case"; says "expected.safetensors"; says ": FAILED$"
  copy tests/golden/vit-plain; sed -i 's/"model_type": "vit"/"model_type": "bert"/' "$work/case/config.json"
  expect "another architecture" 1 "$program" "$work/case"; says "'bert' are not supported; supported are vit, gpt2 and llama"
  copy tests/golden/vit-plain
  expect "one bad directory of two" 1 "$program" "$work/none" "$work/case"; says "none is no directory"; says "case: ok$"
  expect "nothing" 2 "$program"; says "^usage: golden DIR"
  expect "an option" 2 "$program" --help
done
[ $failed = 0 ] && echo "golden: all cases within the tolerance, every change noticed"
exit $failed
