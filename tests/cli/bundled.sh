#!/bin/bash
# The bundled ASTRA checkpoints run at once, by their names, on as many nodes as they were trained for. limit: 90
# Usage: tests/cli/bundled.sh; programs in $BUILD/bin (build/bin).
. tests/cli/helpers.sh astra-infer
cd "$root" || exit 1

for model in vit-cifar-g8 gpt2-mini-g8; do
  name=$model
  [ "$(du -sk "checkpoints/$model" | cut -f 1)" -le 20000 ] || report "it takes more than 20 MB"
  expect "$model, self-test" 0 selftest -c $model; out "on 4 nodes"; out "^passed"
  for backend in auto openblas; do
    expect "$model, self-test in bf16, $backend" 0 selftest -c $model --precision bf16 --backend $backend; out "^passed"
  done
  run "$model, digests" 0 "$bin/astra-data" verify $model; out "model.safetensors: ok"
done

expect "images" 0 -c vit-cifar-g8 --json datasets/pictures/*.png
jq -e '(.nodes | length) == 4 and (.images | length) == 8 and .layout != null' "$work/out" >/dev/null || report "not four nodes and eight images"
# apple_0614.png is an apple: of eight images of the test set most are what their names say.
right=$(jq '[.images[] | (.file | split("/")[-1] | sub("_[0-9]*.png$"; "")) == .top[0].label | select(.)] | length' "$work/out")
[ "$right" -ge 5 ] || report "$right of 8 images are recognised"

# Its own number of groups, named, changes nothing: the codebooks keep their basis and predictions.
emulated() { run "evaluated${*:+ with $*}" 0 "$bin/astra-train" -m checkpoints/vit-cifar-g8 -d cifar100-sample --eval-only --eval-samples 100 -t 1 -q --json "$@"; }
emulated
accuracy=$(jq .accuracy "$work/out")
emulated --groups 8 --codebook-size 1024
holds "$(jq .accuracy "$work/out") == $accuracy && $accuracy > 0.5"

expect "a prompt" 0 -c gpt2-mini-g8 --prompt "The history of the city began" --max-new-tokens 8 --json
jq -e '(.nodes | length) == 4' "$work/out" >/dev/null || report "not four nodes"
[ $failed = 0 ] && echo "bundled checkpoints: ok"
exit $failed
