#!/bin/bash
# astra-bench quantize from outside: the table of both kinds of models, JSON, refusals. Says nothing about speed.
# Usage: tests/cli/astra-bench-quantize.sh; programs in $BUILD/bin (build/bin). limit: 120
. tests/cli/helpers.sh astra-bench quantize
cd "$root" || exit 1
images=(--dataset cifar100-sample --data-dir datasets --samples 60 --repeats 2)

expect "help" 0 --help; out "^usage: astra-bench quantize"; out "--checkpoint"; silent err
expect "images" 0 -c vit-cifar -c vit-cifar-g8 "${images[@]}"; silent err
out "^vit-cifar  *32  *1 .*1.00$"; out "^  *8  *1 "; out "^vit-cifar-g8  *32  *4 "; out "^  *4  *4 "
[ "$(wc -l <"$work/out")" = 7 ] || report "not a row for each checkpoint and width"
expect "a text" 0 -c gpt2-mini-g8 --dataset text:datasets/enwiki-sample/valid.txt --samples 4 --repeats 2 --json; silent err
jq -e '.schema == 1 and [.rows[].bits] == [32, 8, 4] and ([.rows[].nodes] | unique) == [4] and all(.rows[]; .milliseconds > 0 and .samples == 4)' \
  "$work/out" >/dev/null || report "other rows"
jq -e '.rows as $r | $r[1].perplexity < 1.01 * $r[0].perplexity and $r[2].perplexity < 1.05 * $r[0].perplexity and $r[2].bytes < $r[1].bytes' \
  "$work/out" >/dev/null || report "worse than is allowed"
# Of a folder the validation part is measured, as astra-infer eval does, not the text that was trained on.
mkdir "$work/parts" && head -c 60000 datasets/enwiki-sample/train.txt >"$work/parts/train.txt"
head -c 20000 datasets/enwiki-sample/valid.txt >"$work/parts/valid.txt"
for text in "$work/parts" "$work/parts/valid.txt"; do
  expect "perplexity of $text" 0 -c gpt2-mini --dataset "text:$text" --samples 2 --repeats 1 --json
  jq -c '[.rows[].perplexity]' "$work/out"
done >"$work/perplexities"
[ "$(sort -u "$work/perplexities" | wc -l)" = 1 ] || report "a folder's perplexities are not those of its valid.txt: $(cat "$work/perplexities")"
expect "no checkpoint" 2 "${images[@]}"; err "checkpoint DIR is missing"
expect "no data" 2 -c vit-cifar; err "dataset NAME is missing"
expect "a text for images" 2 -c vit-cifar --dataset text:datasets/enwiki-sample/valid.txt; err "vit-cifar takes images"
expect "images for a text" 2 -c gpt2-mini "${images[@]}"; err "takes a text"
[ $failed = 0 ] && echo "astra-bench quantize: ok"
exit $failed
