#!/bin/bash
# What codes take when they are chosen by their bits, too, and coded: the bundled gpt2-mini-g8 on Wikipedia and vit-cifar-g8 on CIFAR-100, four
# devices. What docs/results/entropy.md reports of weights.
#   tools/results-entropy.sh DATA_DIR OUT.csv
# DATA_DIR holds cifar100/ and enwiki/ (train.txt.gz, valid.txt). A weight of which OUT.csv has a row is passed over.
# MODELS (gpt2-mini-g8 vit-cifar-g8), WEIGHTS of all (text: 0 0.02 0.04 0.06 0.08; images: 0 0.02 0.03 0.05 0.08), THREADS (all cores).
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: $0 DATA_DIR OUT.csv" >&2; exit 2; }
export LC_ALL=C # numbers with points
data=$(realpath "$1") csv=$(realpath -m "$2")
cd "$(dirname "$0")/.."
make -s programs # so that they are those of the commit that is noted
bin=$(realpath "${BUILD:-build}")/bin
commit=$(git describe --always --dirty --exclude='*' --abbrev=8)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

measure() { # MODEL WEIGHT: copies the model, counts its codes as the weight chooses them, evaluates it
  local count evaluate
  case $1 in
    gpt2-mini-g8) count=(--dataset "text:$data/enwiki" --eval-samples 200) evaluate=(--dataset "text:$data/enwiki/valid.txt" --samples 64) ;;
    vit-cifar-g8) count=(--dataset cifar100 --data-dir "$data" --eval-samples 1000) evaluate=(--dataset cifar100 --data-dir "$data" --batch 64) ;;
    *) echo "$0: MODELS: $1 is none of gpt2-mini-g8, vit-cifar-g8" >&2; exit 2 ;;
  esac
  rm -rf "$work/model"
  cp -r "checkpoints/$1" "$work/model"
  "$bin/astra-kmeans" frequencies --checkpoint "$work/model" "${count[@]}" --entropy-weight "$2" --threads "${THREADS:-0}" --quiet >"$work/counted"
  "$bin/astra-infer" eval --checkpoint "$work/model" "${evaluate[@]}" --nodes 4 --entropy on --json --quiet >"$work/result"
  jq -r --arg model "$1" --arg weight "$2" --arg commit "$commit" '[$model, $weight, .samples // .windows,
    .packed_bits_per_token_block_receiver, .coded_bits_per_token_block_receiver, .top1, .tempered_loss, .perplexity, $commit] | @csv' "$work/result" >>"$csv"
}

[ -s "$csv" ] || echo model,weight,samples,packed_bits,coded_bits,top1,tempered_loss,perplexity,commit >"$csv"
for model in ${MODELS:-gpt2-mini-g8 vit-cifar-g8}; do
  [ "$model" = vit-cifar-g8 ] && weights=${WEIGHTS:-0 0.02 0.03 0.05 0.08} || weights=${WEIGHTS:-0 0.02 0.04 0.06 0.08}
  for weight in $weights; do
    grep -q "^\"$model\",\"$weight\"," "$csv" || measure "$model" "$weight"
  done
done
