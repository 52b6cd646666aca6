#!/bin/bash
# What --dry-run says that a run takes, beside the most that it took: a short training run of each preset, one after another. What
# docs/results/memory.md reports.
#   tools/results-memory.sh [PRESET...]        default: all but llama-3-8b; "vit-cifar@65536" is vit-cifar with --kmeans-samples 65536
# Weights are random, data the bundled samples, so that no network is needed; llama-mini reads with the tokenizer of tests/golden/stories260K.
# STEPS (3) training steps; ARGUMENTS are given to all runs (--threads 1). BUILD names the build folder. Prints a table; exits with 1 when a
# figure is off by more than 5%.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C # numbers with points
bin=$(realpath "${BUILD:-build}/bin")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
. tools/memory-helpers.sh

presets=("$@")
[ $# -gt 0 ] || presets=(vit-cifar vit-cifar@65536 vit-tiny vit-small vit-base gpt2-mini gpt2 gpt2-medium llama-mini)

# Batches that a machine of 16 GiB has room for, and few samples: what counts is what a run asks for, not what it learns.
options_of() { # PRESET
  case $1 in
  vit-cifar) echo "--batch 64 --groups 8" ;;
  vit-tiny | vit-small | vit-base) echo "--batch 8 --groups 32" ;;
  gpt2-mini | llama-mini) echo "--batch 8 --groups 8" ;;
  gpt2) echo "--batch 1 --context 256 --groups 32" ;;
  gpt2-medium) echo "--batch 1 --context 128 --groups 32" ;;
  *) echo "no such preset: $1" >&2; exit 2 ;;
  esac
}

data_of() { # PRESET
  case $1 in
  vit-*) echo "--dataset cifar100-sample --data-dir datasets" ;;
  llama-*) echo "--dataset text:datasets/enwiki-sample --tokenizer tests/golden/stories260K" ;;
  *) echo "--dataset text:datasets/enwiki-sample --tokenizer checkpoints/gpt2-mini" ;;
  esac
}

status=0
printf '| preset | options | printed MiB | used MiB | printed / used |\n|---|---|---|---|---|\n'
for preset in "${presets[@]}"; do
  model=${preset%@*} samples=1024
  [ "$model" = "$preset" ] || samples=${preset#*@}
  chosen=$(options_of "$model")
  read -ra options <<<"$chosen --kmeans-samples $samples"
  read -ra data <<<"$(data_of "$model")"
  compare_memory "$bin/astra-train" "$scratch" --model "$model" --init random "${data[@]}" "${options[@]}" --kmeans-iterations 1 \
    --max-steps "${STEPS:-3}" --eval-samples 8 ${ARGUMENTS:-} || status=1
  awk -v name="$model" -v options="${options[*]}" -v printed="$printed" -v used="$used" \
    'BEGIN { printf "| %s | `%s` | %.0f | %.0f | %.3f |\n", name, options, printed / 1048576, used / 1048576, printed / used }'
done
exit $status
