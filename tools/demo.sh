#!/bin/bash
# The whole path in about a minute: fine-tunes the bundled vit-cifar for four devices on the bundled pictures, classifies eight pictures on
# four processes, and proves that the processes compute what training emulated. `make demo` builds first and calls this.
#   tools/demo.sh [CHECKPOINT]     start from CHECKPOINT (a directory) instead of checkpoints/vit-cifar
# BUILD names the build folder (build). The result lies in runs/demo; what an earlier demo left there is replaced. Needs no network.
set -euo pipefail
cd "$(dirname "$0")/.."

build=$(realpath -m "${BUILD:-build}")
start=${1:-checkpoints/vit-cifar}
out=runs/demo
nodes=4

# Small numbers: an hour's fine-tuning is better (docs/results), this only shows the way.
training=(--model vit-cifar --init "$start" --dataset cifar100-sample --data-dir datasets
  --groups 8 --devices "$nodes" --max-steps 60 --batch 64 --learning-rate 2e-4 --warmup 10
  --kmeans-iterations 8 --log-every 10 --eval-every 1000 --out "$out")

step="the preparation"
fail() { echo "demo: $*" >&2; exit 1; }
trap 'echo "demo: $step failed; the message above says why" >&2' ERR

heading() { # TEXT COMMAND...
  step=$1
  printf '\n==== %s\n' "$1"
  shift
  printf '$ %s\n\n' "$*"
}

run() { # TEXT PROGRAM ARGUMENTS...
  local text=$1 program=$2
  shift 2
  heading "$text" "$program" "$@"
  "$build/bin/$program" "$@"
}

for program in astra-train astra-infer; do
  [ -x "$build/bin/$program" ] || fail "$build/bin/$program is not there; \`make demo\` builds it first"
done
[ -f "$start/model.safetensors" ] || fail "$start holds no model.safetensors: give a vit-cifar checkpoint as the argument"
pictures=(datasets/pictures/*.png)
[ -f "${pictures[0]}" ] || fail "there are no pictures in datasets/pictures"

began=$SECONDS
rm -rf "$out"
run "1. Fine-tune for $nodes devices that exchange codes of 10 bits x 8 groups a token and block" astra-train "${training[@]}"
run "2. Classify ${#pictures[@]} pictures on $nodes processes" astra-infer --nodes "$nodes" --checkpoint "$out" "${pictures[@]}"
run "3. Prove that the processes compute what training emulated" astra-infer selftest --checkpoint "$out"

step="the list of files"
events=("$out"/events.out.tfevents.*)
printf '\n==== Done in %d s. What it made\n\n' $((SECONDS - began))
printf '  %-60s %s\n' \
  "$out/" "checkpoint: config.json, model.safetensors (weights, codebooks)" \
  "$out/selftest.safetensors" "sample pictures with codes and logits of the emulated devices" \
  "$out/curves.png" "loss, accuracy, codebook use over the steps" \
  "$out/metrics.csv" "the same as numbers" \
  "${events[0]}" "the same for TensorBoard" \
  "$out/training/" "what astra-train --resume $out goes on from"
printf '\nNext: astra-train --resume %s --max-steps 400, or astra-infer --help. Programs are in %s/bin.\n' "$out" "${BUILD:-build}"
