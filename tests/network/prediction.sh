#!/bin/bash
# limit: 240
# Texts with predictions (--prediction): training, then processes that compute what it emulated, and send what the formula says, which is
# nothing of the first block.
. tests/network/helpers.sh
train=$(realpath "$build/bin/astra-train")

check() { # MODEL SITE SITES_PER_BLOCK
  local run="$work/run" name="$1 at site $2"
  rm -rf "$run"
  "$train" --model "$1" --site "$2" --dataset text:datasets/enwiki-sample --groups 4 --codebook-size 64 --prediction --devices 3 --max-steps 3 -l 1e-3 -b 2 \
    --context 64 --eval-samples 4 --kmeans-samples 1024 --kmeans-iterations 3 --out "$run" >"$work/out" 2>"$work/err" || { report "$name: training"; return; }
  local emulated blocks
  emulated=$(grep -o '[0-9.]* per token ([0-9.]* bits per byte) on 3' "$work/err" "$work/out" -h | head -1 | cut -d' ' -f1)
  jq -e '.astra.prediction and .astra.rotation and .astra.exact_first' "$run/config.json" >/dev/null || report "$name: config.json"
  blocks=$(jq '.num_hidden_layers // .n_layer' "$run/config.json")
  "$program" selftest -c "$run" >"$work/out" 2>"$work/err" || report "$name: self-test"
  tail -1 "$work/out" | grep -q '^passed$' || report "$name: the self-test does not say that it passed"
  "$program" eval -c "$run" --dataset text:datasets/enwiki-sample --context 64 --samples 4 --json >"$work/out" 2>"$work/err" || report "$name: eval"
  # 64 tokens on 3 devices, 22 + 21 + 21: codes of the first go to two others, of the second to one. 4 groups of 6 bits are 3 bytes.
  json_holds "(.bytes_per_token * 64 - ($blocks - 1) * $3 * 3 * (22 * 2 + 21)) | fabs < 1e-6 * 64"
  json_holds "(.bytes_per_token - .bytes_per_token_formula) | fabs < 1e-6"
  json_holds "(.perplexity / ${emulated:-0} - 1) | fabs < 1e-3"
  local whole
  whole=$(field .perplexity)
  "$program" eval -c "$run" --dataset text:datasets/enwiki-sample --context 64 --samples 4 --batch 1 --parts 2 --json >"$work/out" 2>"$work/err" || report "$name: in parts"
  json_holds "(.perplexity / $whole - 1) | fabs < 1e-4"
  "$program" -c "$run" --prompt "The history of the city began in the" --max-new-tokens 8 --json >"$work/out" 2>"$work/err" || report "$name: generation"
}

# A checkpoint of before, whose first block is coded, stays one, whether the option is given again or not.
name="a checkpoint of before"
"$build/tests/infer/make_sample" "$work/before" tiny 4rp
for option in "" --prediction; do
  "$train" --model "$work/before" --dataset synthetic:16x16:7:64 --eval-only $option --json >"$work/out" 2>"$work/err" || report "$name $option"
  field '"\(.accuracy) \(.accuracy_plain)"'
done >"$work/both"
[ "$(sort -u "$work/both" | wc -l)" = 1 ] || report "$name: $(cat "$work/both")"

check checkpoints/gpt2-mini x 1
check tests/golden/stories260K kv 2
exit $failed
