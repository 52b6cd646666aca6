#!/bin/bash
# What --dry-run prints as the peak of a run is what the run takes, within 5%: small presets, training and K-means. tools/results-memory.sh
# does the same for all presets.  limit: 240
# Usage: tests/cli/memory.sh, from the repository root; needs no network.
. tests/cli/helpers.sh astra-train
. "$root/tools/memory-helpers.sh"

pictures=(--dataset cifar100-sample --data-dir "$root/datasets")
texts=(--dataset "text:$root/datasets/enwiki-sample" --context 256)
short=(--init random --threads 2 --max-steps 2 --eval-samples 8 --kmeans-iterations 1 --codebook-size 256)

takes() { # NAME OPTIONS...
  name=$1
  : >"$work/out" >"$work/err"
  printed=0 used=0
  compare_memory "$program" "$work" "${short[@]}" "${@:2}" ||
    report "--dry-run printed $((printed >> 20)) MiB, the run took $((used >> 20)) MiB: $(tail -n 1 "$work/log")"
}

takes "a step of vit-cifar" --model vit-cifar "${pictures[@]}" --groups 8 --batch 32 --kmeans-samples 1024
takes "a plain step" --model vit-cifar "${pictures[@]}" --groups 0 --batch 32
takes "K-means of many samples" --model vit-cifar "${pictures[@]}" --groups 8 --batch 16 --kmeans-samples 49152
takes "a step of vit-tiny, exported in 16 bits" --model vit-tiny "${pictures[@]}" --groups 32 --batch 4 --kmeans-samples 1024 --dtype bf16
takes "a step of gpt2-mini" --model gpt2-mini --tokenizer "$root/checkpoints/gpt2-mini" "${texts[@]}" --groups 8 --batch 2 \
  --kmeans-samples 1024
takes "moments in 16 bits" --model vit-tiny "${pictures[@]}" --groups 0 --batch 4 --optimizer-bits 16
takes "moments in 8 bits" --model vit-tiny "${pictures[@]}" --groups 0 --batch 4 --optimizer-bits 8
takes "adapters of gpt2-mini" --model gpt2-mini --init "$root/checkpoints/gpt2-mini" "${texts[@]}" --groups 8 --batch 2 \
  --kmeans-samples 1024 --lora 8
takes "a step of llama-mini" --model llama-mini --tokenizer "$root/tests/golden/stories260K" "${texts[@]}" --groups 8 --batch 2 \
  --kmeans-samples 1024
exit $failed
