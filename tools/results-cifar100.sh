#!/bin/bash
# Fine-tunes the bundled vit-cifar on the whole of CIFAR-100 four times, equally long: plain, and for four devices with 8, 32 and 1 groups,
# and measures each on the 10,000 test pictures through real processes. What docs/results/cifar100.md reports.
#   tools/results-cifar100.sh DATA_DIR OUT_DIR     DATA_DIR holds cifar100/; OUT_DIR gets a checkpoint for each run. Run it again to go on.
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: $0 DATA_DIR OUT_DIR" >&2; exit 2; }
data=$(realpath "$1") out=$(realpath -m "$2")
cd "$(dirname "$0")/.."
bin=${BUILD:-build}/bin

training=(--model vit-cifar --init checkpoints/vit-cifar --dataset cifar100 --data-dir "$data" --devices 4
  --epochs 2 --batch 128 --learning-rate 3e-4 --warmup 50 --weight-decay 0.05 --label-smoothing 0.1 --log-every 50)

for groups in 8 0 32 1; do
  run=$out/g$groups nodes=4
  [ "$groups" -ne 0 ] || nodes=1
  [ -f "$run/done" ] && continue
  if [ -f "$run/training/state.safetensors" ]; then
    "$bin/astra-train" --resume "$run"
  else
    "$bin/astra-train" "${training[@]}" --groups "$groups" --out "$run"
  fi
  "$bin/astra-infer" eval --checkpoint "$run" --dataset cifar100 --data-dir "$data" --nodes "$nodes" --json | tail -n 1 >"$run/eval.json"
  touch "$run/done"
done
for groups in 0 8 32 1; do printf '%-3s %s\n' "$groups" "$(cat "$out/g$groups/eval.json")"; done
