#!/bin/bash
# GGUF files in place of a checkpoint's directory: the known story from each type, eval, nodes, codebooks and training from one, refusals.
. tests/cli/helpers.sh astra-infer
stories=$root/tests/golden/stories260K
maker=$(realpath "$root/${BUILD:-build}/tests/infer/make_gguf")
for type in F32 F16 BF16 Q8_0 Q4_0 Q5_1; do "$maker" "$stories" "$work/$type.gguf" $type || exit 1; done
cp F16.gguf a-blob-of-any-name
beginning=$(head -c 60 "$stories/golden_stdout.txt")
text="Once upon a time, there was a little girl named Lily. She loved to play in the garden with her dog."
for _ in 1 2 3 4 5 6 7 8; do echo "$text"; done >text.txt

# ---- generating
expect "story from floats" 0 --checkpoint F32.gguf --prompt "" --max-new-tokens 200 --quiet
[ "$(cat "$work/out")" = "$(cat "$stories/golden_stdout.txt")" ] || report "another text"
for type in F16 BF16 Q8_0 Q4_0; do
  expect "the story begins alike from $type" 0 -c $type.gguf -p "" -m 60 -q
  [ "$(head -c 60 "$work/out")" = "$beginning" ] || report "another text"
done
shared() { expect "memory of $1" 0 -c "$1.gguf" -p "" -m 2 --json; bytes=$(jq '.prompts[0].memory.weights_shared' out); }
shared F16; halves=$bytes
shared Q8_0; holds "$bytes < 0.65 * $halves"
shared Q4_0; holds "$bytes < 0.45 * $halves"
expect "rounded further" 0 -c F16.gguf --weights int8 -p "" -m 60 -q
[ "$(head -c 60 "$work/out")" = "$beginning" ] || report "another text"
expect "8 bits are not made 4" 2 -c Q8_0.gguf --weights int4 -p a; err "has 8 bits in the file already"
expect "a file of another name" 0 -c ./a-blob-of-any-name -p "" -m 60 -q
[ "$(head -c 60 "$work/out")" = "$beginning" ] || report "another text"

# ---- eval, alone and on nodes: the numbers of the checkpoint that the file was made from
expect "eval of the checkpoint" 0 eval -c "$stories" -d text:text.txt --json; whole=$(jq .perplexity out)
expect "eval of floats" 0 eval -c F32.gguf -d text:text.txt --json; holds "$(jq .perplexity out) == $whole"
expect "eval of Q8_0" 0 eval -c Q8_0.gguf -d text:text.txt --json; holds "$(jq .perplexity out) < 1.01 * $whole && $(jq .perplexity out) > 0.99 * $whole"
expect "eval of Q4_0" 0 eval -c Q4_0.gguf -d text:text.txt --json; holds "$(jq .perplexity out) < 1.3 * $whole && $(jq .perplexity out) > 0.9 * $whole"
expect "eval on three nodes" 0 eval -c Q8_0.gguf -n 3 --strategy sp -d text:text.txt --json; holds "$(jq .perplexity out) < 1.01 * $whole && $(jq .perplexity out) > 0.99 * $whole"
expect "a plain model has no codes" 2 -c Q8_0.gguf -n 3 -p a; err "--nodes 3: a plain model (no codebooks) runs on one node only"

# ---- codebooks and training
expect_program() { run "$1" "$2" "$bin/$3" "${@:4}"; }
expect_program "codebooks" 0 astra-kmeans init --model Q8_0.gguf --dataset text:text.txt --context 32 --groups 4 --codebook-size 16 --out books
[ -f books/codebooks.safetensors ] || report "no codebooks"
learn=(--dataset text:text.txt --groups 4 --codebook-size 16 --devices 2 --context 32 --batch 2 --max-steps 2 --eval-samples 2)
expect_program "training from a file" 0 astra-train --model F32.gguf "${learn[@]}" --out from-gguf
expect_program "training from its checkpoint" 0 astra-train --model "$stories" "${learn[@]}" --out from-directory
cmp -s from-gguf/model.safetensors from-directory/model.safetensors || report "other weights"
[ -f from-gguf/tok512.bin ] || report "no tokenizer beside the checkpoint"
expect_program "adapters over blocks" 0 astra-train --model Q8_0.gguf "${learn[@]}" --lora 2 --out adapted
expect_program "weights alone" 0 astra-train --model "$stories" --init Q8_0.gguf "${learn[@]}" --out initialised
expect "what was trained runs on two nodes" 0 -c from-gguf -n 2 -p "Once upon a time" -m 5 -q
expect_program "a data set's tokenizer" 0 astra-data encode --tokenizer F32.gguf Once upon a time; out "^403 407 261 378$"

expect_program "verify" 0 astra-data verify F32.gguf; out "^F32.gguf: whole; a GGUF file has no digests, so nothing to compare (47 tensors)$"

# ---- refusals
expect "a type that is not taken" 1 -c Q5_1.gguf -p a
err "Q5_1.gguf: tensor output.weight is stored as Q5_1; supported are F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K: convert the file with 'llama-quantize"
head -c 5000 F32.gguf >cut.gguf
expect "a cut file" 1 -c cut.gguf -p a; err "cut.gguf: the file ends within"
head -c 500000 F32.gguf >cut.gguf
expect "a file without its end" 1 -c cut.gguf -p a; err "cut.gguf: the data of tensor .* extends past the end of the file of 500000 bytes; is it complete?"
echo "no model" >wrong.gguf
expect_program "verify a cut file" 1 astra-data verify cut.gguf; out "^cut.gguf: damaged"
expect "something else" 1 -c wrong.gguf -p a; err "wrong.gguf: not a GGUF file"
expect "nothing there" 1 -c ./absent.gguf -p a; err "there is no such directory or GGUF file"
expect "no self-test" 1 selftest -c F32.gguf; err "selftest.safetensors: not found"
exit $failed
