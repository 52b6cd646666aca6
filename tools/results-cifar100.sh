#!/bin/bash
# Fine-tunes the bundled vit-cifar on the whole of CIFAR-100, plain and for four devices with 8, 32 and 1 groups, all equally long, and measures
# each on the 10,000 test pictures through real processes. What docs/results/cifar100.md reports.
#   tools/results-cifar100.sh DATA_DIR OUT_DIR [GROUPS...]
# DATA_DIR holds cifar100/; OUT_DIR gets a checkpoint for each run and stage. Started again, it goes on where it was stopped.
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: $0 DATA_DIR OUT_DIR [GROUPS...]" >&2; exit 2; }
data=$(realpath "$1") out=$(realpath -m "$2")
shift 2
cd "$(dirname "$0")/.."
bin=${BUILD:-build}/bin

common=(--dataset cifar100 --data-dir "$data" --devices 4 --epochs 2 --batch 128 --weight-decay 0.05 --label-smoothing 0.1 --log-every 50)

train() { # DIR OPTIONS...
  local run=$1
  shift
  if [ -f "$run/training/state.safetensors" ]; then
    "$bin/astra-train" --resume "$run"
  else
    "$bin/astra-train" "${common[@]}" "$@" --out "$run"
  fi
}

measure() { # DIR NODES
  "$bin/astra-infer" eval --checkpoint "$1" --dataset cifar100 --data-dir "$data" --nodes "$2" --json | tail -n 1 >"$1/eval.json"
}

for groups in "${@:-8 0 32 1}"; do
  for g in $groups; do
    run=$out/g$g nodes=4 noise=(--noise 0.3)
    [ "$g" -ne 0 ] || { nodes=1 noise=(--groups 0); }
    if [ ! -f "$run/eval.json" ]; then # first stage: full noise
      train "$run" --model vit-cifar --init checkpoints/vit-cifar --groups "$g" --learning-rate 3e-4 --warmup 50
      measure "$run" "$nodes"
    fi
    if [ ! -f "$run-2/eval.json" ]; then # second stage, from there: little noise
      train "$run-2" --model "$run" "${noise[@]}" --learning-rate 2e-4 --warmup 20
      measure "$run-2" "$nodes"
    fi
    for dir in "$run" "$run-2"; do printf '%s %s\n' "$(basename "$dir")" "$(cut -c 1-60 "$dir/eval.json")"; done
  done
done
