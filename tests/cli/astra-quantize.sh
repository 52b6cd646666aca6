#!/bin/bash
# astra-quantize: what it writes runs as it is and gives what --weights gives, is smaller, carries the other files, and cannot be trained from.
# Usage: tests/cli/astra-quantize.sh; programs in $BUILD/bin (build/bin). limit: 120
. tests/cli/helpers.sh astra-quantize
infer=$bin/astra-infer
mini=$root/checkpoints/gpt2-mini-g8
text=$root/datasets/enwiki-sample/valid.txt

# The same tokenizer in the files of GPT-2's first release
cp -r "$mini" old; rm old/tokenizer.json; mv old/vocab.json old/encoder.json; mv old/merges.txt old/vocab.bpe
expect "older names" 0 -c old --weights int8 -o older
run "older names: a prompt" 0 "$infer" -c ./older -p "The history of the city began" -m 2 -q
rm -r old older

size() { stat -c %s "$1/model.safetensors"; }
for bits in int8 int4; do
  expect "$bits" 0 -c "$mini" --weights $bits -o $bits; out "45 matrices of 7077888 numbers as $bits"
  for file in config.json tokenizer.json vocab.json merges.txt selftest.safetensors; do [ -f $bits/$file ] || report "$file is missing"; done
  run "$bits: digests" 0 "$bin/astra-data" verify $bits; out "model.safetensors: ok"
  run "$bits: a prompt" 0 "$infer" -c ./$bits -p "The history of the city began" -m 12 -q; mv "$work/out" "$work/text"
  run "$bits: the same by --weights" 0 "$infer" -c "$mini" --weights $bits -p "The history of the city began" -m 12 -q
  cmp -s "$work/out" "$work/text" || report "another text"
  run "$bits: self-test" 0 "$infer" selftest -c ./$bits; out "^passed"
  run "$bits: perplexity" 0 "$infer" eval -c ./$bits --dataset "text:$text" -s 4 -q --json; mv "$work/out" "$work/first"
  run "$bits: the same by --weights" 0 "$infer" eval -c "$mini" --weights $bits --dataset "text:$text" -s 4 -q --json
  [ "$(jq .perplexity "$work/out")" = "$(jq .perplexity "$work/first")" ] || report "another perplexity"
done
holds "$(size int4) < $(size int8) && $(size int8) < 0.65 * $(size "$mini")"
expect "images" 0 -c vit-cifar-g8 -o pictures --json
jq -e '.matrices == 59 and .weights == "int8" and .bytes_after < 0.55 * .bytes_before' "$work/out" >/dev/null || report "not 59 matrices"
cp -r "$root/checkpoints/vit-cifar-g8" unprepared; rm unprepared/preprocessor_config.json
expect "images, prepared nobody knows how" 0 -c ./unprepared -o prepared; err "./unprepared has no preprocessor_config.json"
run "an image" 0 "$infer" -c ./pictures "$root/datasets/pictures/apple_0614.png"; out "apple"

expect "what is there" 1 -c "$mini" -o int8; err "int8"
mkdir pieces && cp "$mini"/{vocab.json,merges.txt,tokenizer.json} pieces
expect "a tokenizer that is there" 1 -c vit-cifar-g8 -o pieces; err "pieces holds finished work already (merges.txt)"; err "overwrite"
[ -f pieces/tokenizer.json ] || report "the tokenizer is gone"
for file in tok512.bin encoder.json chat_template.jinja generation_config.json; do
  mkdir "of-$file" && echo mine >"of-$file/$file"
  expect "what would be removed, $file" 1 -c "$mini" -o "of-$file"; err "of-$file holds finished work already ($file)"
  [ "$(cat "of-$file/$file")" = mine ] && [ "$(ls "of-$file")" = "$file" ] || report "it is gone, or more is there"
done
mkdir -p of-templates/additional_chat_templates && echo mine >of-templates/additional_chat_templates/mine.jinja
expect "what would be removed, a folder" 1 -c "$mini" -o of-templates; err "of-templates holds finished work already (additional_chat_templates)"
[ "$(cat of-templates/additional_chat_templates/mine.jinja)" = mine ] || report "it is gone"
mkdir closed && touch closed/model.safetensors.tmp-123
expect "what a killed one left" 0 -c "$mini" -o closed -q; [ ! -e closed/model.safetensors.tmp-123 ] || report "it is still there"
mkdir -p run/training && touch run/training/state.safetensors
expect "where a training goes on" 1 -c "$mini" -o run --overwrite; err "run holds a training that can be resumed"
[ "$(ls run)" = training ] || report "it left $(ls run)"
# What the checkpoint before has in other files and the new one has not; what is of no checkpoint stays.
mkdir -p int8/adapter int8/best/adapter
for file in codebooks.safetensors chat_template.jinja adapter/adapter_model.safetensors best/model.safetensors best/adapter/adapter_config.json notes.txt; do echo before >"int8/$file"; done
expect "in its place" 0 -c "$mini" -o int8 --overwrite -q; silent out
for file in codebooks.safetensors chat_template.jinja adapter best; do [ ! -e "int8/$file" ] || report "int8/$file is left of the checkpoint before"; done
[ "$(cat int8/notes.txt)" = before ] || report "a file of no checkpoint is gone"
mkdir -p kept/adapter && cp -r "$mini" kept/best && echo before >kept/codebooks.safetensors
expect "of the best checkpoint of the place" 0 -c kept/best -o kept --overwrite -q
cmp -s kept/best/model.safetensors "$mini/model.safetensors" || report "the checkpoint that was read is gone"
[ ! -e kept/codebooks.safetensors ] && [ ! -e kept/adapter ] || report "it left $(ls kept)"
mkdir -p beside/best && echo mine >beside/best/notes.txt
expect "beside folders of others" 0 -c "$mini" -o beside -q
[ "$(cat beside/best/notes.txt)" = mine ] || report "without --overwrite it has removed beside/best"
expect "the checkpoint itself" 2 -c ./int8 -o int8 --overwrite; err "checkpoint itself"
expect "4 bits of 8" 2 -c ./int8 --weights int4 -o again; err "8 bits in the file already"
run "other bits" 2 "$infer" -c ./int8 --weights int4 -p "The" -m 1; err "8 bits in the file already"
for how in "" --dry-run "--lora 4" "--lora 4 --dry-run"; do
  # shellcheck disable=SC2086
  run "training from it, $how" 1 "$bin/astra-train" --model gpt2-mini --init ./int8 --dataset "text:$text" --max-steps 1 --out trained $how; err "not trained from"
done
expect "rounded again" 1 -c ./int8 -o again; err "no matrix is left to round"
expect "no checkpoint" 2 -o x; err "checkpoint DIR is missing"
expect "no place" 2 -c "$mini"; err "out DIR is missing"
expect "no such checkpoint" 1 -c ./nowhere -o x; err "nowhere"
expect "no such bits" 2 -c "$mini" --weights int2 -o x; err "int8"
(trap '' XFSZ; ulimit -f 1; "$program" -c "$mini" --weights int8 -o full) >out 2>err && report "a full disk was not noticed"
[ ! -e full ] || report "an empty directory is left where the disk is full"
[ $failed = 0 ] && echo "astra-quantize: ok"
exit $failed
