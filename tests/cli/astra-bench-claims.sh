#!/bin/bash
# astra-bench fpar and class-token from outside: tables, files and JSON of a bundled checkpoint, what is refused; and that a checkpoint whose
# tokens are quantised in another basis is evaluated in that one.
# Usage: tests/cli/astra-bench-claims.sh; programs in $BUILD/bin (build/bin).
. tests/cli/helpers.sh astra-bench
model=(--checkpoint "$root/checkpoints/vit-cifar-g8" --threads 1)
data=(--dataset cifar100-sample --data-dir "$root/datasets")

expect "help" 0 fpar --help; out "^usage: astra-bench fpar"; out "--concentration"; silent err
expect "help" 0 class-token --help; out "^usage: astra-bench class-token"; ! grep -q -e "--out" "$work/out" || report "an option of fpar alone"
expect "no checkpoint" 2 fpar "${data[@]}"; err "--checkpoint DIR is missing"
expect "no data set" 2 class-token "${model[@]}"; err "--dataset NAME is missing"
expect "one device" 2 fpar "${model[@]}" "${data[@]}" --nodes 1; err "a device alone"
expect "a plain model" 1 fpar --checkpoint "$root/checkpoints/vit-cifar" "${data[@]}"; err "a plain model"
expect "nothing there" 1 fpar --checkpoint ./none "${data[@]}"; err "none"
expect "too many devices" 1 class-token --checkpoint "$root/checkpoints/gpt2-mini-g8" --dataset "text:$root/datasets/enwiki-sample" --samples 1
err "no class token on each device"

expect "other classes" 2 fpar "${model[@]}" --dataset synthetic:32x32:4:64 --samples 16 --out none; err "vit-cifar-g8 has no classifier for the 4 classes"; silent out
[ ! -e none ] || report "it left something"
expect "class tokens of other images" 0 class-token "${model[@]}" --dataset synthetic:32x32:4:64 --samples 16 --nodes 2 --quiet

expect "fpar" 0 fpar "${model[@]}" "${data[@]}" --batch 4 --samples 80 --out shares --quiet
out "^80 images on 4 devices, 20 batches with shares of their own"; out "  all$"
[ "$(grep -c '^0\.[0-9]* to' "$work/out")" = 6 ] || report "not five bins and all"
[ "$(wc -l <shares/fpar.csv)" = 21 ] || report "not a line for each batch"
[ "$(head -c 4 shares/fpar.png | tail -c 3)" = PNG ] || report "no histogram"
expect "fpar as JSON" 0 fpar "${model[@]}" "${data[@]}" --batch 4 --samples 80 --json --quiet
jq -e '.schema == 1 and .batches == 20 and (.bins | length) == 5 and ([.bins[].samples] == [16, 16, 16, 16, 16]) and
  .bins[0].high <= .bins[1].low and .bins[0].low >= 0.25' <"$work/out" >/dev/null ||
  report "other bins"
holds "$(jq '([.bins[] | .accuracy * .samples] | add) / 80 - .accuracy | fabs' "$work/out") < 1e-9"
holds "$(awk -F, 'NR > 1 { n += $2; right += $4 } END { print right / n }' shares/fpar.csv) == $(jq .accuracy "$work/out")"
first=$(jq -c .bins "$work/out")
expect "class tokens alike" 0 fpar "${model[@]}" "${data[@]}" --batch 4 --samples 80 --class-mean-power 0 --json --quiet
[ "$(jq -c '[.bins[].low]' "$work/out")" = "$(jq -c '[.[].low]' <<<"$first")" ] || report "other shares with --class-mean-power"
[ "$(jq -c '[.bins[].loss]' "$work/out")" != "$(jq -c '[.[].loss]' <<<"$first")" ] || report "--class-mean-power makes no difference"
expect "class tokens by shares, as the checkpoint says" 0 fpar "${model[@]}" "${data[@]}" --batch 4 --samples 80 --class-mean-power 0.5 --json --quiet
[ "$(jq -c .bins "$work/out")" = "$first" ] || report "--class-mean-power 0.5 is not that of the checkpoint"
expect "twice" 0 fpar "${model[@]}" "${data[@]}" --batch 4 --samples 80 --draws 2 --json --quiet; jq -e '.batches == 40 and .samples == 160' <"$work/out" >/dev/null || report "not two passes"
expect "fewer batches than bins" 0 fpar "${model[@]}" "${data[@]}" --batch 4 --samples 8 --quiet
[ "$(grep -c '^-  *0  *-  *-$' "$work/out")" = 3 ] && [ "$(grep -c '^0\.[0-9]* to' "$work/out")" = 3 ] || report "bins without samples have numbers"
expect "the same as JSON" 0 fpar "${model[@]}" "${data[@]}" --batch 4 --samples 8 --json --quiet
jq -e '([.bins[].samples] == [4, 0, 4, 0, 0]) and .bins[1] == {"low": null, "high": null, "samples": 0, "accuracy": null, "loss": null} and .bins[2].accuracy != null' \
  <"$work/out" >/dev/null || report "bins without samples have numbers in JSON"
