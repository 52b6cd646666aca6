#!/bin/bash
# Fine-tunes gpt2-mini on English Wikipedia, plain and for four devices with 8 groups, both for 300 steps of 4,096 tokens, and measures
# each on the whole validation text through real processes. What docs/results/gpt2-mini.md reports.
#   tools/results-gpt2-mini.sh TEXT_DIR OUT_DIR [GROUPS...]
# TEXT_DIR holds train.txt or train.txt.gz, and valid.txt; OUT_DIR gets a checkpoint for each run. Started again, it goes on where it was
# stopped. INIT names the checkpoint that is fine-tuned (checkpoints/gpt2-mini), THREADS the threads of training (all cores), DTYPE the type of the exported weights (f32).
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: $0 TEXT_DIR OUT_DIR [GROUPS...]" >&2; exit 2; }
text=$(realpath "$1") out=$(realpath -m "$2") init=${INIT:+$(realpath "$INIT")}
shift 2
cd "$(dirname "$0")/.."
bin=${BUILD:-build}/bin
[ $# -gt 0 ] || set -- 0 8

for g in "$@"; do
  run=$out/g$g nodes=4 devices=(--devices 4)
  [ "$g" -ne 0 ] || nodes=1 devices=()
  if [ -f "$run/training/state.safetensors" ]; then
    "$bin/astra-train" --resume "$run"
  else
    "$bin/astra-train" --model "${init:-checkpoints/gpt2-mini}" --dataset "text:$text" --recipe paper --groups "$g" "${devices[@]}" --max-steps 300 --batch 8 \
      --learning-rate 1e-3 --warmup 50 --weight-decay 0.1 --beta2 0.99 --eval-samples 128 --checkpoint-every 100 \
      --dtype "${DTYPE:-f32}" --threads "${THREADS:-0}" --out "$run"
  fi
  "$bin/astra-infer" eval --checkpoint "$run" --dataset "text:$text" --nodes "$nodes" --json | tail -n 1 >"$run/eval.json"
  printf 'groups %s: %s\n' "$g" "$(cut -c 1-120 "$run/eval.json")"
done
