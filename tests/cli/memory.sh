#!/bin/bash
# What --dry-run prints as the peak of a run is what the run takes, within 5%: small presets, training and K-means. tools/results-memory.sh
# does the same for all presets.  limit: 240
# Usage: tests/cli/memory.sh, from the repository root; needs no network.
. tests/cli/helpers.sh astra-train
. "$root/tools/memory-helpers.sh"

pictures=(--dataset cifar100-sample --data-dir "$root/datasets")
texts=(--dataset "text:$root/datasets/enwiki-sample" --context 256)
short=(--init random --threads 2 --max-steps 1 --eval-samples 8 --kmeans-iterations 1 --codebook-size 256)

takes() { # NAME OPTIONS...
  name=$1
  : >"$work/out" >"$work/err"
  printed=0 used=0
  compare_memory "$program" "$work" "${short[@]}" "${@:2}" ||
    report "--dry-run printed $((printed >> 20)) MiB, the run took $((used >> 20)) MiB: $(tail -n 1 "$work/log")"
}

takes "two steps of vit-cifar" --max-steps 2 --model vit-cifar "${pictures[@]}" --groups 8 --batch 32 --kmeans-samples 1024
takes "a plain step" --model vit-cifar "${pictures[@]}" --groups 0 --batch 32
takes "K-means of many samples" --model vit-cifar "${pictures[@]}" --groups 8 --batch 16 --kmeans-samples 24576
takes "a step of vit-tiny, exported in 16 bits" --model vit-tiny "${pictures[@]}" --groups 32 --batch 4 --kmeans-samples 1024 --dtype bf16
takes "a step of gpt2-mini" --model gpt2-mini --tokenizer "$root/checkpoints/gpt2-mini" "${texts[@]}" --groups 8 --batch 2 \
  --kmeans-samples 1024
takes "a step that takes less than its self-test" --model vit-small "${pictures[@]}" --groups 0 --batch 1
takes "moments in 16 bits" --model vit-tiny "${pictures[@]}" --groups 0 --batch 4 --optimizer-bits 16
takes "moments in 8 bits" --model vit-tiny "${pictures[@]}" --groups 0 --batch 4 --optimizer-bits 8
takes "a step in bf16" --model vit-tiny "${pictures[@]}" --groups 0 --batch 8 --precision bf16 --optimizer-bits 8
takes "adapters of gpt2-mini" --model gpt2-mini --init "$root/checkpoints/gpt2-mini" "${texts[@]}" --groups 8 --batch 2 \
  --kmeans-samples 1024 --lora 8
takes "a step of llama-mini" --model llama-mini --tokenizer "$root/tests/golden/stories260K" "${texts[@]}" --groups 8 --batch 2 \
  --kmeans-samples 1024
takes "half of the blocks computed twice" --model vit-tiny "${pictures[@]}" --groups 0 --batch 16 --recompute 6
takes "all blocks computed twice" --model vit-tiny "${pictures[@]}" --groups 32 --batch 8 --recompute --kmeans-samples 1024

# A budget is kept, with fewer blocks computed twice where it is larger.
tiny=(--model vit-tiny "${pictures[@]}" --groups 0 --batch 16)
budget() { # SIZE-IN-MIB
  takes "a budget of $1 MiB" "${tiny[@]}" --memory "$1M"
  [ "$printed" -le $(($1 << 20)) ] || report "--dry-run printed $((printed >> 20)) MiB"
  [ "$used" -le $(($1 * 105 / 100 << 20)) ] || report "the run took $((used >> 20)) MiB"
  expect "the plan of $1 MiB" 0 "${short[@]}" "${tiny[@]}" --memory "$1M" --dry-run --json --out plan
  twice=$(grep -o '"recomputed_blocks":[0-9]*' "$work/out" | cut -d: -f2)
}
expect "a plan with all values kept" 0 "${short[@]}" "${tiny[@]}" --dry-run --json --out plan
whole=$(grep -o '"total_bytes":[0-9]*' "$work/out" | cut -d: -f2)
budget $(((whole >> 20) * 104 / 100)) # what the program itself takes is measured, and differs by some MiB from run to run
[ "$twice" = 0 ] || report "$twice blocks are computed twice"
budget $(((whole >> 20) * 85 / 100))
some=$twice
[ "$some" -ge 2 ] || report "$some blocks are computed twice"
budget $(((whole >> 20) * 70 / 100))
[ "$twice" -gt "$some" ] || report "$twice blocks are computed twice, and $some with more memory"
expect "the head of such a run" 0 "${short[@]}" "${tiny[@]}" --memory "$((whole * 85 / 100))" --out run --max-steps 1
err 'memory: [1-9][0-9]* of 12 blocks are computed twice'
expect "a run that has another budget when it goes on" 0 --resume run --max-steps 2 --recompute 3 --eval-samples 8
err 'memory: 3 of 12 blocks are computed twice'
expect "a budget that is too small" 2 "${short[@]}" "${tiny[@]}" --memory 100M --out small
err 'with all 12 blocks computed twice the run takes [0-9]* MiB'
[ ! -e small ] || report "it left a folder"
expect "a budget that K-means breaks" 2 "${short[@]}" "${tiny[@]}" --groups 8 --kmeans-samples 200000 --memory 500M --dry-run --out small
err 'kmeans-samples'
expect "two that choose the blocks" 2 "${tiny[@]}" --memory 1G --recompute 3
err 'cannot be combined with --recompute'
expect "blocks that are no number" 2 "${tiny[@]}" --recompute some
err "'some' is not accepted"
expect "a size that is none" 2 "${tiny[@]}" --memory much
err '\-\-memory'
exit $failed
