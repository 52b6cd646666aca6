#!/bin/bash
# astra-bench decode from outside: steps of several sequences of tiny models, in all kinds of weights. Says nothing about speed.
# Usage: tests/cli/astra-bench-decode.sh; programs in $BUILD/bin (build/bin). limit: 60
. tests/cli/helpers.sh astra-bench decode
field() { jq -e "$1" <"$work/out" >/dev/null || report "JSON lacks $1"; }
few=(--model gpt2-mini --length 12 --repeats 2 --threads 2)

expect "help" 0 --help; out "^usage: astra-bench decode"; out "--sequences"; silent err
expect "no model" 2; err "--model is missing"
expect "a model of images" 2 --model vit-cifar; err "for models that predict tokens"
expect "more than the context" 2 --model gpt2-mini --length 510 --rows 4; err "context of 512"
expect "no sequences" 2 --model gpt2-mini --sequences 0; err "--sequences"

expect "five sequences" 0 "${few[@]}" --sequences 5 --profile; silent err
out "^machine: 2 threads"; out "^model:   gpt2-mini, 12 tokens before, 0 as codes, 1 row of"; out "^ *sequences .*times one"
for n in 1 2 4 5; do out "^ *$n  .*[0-9]"; done
out "decode_attention *forward"; out "^5 sequences"
expect "as JSON, with drafts" 0 "${few[@]}" --sequences 2 --rows 3 --json; silent err
field '.schema == 1 and .rows == 3 and (.batches | length) == 2 and .batches[0].ratio == 1 and .batches[1].sequences == 2'
field '[.batches[].tokens_per_second] | all(. > 0)'
expect "codes" 0 "${few[@]}" --sequences 3 --codes 5; out "12 tokens before, 5 as codes"
expect "codes of keys and values" 0 --model llama-mini --length 9 --codes 4 --repeats 1 --sequences 2 --json; field '.codes == 4'
expect "nothing but codes" 2 "${few[@]}" --codes 12; err "--codes 12"
expect "weights in 8 bits" 0 "${few[@]}" --sequences 3 --weights int8 --json; field '.weights == "int8" and .batches[2].sequences == 3'
expect "weights in 4 bits" 0 "${few[@]}" --sequences 1 --weights int4 --json; field '.weights == "int4"'
expect "in bf16" 0 "${few[@]}" --sequences 2 --precision bf16 --json; field '.precision == "bf16"'
expect "rotary positions and grouped heads" 0 --model llama-mini --length 9 --repeats 2 --threads 1 --sequences 2 --json; field '.batches[1].milliseconds > 0'
mkdir $'red\e[31m' && printf '{"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16, "vocab_size": 32}' >$'red\e[31m/config.json'
expect "a name that a terminal would obey" 0 --model $'./red\e[31m' --length 4 --repeats 1 --sequences 1 --threads 1; out '^model:   ./red\\x1b\[31m, 4 tokens'

[ $failed = 0 ] && echo "astra-bench decode: steps of several sequences"
exit $failed
