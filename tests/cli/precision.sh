#!/bin/bash
# bf16 in training and on nodes: nodes agree with the emulation, loss curves with fp32, a resumed run with one that was not interrupted;
# the matrix library by name. limit: 120
# Usage: tests/cli/precision.sh; programs in $BUILD/bin (build/bin).
. tests/cli/helpers.sh astra-infer
cd "$root" || exit 1

for model in vit-cifar-g8 gpt2-mini-g8; do
  expect "$model, nodes in bf16" 0 selftest -c $model --precision bf16; out "wrong  *0$"; out "^passed"
  expect "$model, openblas" 0 selftest -c $model --precision bf16 --backend openblas; out "wrong  *0$"; out "^passed"
done
expect "one image" 0 -c vit-cifar-g8 --json datasets/pictures/apple_0614.png
cp "$work/out" "$work/fp32.json"
expect "one image in bf16" 0 -c vit-cifar-g8 --json --precision bf16 datasets/pictures/apple_0614.png
jq -es '(.[0].images[0].top[0].label == .[1].images[0].top[0].label) and (.[0].images[0].top[0] != .[1].images[0].top[0])' \
  "$work/fp32.json" "$work/out" >/dev/null || report "not the same class with another probability"
expect "another precision" 2 -c vit-cifar-g8 --precision fp16 datasets/pictures/apple_0614.png; err "fp32|bf16|auto"
export ASTRA_BACKEND=mkl
expect "another library by the environment" 2 -c vit-cifar-g8 datasets/pictures/apple_0614.png; err "environment variable ASTRA_BACKEND: \"mkl\" is none of auto, openblas"
expect "which --backend comes before" 0 -c vit-cifar-g8 --backend openblas datasets/pictures/apple_0614.png
export ASTRA_BACKEND=openblas
expect "one that there is" 0 -c vit-cifar-g8 datasets/pictures/apple_0614.png
export ASTRA_BACKEND="" ASTRA_KERNELS=""
expect "empty variables, as where none are set" 0 -c vit-cifar-g8 datasets/pictures/apple_0614.png
unset ASTRA_BACKEND ASTRA_KERNELS
expect "another library" 2 -c vit-cifar-g8 --backend mkl datasets/pictures/apple_0614.png; err "auto, openblas, onednn and onednn-int8"

# int8 weights through oneDNN, on nodes that pack them: the same bits as through our own kernels.
int8=(-c vit-cifar-g8 --json --weights int8 --precision bf16 datasets/pictures/apple_0614.png)
expect "one image with weights in int8" 0 "${int8[@]}"
jq -c .images "$work/out" >"$work/int8.json"
name="the same through oneDNN"
if "$program" "${int8[@]}" --backend onednn-int8 >"$work/out" 2>"$work/err"; then
  jq -c .images "$work/out" | cmp -s - "$work/int8.json" || report "other bits"
else
  err "onednn-int8 needs a processor\|oneDNN"
fi

# 24 steps of a small model with codebooks, in one go and in two.
train() { # OUT OPTION...
  local folder=$1
  shift
  "$bin/astra-train" --model vit-cifar --blocks 2 --dataset synthetic:32x32:10:512 --groups 4 --codebook-size 32 --devices 2 \
    --batch 16 --max-steps 24 --log-every 1 --init random --ema-decay 0.9 --eval-samples 64 --threads 2 --out "$work/$folder" "$@" >"$work/$folder.log" 2>&1
}
loss() { awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "loss") at = i } NR > 1 && $at != "" { print $at }' "$work/$1/metrics.csv"; } # FOLDER
name="training"
train fp32 || report "fp32 failed"
train bf16 --precision bf16 || report "bf16 failed"
for try in 1 2 3 4 5; do # a machine that stalls may let a run end before it is interrupted
  rm -rf "$work/again"
  train again --precision bf16 --overwrite &
  started=$!
  for ((i = 0; i < 300; i++)); do
    [ "$(wc -l 2>/dev/null <"$work/again/metrics.csv")" -ge 6 ] 2>/dev/null && break
    sleep 0.05
  done
  pkill -INT -P $started
  wait $started
  grep -q "interrupted after step" "$work/again.log" && break
done
grep -q "interrupted after step" "$work/again.log" || report "in $try tries no run was interrupted before its end"
run "resume" 0 "$bin/astra-train" --resume "$work/again"
name="loss curves"
[ "$(loss fp32 | wc -l)" -ge 24 ] || report "no 24 losses"
paste <(loss fp32) <(loss bf16) | awk '{ d = ($2 - $1) / $1; if (d < 0) d = -d; if (d > most) most = d; other += $1 != $2 } END { exit !(most < 0.02 && other > 12) }' ||
  report "bf16's losses are not fp32's but for roundings"
name="resumed"
cmp -s "$work/bf16/model.safetensors" "$work/again/model.safetensors" || report "a run that was interrupted ends with other bits"
[ $failed = 0 ] && echo "precision: ok"
exit $failed
