#!/bin/bash
# Conventions of perplexity in both programs, with the bundled gpt2-mini; lm-eval's against what an independent implementation (PyTorch in double,
# the harness's own Python for pages, detokenisation and windows) gave for the same texts. Usage: tests/cli/perplexity.sh  limit: 90
. tests/cli/helpers.sh astra-infer
export XDG_CACHE_HOME="$work/cache"
model=$root/checkpoints/gpt2-mini
[ -d "$model" ] || { echo "skipped: checkpoints/gpt2-mini is not there"; exit 77; }
eval_text() { run "$1" 0 "$bin/astra-infer" eval -c "$model" --dataset "text:$2" -q --json "${@:3}"; }
train_text() { run "$1" 0 "$bin/astra-train" --model "$model" --dataset "text:$2" --eval-part whole --eval-only -q --json "${@:3}"; }
number() { jq -r ".$1" "$work/out"; }
near() { holds "($1) - ($2) < 1e-4 * ($2) && ($2) - ($1) < 1e-4 * ($2)"; } # GOT EXPECTED

# Two pages, section headings, and each thing that detokenisation changes.
cat >"$work/wiki.txt" <<'END'
 
 = Robert Smith = 
 
 Robert Smith is an English film , television and theatre actor . He had a guest @-@ starring role ( in 2000 ) on " The Bill " . 
 
 = = Career = = 
 
 The cost was 1 @,@ 250 @.@ 50 : a lot ; who knew ? The boys ' house , Teddy 's story ! At 5 ° N of [ here ] . 
 
 = Other page = 
 
 This page is the second one , and it is longer than the windows that it is divided into , so that there is a last one which is moved back . 
END
tests=(16 32 512)
nats=(651.5747 642.6888 621.3512)
for i in 0 1 2; do
  eval_text "lm-eval, windows of ${tests[i]}" "$work/wiki.txt" --perplexity lm-eval --context "${tests[i]}"
  near "$(number nats)" "${nats[i]}"
  near "$(number word_perplexity)" "exp(${nats[i]} / 111)"
  near "$(number byte_perplexity)" "exp(${nats[i]} / 447)"
  near "$(number bits_per_byte)" "${nats[i]} / 447 / log(2)"
  [ "$(number convention) $(number units) $(number bytes)" = "lm-eval 111 447" ] || report "other words or bytes"
  train_text "the same by astra-train" "$work/wiki.txt" --perplexity lm-eval --context "${tests[i]}"
  near "$(number nats_plain)" "${nats[i]}"
  near "$(number word_perplexity)" "exp(${nats[i]} / 111)"
  near "$(number bits_per_byte)" "${nats[i]} / 447 / log(2)"
done

for unit in token word byte gpt2-paper; do
  eval_text "$unit" "$work/wiki.txt" --perplexity $unit --context 32
  infer=$(number perplexity) units=$(number units)
  [ "$(number convention)" = $unit ] || report "another convention"
  near "$infer" "exp($(number nats) / $units)"
  train_text "$unit by astra-train" "$work/wiki.txt" --perplexity $unit --context 32
  near "$(number perplexity)" "$infer"
  [ "$(number units)" = "$units" ] || report "$(number units) units, not $units"
done
# A text or page shorter than the context is shared out among the devices as it is, and not padded up to the context.
model=$root/checkpoints/gpt2-mini-g8
head -c 250 "$root/datasets/enwiki-sample/valid.txt" >"$work/short.txt"
eval_text "a short text on one device" "$work/short.txt"
tokens=$(number tokens)
for convention in token lm-eval; do
  [ $convention = lm-eval ] && tokens=$((tokens + 1)) # the first is predicted, too
  eval_text "a short text on four devices, by $convention" "$work/short.txt" --nodes 4 --perplexity $convention
  devices=$(number nats) sent=$(number bytes_per_token_block_receiver)
  eval_text "with a context of its length" "$work/short.txt" --nodes 4 --perplexity $convention --context "$tokens"
  [ "$(number 'tokens, .nats, .bytes_per_token_block_receiver' | xargs)" = "$tokens $devices $sent" ] || report "$devices nats with the model's context"
done
train_text "the page on emulated devices" "$work/short.txt" --perplexity lm-eval
near "$(number nats)" "$devices"
eval_text "a last window shorter than the others" "$work/short.txt" --nodes 4 --perplexity token --context 48
devices=$(number nats)
near "$(number bytes_per_token)" "$(number bytes_per_token_formula)"
near "$(number bytes_per_token_block_receiver)" "$(number packed_bits_per_token_block_receiver) / 8"
[ "$(number 'nodes[].tokens' | xargs)" = "12 12 12 12" ] || report "the tokens of another window"
train_text "the same on emulated devices" "$work/short.txt" --perplexity token --context 48
near "$(number nats)" "$devices"
printf 'By' >"$work/short.txt"
eval_text "fewer tokens than devices" "$work/short.txt" --nodes 4 --perplexity lm-eval
devices=$(number nats)
holds "$(number tokens) < 4"
train_text "as few on emulated devices" "$work/short.txt" --perplexity lm-eval
near "$(number nats)" "$devices"
model=$root/checkpoints/gpt2-mini

run "for people" 0 "$bin/astra-infer" eval -c "$model" --dataset "text:$work/wiki.txt" --perplexity lm-eval; out "^word_perplexity [0-9.]*, byte_perplexity [0-9.]*, bits_per_byte"
run "words of a part" 2 "$bin/astra-infer" eval -c "$model" --dataset "text:$work/wiki.txt" --perplexity word --context 16 --samples 2; err "needs the whole text"
run "lm-eval with a stride" 2 "$bin/astra-infer" eval -c "$model" --dataset "text:$work/wiki.txt" --perplexity lm-eval --stride 8; err "--stride"
run "and in astra-train" 2 "$bin/astra-train" --model "$model" --dataset "text:$work/wiki.txt" --eval-only --perplexity lm-eval --stride 8; err "--stride"
run "no such convention" 2 "$bin/astra-infer" eval -c "$model" --dataset "text:$work/wiki.txt" --perplexity letter; err "lm-eval"

shared=${ASTRA_SHARED:-$root/../shared}/data/wikitext-2/wiki.test.tokens
if [ -f "$shared" ]; then
  head -c 20000 "$shared" >"$work/part.txt"
  eval_text "the beginning of WikiText-2" "$work/part.txt" --perplexity lm-eval --context 128
  near "$(number nats)" 24218.2477
  [ "$(number units) $(number bytes)" = "3987 19997" ] || report "other words or bytes"
else
  echo "skipped: not compared: $shared is not there"
fi
[ $failed = 0 ] && echo "perplexity: all conventions as expected"
exit $failed
