#!/bin/bash
# tools/pretrain-text.sh: both models are described and trained, a run goes on where it was, and its result is that of the part held out.
# Usage: tests/cli/pretrain-text.sh; programs in $BUILD/bin (build/bin). limit: 180
. tests/cli/helpers.sh astra-train
script=$root/tools/pretrain-text.sh text=$root/datasets/enwiki-sample
export BUILD=${bin%/bin} THREADS=1
few=(1 --max-steps 3 --batch 2 --eval-samples 2 --quiet)

run "no arguments" 2 "$script"; err "^usage: "
run "another model" 2 "$script" bert "$text" out; err "^usage: "
run "no text" 1 "$script" gpt2 "$work" out; err "neither train.txt nor"
run "no epochs" 2 "$script" gpt2 "$text" out none; err "EPOCHS is 'none'"
for kind in gpt2 llama; do
  run "$kind" 0 "$script" "$kind" "$text" "$work/$kind" "${few[@]}"; out "^held out: perplexity a token [0-9.]*, [0-9.]* bits a byte$"
  jq -e --arg kind $kind '.model_type == $kind' "$kind/config.json" >/dev/null || report "another kind of model"
done
jq -e '.num_key_value_heads == 2 and .num_attention_heads == 6' llama/config.json >/dev/null || report "no grouped queries"
numbers=$("$program" --model llama --dataset "text:$text" --groups 0 --dry-run --json 2>/dev/null | jq .parameters)
holds "$numbers > 13e6 && $numbers <= 15e6"

# As if it had been stopped behind its last checkpoint.
cp llama/valid.json before && rm llama/valid.json
touch -d 2001-01-01 llama/described/config.json
run "goes on" 0 "$script" llama "$text" "$work/llama" "${few[@]}"
[ "$(date -r llama/described/config.json +%Y)" = 2001 ] || report "the run began anew"
holds "$(jq .perplexity llama/valid.json) == $(jq .perplexity before)"
run "is done" 0 "$script" llama "$text" "$work/llama"; silent err

[ $failed = 0 ] && echo "pretrain-text.sh: trains and goes on"
exit $failed
