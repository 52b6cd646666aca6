#!/bin/bash
# The whole path in about a minute and a half: runs the bundled checkpoints that need no training, vit-cifar-g8 and gpt2-mini-g8, on four processes; then
# fine-tunes the bundled vit-cifar-45k for four devices on the bundled images, classifies eight images on four processes, and proves that the
# processes compute what training emulated; then the same with the bundled gpt2-mini, which goes on from the beginning of a sentence. `make demo` builds first and calls this.
#   tools/demo.sh [VIT [GPT2]]     start from these checkpoints (directories) instead of checkpoints/vit-cifar-45k and checkpoints/gpt2-mini
# BUILD names the build folder (build). The results lie in runs/demo and runs/demo-text; what an earlier demo left there is replaced. Needs
# no network.
set -Eeuo pipefail
pictures_from=${1:+$(realpath -m "$1")}
pictures_from=${pictures_from:-checkpoints/vit-cifar-45k}
text_from=${2:+$(realpath -m "$2")}
text_from=${text_from:-checkpoints/gpt2-mini}
cd "$(dirname "$0")/.."
build=$(realpath -m "${BUILD:-build}")
out=runs/demo
text_out=runs/demo-text
nodes=4

# Small numbers: this only shows the way; docs/results has what an hour of fine-tuning gives. On a busy or slow machine training is
# interrupted after seconds_most, as Ctrl-C would, and leaves its checkpoint all the same.
seconds_most=60
picture_training=(--model vit-cifar --init "$pictures_from" --dataset cifar100-sample --data-dir datasets
  --groups 8 --devices "$nodes" --max-steps 32 --batch 64 --learning-rate 2e-4 --warmup 8
  --kmeans-samples 8192 --kmeans-iterations 6 --log-every 8 --eval-every 1000 --out "$out" --overwrite)
text_training=(--model "$text_from" --dataset text:datasets/enwiki-sample --context 256
  --groups 8 --devices "$nodes" --max-steps 24 --batch 8 --learning-rate 3e-4 --warmup 4
  --kmeans-samples 8192 --kmeans-iterations 6 --eval-samples 16 --log-every 8 --eval-every 1000 --out "$text_out" --overwrite)
prompt="The history of the city began"

step="the preparation"
fail() { echo "demo: $*" >&2; exit 1; }
trap 'echo "demo: $step failed; the message above says why" >&2' ERR

heading() { # TEXT COMMAND...
  step=$1
  printf '\n==== %s\n' "$1"
  shift
  printf '$'
  printf ' %q' "$@"
  printf '\n\n'
}

run() { # TEXT PROGRAM ARGUMENTS...
  local text=$1 program=$2
  shift 2
  heading "$text" "$program" "$@"
  "$build/bin/$program" "$@"
}

train() { # TEXT OUT OPTIONS...
  local status=0 text=$1 made=$2
  shift 2
  heading "$text" astra-train "$@"
  timeout --foreground --signal=INT --kill-after=30 "$seconds_most" "$build/bin/astra-train" "$@" || status=$?
  if [ $status -eq 124 ] && [ -f "$made/training/state.safetensors" ]; then
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
[ -f "$pictures_from/model.safetensors" ] || fail "$pictures_from holds no model.safetensors: give a vit-cifar checkpoint as the argument"
[ -f "$text_from/model.safetensors" ] || fail "$text_from holds no model.safetensors: give a gpt2-mini checkpoint as the second argument"
pictures=(datasets/pictures/*.png)
[ -f "${pictures[0]}" ] || fail "there are no images in datasets/pictures"

began=$SECONDS
rm -rf "$out" "$text_out"
run "1. Ready to run: classify ${#pictures[@]} images on $nodes processes" astra-infer --nodes "$nodes" --checkpoint vit-cifar-g8 --top 1 "${pictures[@]}"
run "2. Ready to run: go on from \"$prompt\"" astra-infer --nodes "$nodes" --checkpoint gpt2-mini-g8 \
  --prompt "$prompt" --max-new-tokens 40 --echo --temperature 0.8 --top-k 40 --seed 1
train "3. Fine-tune for $nodes devices that exchange codes of 10 bits x 8 groups a token and block" "$out" "${picture_training[@]}"
run "4. Classify them with the new checkpoint" astra-infer --nodes "$nodes" --checkpoint "$out" "${pictures[@]}"
run "5. Prove that the processes compute what training emulated" astra-infer selftest --checkpoint "$out"
train "6. The same with a language model" "$text_out" "${text_training[@]}"
run "7. Go on from \"$prompt\" with it" astra-infer --nodes "$nodes" --checkpoint "$text_out" \
  --prompt "$prompt" --max-new-tokens 40 --echo --temperature 0.8 --top-k 40 --seed 1

step="the list of files"
list() { # FILE WHAT
  if [ -e "$1" ]; then printf '  %-58s %s\n' "$1" "$2"; fi
}
printf '\n==== Done in %d s. What it made\n\n' $((SECONDS - began))
list "$out/" "checkpoint: config.json, model.safetensors (weights, codebooks)"
list "$out/selftest.safetensors" "sample images with codes and logits of the emulated devices"
list "$out/curves.png" "loss, accuracy, codebook use over the steps"
list "$out/metrics.csv" "loss, accuracy, codebook use of each step, as numbers"
list "$text_out/" "checkpoint of the language model, with its tokenizer"
for events in "$out"/events.out.tfevents.*; do list "$events" "the same as metrics.csv, for TensorBoard"; done
list "$out/training/" "what astra-train --resume $out goes on from"
printf '\nNext: astra-train --resume %s --max-steps 400, or astra-infer --help. Programs are in %s/bin.\n' "$out" "${BUILD:-build}"
