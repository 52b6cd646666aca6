#!/bin/bash
# The whole path in about a minute: fine-tunes the bundled vit-cifar for four devices on the bundled pictures, classifies eight pictures on
# four processes, and proves that the processes compute what training emulated. `make demo` builds first and calls this.
#   tools/demo.sh [CHECKPOINT]     start from CHECKPOINT (a directory) instead of checkpoints/vit-cifar
# BUILD names the build folder (build). The result lies in runs/demo; what an earlier demo left there is replaced. Needs no network.
set -Eeuo pipefail
start=${1:+$(realpath -m "$1")}
start=${start:-checkpoints/vit-cifar}
cd "$(dirname "$0")/.."
build=$(realpath -m "${BUILD:-build}")
out=runs/demo
nodes=4

# Small numbers: this only shows the way; docs/results has what an hour of fine-tuning gives. On a busy or slow machine training is
# interrupted after seconds_most, as Ctrl-C would, and leaves its checkpoint all the same.
seconds_most=75
training=(--model vit-cifar --init "$start" --dataset cifar100-sample --data-dir datasets
  --groups 8 --devices "$nodes" --max-steps 48 --batch 64 --learning-rate 2e-4 --warmup 8
  --kmeans-samples 8192 --kmeans-iterations 6 --log-every 8 --eval-every 1000 --out "$out")

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

train() { # TEXT
  local status=0
  heading "$1" astra-train "${training[@]}"
  timeout --foreground --signal=INT --kill-after=30 "$seconds_most" "$build/bin/astra-train" "${training[@]}" || status=$?
  if [ $status -eq 124 ] && [ -f "$out/training/state.safetensors" ]; then
    echo "demo: this machine is busy or slow: training was stopped after $seconds_most s, and what it has learnt is used"
  elif [ $status -eq 124 ]; then
    fail "training had not begun after $seconds_most s: this machine is too busy"
  elif [ $status -ne 0 ]; then
    fail "$step failed; the message above says why"
  fi
}

for program in astra-train astra-infer; do
  [ -x "$build/bin/$program" ] || fail "$build/bin/$program is not there; \`make demo\` builds it first"
done
[ -f "$start/model.safetensors" ] || fail "$start holds no model.safetensors: give a vit-cifar checkpoint as the argument"
pictures=(datasets/pictures/*.png)
[ -f "${pictures[0]}" ] || fail "there are no pictures in datasets/pictures"

began=$SECONDS
rm -rf "$out"
train "1. Fine-tune for $nodes devices that exchange codes of 10 bits x 8 groups a token and block"
run "2. Classify ${#pictures[@]} pictures on $nodes processes" astra-infer --nodes "$nodes" --checkpoint "$out" "${pictures[@]}"
run "3. Prove that the processes compute what training emulated" astra-infer selftest --checkpoint "$out"

step="the list of files"
list() { # FILE WHAT
  if [ -e "$1" ]; then printf '  %-58s %s\n' "$1" "$2"; fi
}
printf '\n==== Done in %d s. What it made\n\n' $((SECONDS - began))
list "$out/" "checkpoint: config.json, model.safetensors (weights, codebooks)"
list "$out/selftest.safetensors" "sample pictures with codes and logits of the emulated devices"
list "$out/curves.png" "loss, accuracy, codebook use over the steps"
list "$out/metrics.csv" "the same as numbers"
for events in "$out"/events.out.tfevents.*; do list "$events" "the same for TensorBoard"; done
list "$out/training/" "what astra-train --resume $out goes on from"
printf '\nNext: astra-train --resume %s --max-steps 400, or astra-infer --help. Programs are in %s/bin.\n' "$out" "${BUILD:-build}"