expect "another seed" 0 fpar "${model[@]}" "${data[@]}" --batch 4 --samples 80 --json --quiet --seed 43
[ "$(jq -c .bins "$work/out")" != "$first" ] || report "the same shares"

# Images that cannot be read, and batches of them alone, are left out.
head -c 100 "$root/datasets/pictures/apple_0614.png" >broken.png
{
  echo path,label,split
  jq -r '.id2label[]' "$root/checkpoints/vit-cifar-g8/config.json" | sed "s|.*|$root/datasets/pictures/apple_0614.png,&,train|"
  for image in "$root/datasets/pictures/apple_0614.png" broken.png broken.png "$root/datasets/pictures/apple_0614.png"; do echo "$image,apple,test"; done
} >list.csv
expect "images that cannot be read" 0 fpar "${model[@]}" --dataset csv:list.csv --batch 1 --draws 3 --json --quiet; json '"samples":6,"batches":6,'
expect "class tokens beside those" 0 class-token "${model[@]}" --dataset csv:list.csv --nodes 2 --json --quiet; beside=$(jq .devices[0].mean "$work/out")
grep -v broken list.csv >whole.csv
expect "class tokens without them" 0 class-token "${model[@]}" --dataset csv:whole.csv --nodes 2 --json --quiet
whole=$(jq .devices[0].mean "$work/out"); holds "$whole > 0 && $beside > 0.999 * $whole && $beside < 1.001 * $whole"
sed -i '/apple_0614.png,apple,test/d' list.csv
expect "not one of them" 1 fpar "${model[@]}" --dataset csv:list.csv --batch 1 --json --quiet; err "none of its images could be read"

run "a model with one class token" 0 "$bin/astra-train" --model "$root/checkpoints/vit-cifar" "${data[@]}" --groups 8 --codebook-size 16 --class-token single \
  --max-steps 1 --batch 8 --kmeans-samples 256 --kmeans-iterations 2 --eval-samples 10 --threads 1 --out single -q
expect "even shares beside one class token, which does not count" 0 fpar --checkpoint single --threads 1 "${data[@]}" --samples 8 --concentration 1e6 --json --quiet
holds "$(jq .fpar "$work/out") == 0.25"

expect "class tokens" 0 class-token "${model[@]}" "${data[@]}" --samples 32 --nodes 3 --quiet; out "^ *3 .* 0\.333 "
# The ratios are those of the bundled checkpoint, measured: a mean over fewer tokens, or errors against other ones, are further off.
expect "class tokens as JSON" 0 class-token "${model[@]}" "${data[@]}" --samples 32 --nodes 3 --json --quiet
jq -e '(.devices | length) == 2 and ([.devices[].nodes] == [2, 3]) and ([.devices[] | .mean < .one] | all) and
  (.devices[0].ratio - 0.342 | fabs) < 0.03 and (.devices[1].ratio - 0.337 | fabs) < 0.03 and
  (.devices[0].blocks | length) == 6 and .devices[0].blocks[0].one == 0' <"$work/out" >/dev/null || report "other errors"

# What training evaluated at its end, by other commands of the same checkpoint.
for kind in rotation prediction; do
  run "a model with --$kind" 0 "$bin/astra-train" --model "$root/checkpoints/vit-cifar" --dataset cifar100-sample --data-dir "$root/datasets" --groups 8 \
    --codebook-size 64 --$kind --max-steps 2 --batch 16 --kmeans-samples 1024 --kmeans-iterations 4 --eval-samples 100 --threads 1 --out "$kind" --json
  trained=$(jq .accuracy "$work/out")
  run "$kind evaluated again" 0 "$bin/astra-train" --model "$kind" --dataset cifar100-sample --data-dir "$root/datasets" --eval-only --eval-samples 100 --threads 1 --json
  holds "$(jq .accuracy "$work/out") == $trained"
  run "codebooks with --$kind" 0 "$bin/astra-kmeans" eval --codebooks "$kind" --dataset cifar100-sample --data-dir "$root/datasets" --eval-samples 50 --threads 1 --json -q
  holds "$(jq .mean.relative_distortion "$work/out") < 0.7"
done

[ $failed = 0 ] && echo "astra-bench fpar, class-token: measure and refuse"
exit $failed
