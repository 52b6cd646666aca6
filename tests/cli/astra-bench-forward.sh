#!/bin/bash
# astra-bench forward from outside: encoders, decoders, prefill and decoding of tiny models, and that the figures fit each other. Says nothing
# about speed.
# Usage: tests/cli/astra-bench-forward.sh; programs in $BUILD/bin (build/bin). limit: 60
. tests/cli/helpers.sh astra-bench forward
field() { jq -e "$1" <"$work/out" >/dev/null || report "JSON lacks $1"; }

mkdir model
cat >model/config.json <<'END'
{"model_type": "vit", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "image_size": 16,
 "patch_size": 4, "num_channels": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "num_labels": 7}
END
few=(--repeats 3 --threads 2)

expect "help" 0 --help; out "^usage: astra-bench forward"; out "--decode"; out "--output"; silent err
expect "no model" 2; err "--model is missing"
expect "unknown model" 2 --model vit-huge; err "vit-huge"; err "vit-base"
expect "unknown option" 2 --model model --groups 4; err "--groups"
expect "no repeats" 2 --model model --repeats 0; err "--repeats"
expect "decoding images" 2 --model model --decode 4; err "--decode is for models that predict tokens"
expect "no room for a prompt" 2 --model gpt2-mini --decode 2000; err "--decode 2000 leaves nothing of the model's context of 512 for the prompt"
expect "decoding a batch" 2 --model gpt2-mini --length 8 --decode 4 --batch 2; err "--batch 1"
expect "more than the context" 2 --model gpt2-mini --length 510 --decode 4; err "context of 512"; err "--length"
expect "a class token alone" 2 --model model --length 1; err "--length 1"

expect "images" 0 --model model --batch 3 "${few[@]}" --profile; silent err
out "^machine: 2 threads"; out "^memory:  read"; out "^model:   model, 17 tokens, batch 3"; out "patch_embed  *forward"; out "inside products"
! grep -q "decode\|backward" "$work/out" || report "decoding or a backward pass of images"
expect "an encoder of any length" 0 --model model --length 40 --output all "${few[@]}" --json
field '.tokens == 40 and .output == "all" and .forward.milliseconds >= .forward.milliseconds_min and .forward.milliseconds_min > 0'
all=$(jq .forward.gflop <"$work/out")
# 2 blocks of 40 rows: projections 4 D^2, MLP 4 D^2 (of width 2 D), attention 2 x 40 D multiply-adds a row
holds "$all > 0.999e-9 * 2 * 2 * 40 * (8 * 32 * 32 + 2 * 40 * 32) && $all < 1.001e-9 * 2 * 2 * 40 * (8 * 32 * 32 + 2 * 40 * 32)"
expect "its answer alone" 0 --model model --length 40 "${few[@]}" --json
holds "$(jq .forward.gflop <"$work/out") < $all" # the last block has one row of queries

expect "prefill and decoding" 0 --model gpt2-mini --length 32 --decode 8 "${few[@]}"; silent err
out "^model:   gpt2-mini, 32 tokens, batch 1"; out "prefill  *decode$"; out "GB/s of weights that are read"
expect "the same as JSON" 0 --model gpt2-mini --length 32 --decode 8 "${few[@]}" --json --profile; silent err
field '.schema == 1 and .prefill.tokens_per_second > 0 and .decode.tokens_per_second > 0 and .decode.read_gb_per_second > 0'
field '[.decode.profile[].name] | index("decode_attention") != null'
field '[.prefill.profile[].name] | index("decode_attention") == null'
full=$(jq .weight_mib <"$work/out")
expect "weights in 8 bits" 0 --model gpt2-mini --length 32 --decode 4 --weights int8 "${few[@]}" --json; field '.weights == "int8" and .decode.milliseconds > 0'
holds "$(jq .weight_mib <"$work/out") < 0.3 * $full"
expect "weights in 4 bits" 0 --model gpt2-mini --length 32 --decode 4 --weights int4 "${few[@]}" --json; field '.weights == "int4"'
holds "$(jq .weight_mib <"$work/out") < 0.25 * $full"
expect "weights in 2 bits" 2 --model gpt2-mini --weights int2; err "--weights"; err "int4"
expect "in bf16" 0 --model gpt2-mini --length 32 --decode 4 --precision bf16 "${few[@]}" --json; field '.precision == "bf16" and .decode.milliseconds > 0'
expect "images in bf16" 0 --model model --precision bf16 "${few[@]}"; out "products in bf16$"
expect "activations in bf16, weights in 8 bits" 0 --model gpt2-mini --length 32 --weights int8 --precision bf16 "${few[@]}" --json; field '.weights == "int8"'
expect "a decoder with rotary positions" 0 --model llama-mini --length 16 --decode 2 "${few[@]}" --json; field '.decode.milliseconds > 0'
expect "a batch of texts, all logits" 0 --model gpt2-mini --length 16 --batch 2 --output all "${few[@]}" --json
field '.forward.tokens_per_second > 0 and (has("decode") | not)'
[ "$(awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo)" -gt 30000000 ] ||
  { expect "a model of more memory than there is" 1 --model llama-3-8b --length 16; err "no memory for the model's parameters: 32121.0 MB"; }

[ $failed = 0 ] && echo "astra-bench forward: encoders, prefill and decoding"
exit $failed
