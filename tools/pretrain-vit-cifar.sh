#!/bin/bash
# Trains a plain vit-cifar (width 192) on CIFAR-100 from scratch: Muon, TrivialAugment, mixup and CutMix, label smoothing, stochastic depth, averaged
# weights, half of the patches dropped in the first 80% of the steps.
# 5,000 training images are held out: the log, metrics.csv and OUT_DIR/best go by these, and the test set is not read.
#   tools/pretrain-vit-cifar.sh DATA_DIR OUT_DIR [EPOCHS [OPTION...]]
# DATA_DIR holds cifar100/; 30 epochs unless given. Options go to astra-train as they are, and the last of two counts (--precision bf16,
# --drop-path 0.2, --optimizer adamw). Started again with the same OUT_DIR, it goes on where it was stopped, with the options that it was started with.
# BLOCKS sets the depth (6), SEED the seed (42), THREADS the threads (all cores), BUILD the build folder.
#
# OUT_DIR has the averaged weights of the last step, OUT_DIR/best those of the best evaluation, OUT_DIR/valid.json what the last ones reach on the
# held-out images through astra-infer. Once the recipe is chosen:  astra-infer eval -c OUT_DIR --dataset cifar100 --data-dir DATA_DIR --nodes 1
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: $0 DATA_DIR OUT_DIR [EPOCHS [OPTION...]]" >&2; exit 2; }
data=$(realpath "$1") out=$(realpath -m "$2") epochs=${3:-30}
[[ $epochs =~ ^[1-9][0-9]*$ ]] || { echo "$0: EPOCHS is '$epochs'; a whole number from 1 is accepted" >&2; exit 2; }
shift $(($# < 3 ? $# : 3))
cd "$(dirname "$0")/.."
bin=${BUILD:-build}/bin
held=5000 batch=256
steps=$((epochs * ((50000 - held) / batch)))

if [ ! -f "$out/valid.json" ]; then
  if [ -f "$out/training/state.safetensors" ]; then
    "$bin/astra-train" --resume "$out" --threads "${THREADS:-0}"
  else
    "$bin/astra-train" --model vit-cifar --blocks "${BLOCKS:-6}" --init mimetic --groups 0 --dataset cifar100 --data-dir "$data" \
      --validation-part "$held" --epochs "$epochs" --batch "$batch" --optimizer muon --learning-rate 2e-3 --weight-decay 0.1 \
      --warmup $((steps / 26)) --patch-drop 0.5 --augment trivial --mixup 0.2 --cutmix 1 --label-smoothing 0.1 --drop-path 0.05 \
      --ema-decay 0.998 --keep-best --eval-every 2 --log-every 50 \
      --threads "${THREADS:-0}" --seed "${SEED:-42}" --out "$out" --overwrite "$@"
  fi
  "$bin/astra-infer" eval --checkpoint "$out" --dataset cifar100 --data-dir "$data" --validation-part "$held" --nodes 1 --json |
    tail -n 1 >"$out/valid.json.part"
  mv "$out/valid.json.part" "$out/valid.json"
fi
sed -E 's/.*"samples":([0-9]+),"top1":([0-9.]+),"top5":([0-9.]+).*/\1 images held out: top-1 \2, top-5 \3/' "$out/valid.json"
