#!/bin/bash
# Fine-tunes the bundled vit-cifar on the whole of CIFAR-100, plain and for four devices with 8, 32 and 1 groups, all equally long, and measures
# each on the 10,000 test pictures through real processes. What docs/results/cifar100.md reports.
#   tools/results-cifar100.sh DATA_DIR OUT_DIR [GROUPS...]
# DATA_DIR holds cifar100/; OUT_DIR gets a checkpoint for each run. Started again, it goes on where it was stopped. THREADS sets the threads of
# training (default: all cores), SEED another seed than 42: of it the checkpoints are named gGROUPS-sSEED; DTYPE=f16 halves their size.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: $0 DATA_DIR OUT_DIR [GROUPS...]" >&2; exit 2; }
data=$(realpath "$1") out=$(realpath -m "$2")
shift 2
cd "$(dirname "$0")/.."
bin=${BUILD:-build}/bin
[ $# -gt 0 ] || set -- 8 0 32 1

for g in "$@"; do
  run=$out/g$g${SEED:+-s$SEED} nodes=4
  [ "$g" -ne 0 ] || nodes=1
  if [ -f "$run/training/state.safetensors" ]; then
    "$bin/astra-train" --resume "$run"
  else
    "$bin/astra-train" --model vit-cifar --init checkpoints/vit-cifar --dataset cifar100 --data-dir "$data" --recipe paper --groups "$g" --devices 4 \
      --epochs 2 --batch 128 --learning-rate 1e-3 --warmup 50 --weight-decay 0.05 --label-smoothing 0.1 --mixup 0.2 --crop-min 0.5 \
      --kmeans-samples 65536 --log-every 50 --dtype "${DTYPE:-f32}" --threads "${THREADS:-0}" --seed "${SEED:-42}" --out "$run"
  fi
  "$bin/astra-infer" eval --checkpoint "$run" --dataset cifar100 --data-dir "$data" --nodes "$nodes" --json | tail -n 1 >"$run/eval.json"
  printf 'groups %s: %s\n' "$g" "$(cut -c 1-80 "$run/eval.json")"
done
