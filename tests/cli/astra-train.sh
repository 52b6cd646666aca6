#!/bin/bash
# astra-train from outside: exit codes, the lines people rely on, what a run leaves behind, what a failed one leaves alone, and runs that
# are interrupted at a random moment and go on bit for bit.  limit: 240
# Usage: tests/cli/astra-train.sh, from the repository root; needs no network. SEED=N repeats the random moments.
. tests/cli/helpers.sh astra-train
running=
trap '[ -z "$running" ] || kill -KILL "$running" 2>/dev/null; rm -rf "$work"' EXIT
seed=${SEED:-$((10#$(date +%N) % 32768))}
RANDOM=$seed
last() { tail -n 1 "$work/out" | grep -qE "$1" || report "the last line is not like '$1'"; }
there() { [ -s "$1" ] || report "there is no $1"; }
is_png() { [ "$(head -c 4 "$1" 2>/dev/null | tail -c 3)" = PNG ] || report "$1 is no PNG"; }
same() { cmp -s "$1" "$2" || report "$1 and $2 differ"; }
no_leftovers() { [ -z "$(find "$1" -name '*.tmp-*')" ] || report "unfinished files are left: $(find "$1" -name '*.tmp-*')"; }

# A vision transformer of 16 tokens that takes a few milliseconds a step.
mkdir tiny
cat >tiny/config.json <<'END'
{"model_type": "vit", "hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 96,
 "image_size": 32, "patch_size": 8, "num_labels": 100}
END
data=(--dataset cifar100-sample --data-dir "$root/datasets" --eval-samples 20 --kmeans-samples 256 --threads 1 --batch 8)
tiny=(--model tiny --init random "${data[@]}" --codebook-size 16)

# ---- the command line

expect "help" 0 --help; silent err; out "^usage: astra-train"
[ "$(tail -n 1 "$work/out")" = "More options: man astra-train" ] || report "it does not say where options are that it leaves out"
for group in "Model and data" "ASTRA" "Training" "Evaluation and output"; do out "^$group"; done
out "passes over the data; 0: 32 for images, 1 for text, 3 for labelled texts"; out "0: 64 images, 8 windows, 16 labelled texts"; out "auto: a tenth of the run, at most 100 (default auto)"
for option in model dataset groups init resume dry-run json devices codebook-size; do out "--$option"; done
[ "$(wc -l <"$work/out")" -le 102 ] || report "--help is $(wc -l <"$work/out") lines long"
[ "$(awk 'length > 132' "$work/out" | wc -l)" = 0 ] || report "--help has lines of more than 132 characters"
expect "an end of options" 0 "${tiny[@]}" --groups 0 --max-steps 1 --out ended -q --; expect "behind which it goes on" 0 --resume ended --max-steps 2 -q
expect "a plan of what a run refuses" 2 "${tiny[@]}" --optimizer muon --optimizer-bits 8 --dry-run; err "muon keeps its momentum in 32 bits"
expect "a teacher in an evaluation" 0 --model ended "${data[@]}" --eval-only --teacher ended
expect "a line feed" 2 "${tiny[@]}" --out $'a\nb'; err "argument [0-9]* holds a line feed"
expect "version" 0 --version; out "^astra-train [0-9]*\.[0-9]*\.[0-9]*$"

expect "nothing" 2; err "--model is missing"; err "vit-base, vit-small, vit-tiny, vit-cifar"; err "--help"; silent out
expect "nearly an option" 2 --modle tiny; err "unknown option --modle; did you mean --model?"
expect "a longer name" 2 --batch-size 4; err "unknown option --batch-size; did you mean --batch?"
expect "the end of a name" 2 --steps 4; err "unknown option --steps; did you mean --max-steps?"
expect "no option at all" 2 --zzz; err "unknown option --zzz"
expect "stray argument" 2 photo.png --model tiny; err 'unexpected argument "photo.png"'
expect "no number" 2 "${tiny[@]}" --learning-rate fast; err "--learning-rate: 'fast'"; err "from 0 to 100"
for given in "--devices 2" "--map dirichlet" "--noise 0.5" "--noise-warmup 9" "--noise-covariance joint" "--class-token single" "--class-bias -1" "--class-mean-power 2" "--vq-gradient none"; do
  # shellcheck disable=SC2086
  expect "what a plain model has no use for: $given" 2 "${tiny[@]}" --groups 0 $given; err "error: ${given% *} is for models with codes: give --groups$"
done
expect "the covariance of no noise" 2 "${tiny[@]}" --groups 4 --noise 0 --noise-covariance joint; err "--noise-covariance is of the noise, whose scale is 0: give --noise"
for given in "--kmeans-tolerance 0.1" "--kmeans-restarts 3" "--kmeans-start random" "--kmeans-minibatch 9"; do
  # shellcheck disable=SC2086
  expect "K-means of nothing: $given" 2 "${tiny[@]}" --groups 4 --codebooks nowhere $given; err "error: ${given% *} cannot be combined with --codebooks, which takes the place of K-means$"
done
expect "one codeword" 2 "${tiny[@]}" --codebook-size 1; err "from 2 to 65536"
expect "a memory of bytes" 2 "${tiny[@]}" --memory 4; err "error: --memory: 4 bytes are too few; give the unit, too, and at least 1M, as in 4G$"
expect "unknown choice" 2 "${tiny[@]}" --map anyhow; err "--map"; err "even"; err "dirichlet"
expect "range upside down" 2 "${tiny[@]}" --devices 5-3; err "5-3"
expect "the name of an installed checkpoint" 0 --model vit-cifar-g8 --dataset cifar100-sample --out named --dry-run; err 'weights from .*checkpoints/vit-cifar-g8'; err "astra: 8 groups of 1024"; rm -r named
expect "unknown model" 2 --model vit-huge --init random "${data[@]}"; err "'vit-huge'"; err "vit-base"; err "by its directory or GGUF file, or the name of an installed one"
expect "unknown data set" 2 --model tiny --init random --dataset mnist; err '"mnist"'; err "cifar100"; err "folder:DIR"; ! grep -q "Did you mean" err || report "a guess"

mkdir -p clothes/hat clothes/shoe articles "$ASTRA_HOME/datasets/own/train/dog"; touch clothes/hat/1.jpg clothes/shoe/1.PNG articles/wiki.valid.tokens rows.csv "$ASTRA_HOME/datasets/own/train/dog/1.png"
# meant NAME SUGGESTION
meant() { expect "the data set $1" "${3:-2}" --model tiny --init random --dataset "$1"; err "Did you mean $2?"; }
meant clothes folder:clothes; meant ./clothes folder:./clothes; meant text:clothes folder:clothes 2; meant articles text:articles
meant folder:articles text:articles 1; meant rows.csv csv:rows.csv; meant own "folder:$ASTRA_HOME/datasets/own"; meant folder:own "folder:$ASTRA_HOME/datasets/own" 1
meant CIFAR-100 cifar100; meant wikitext-2 text:wikitext-2; err "astra-data get wikitext-2"; meant folder:wikitext2 text:wikitext-2 1
texts=(--model gpt2-mini --init random)
expect "images for texts" 2 "${texts[@]}" --dataset cifar100-sample; err "learns from texts; --dataset cifar100-sample holds images.$"
expect "images in a folder for texts" 2 "${texts[@]}" --dataset folder:clothes; err "holds images.$"
expect "texts behind the prefix of images" 2 "${texts[@]}" --dataset folder:articles; err "Did you mean text:articles?$"
expect "texts for images" 2 --model tiny --init random --dataset text:articles; err "holds texts.$"
cp -r clothes mine; touch mine/words.txt
among() { err "out $1 lies in the data set's folder $2, whose files it would join; give one outside$"; } # OUT FOLDER
for place in mine mine/run mine//new/run/ "$work/mine/run" clothes/../mine/run; do
  expect "--out $place among the images" 2 --model tiny --init random --dataset folder:mine --out "$place"; among "$place" mine
done
for set in text:mine text-lines:mine text:rows.csv,mine; do expect "--out among $set" 2 --model tiny --init random --dataset $set --out mine/run; among mine/run mine; done
expect "--out among texts to evaluate on" 2 --model tiny --init random --dataset text:rows.csv --eval-dataset text:mine --out mine/run; among mine/run mine
cd mine || exit 1
for look in "" --dry-run; do expect "the usual --out among the images $look" 2 --model ../tiny --init random --dataset folder:. $look; among 'runs/[^ ]*' .; done
cd "$work" || exit 1
for out in mine-too mine/../beside; do expect "--out $out beside the images" 1 --model tiny --init random --dataset folder:mine --out $out; ! grep -q "lies in" err || report "it is refused"; done
expect "an evaluation writes nothing" 1 --model tiny --init random --dataset folder:mine --out mine --eval-only; ! grep -q "lies in" err || report "it is refused"
rm -r clothes mine articles rows.csv "$ASTRA_HOME"
expect "an example of what is installed" 2; err "For example: astra-train --model vit-cifar --dataset cifar100-sample --groups 8$"

expect "G does not divide D" 2 "${tiny[@]}" --groups 5; err "--groups 5 does not divide the model's width 48"
expect "N larger than T" 2 "${tiny[@]}" --groups 4 --devices 17; err "--devices 17"; err "16 tokens"
expect "N up to more than T" 2 "${tiny[@]}" --groups 4 --devices 2-17; err "--devices 17"
expect "K larger than the samples" 2 "${tiny[@]}" --groups 4 --codebook-size 512; err "--codebook-size 512"; err "256 sample"
expect "no multiple of the patch" 2 "${tiny[@]}" --image-size 33; err "--image-size 33"; err "8"
expect "fixed map without counts" 2 "${tiny[@]}" --groups 4 --map fixed; err "--counts"
expect "unknown layout" 2 "${tiny[@]}" --groups 4 --layout diagonal; err "--layout diagonal: accepted are raster, strided, checkerboard or random:SEED"
expect "unknown evaluation layout" 2 "${tiny[@]}" --groups 4 --eval-layout permuted; err "--eval-layout permuted: accepted are raster"
expect "layout of a plain model" 2 "${tiny[@]}" --groups 0 --eval-layout raster; err "--eval-layout raster: a plain model"
expect "layout of a text" 2 --model gpt2-mini --init random --dataset text:nowhere --groups 4 --layout raster; err "--layout raster: a layout is for tokens of images"
expect "counts without a fixed map" 2 "${tiny[@]}" --groups 4 --counts 4,4,4,4; err "--map fixed"
expect "fixed map of a range" 2 "${tiny[@]}" --groups 4 --map fixed --counts 8,8 --devices 1-2; err "--devices"
for counts in 4,4,4 4,4,4,4,4 0,4,4,8 -4,8,8,4 a,b,c,d 4,4,4,4x 99999999999999999999,1,1,1; do
  expect "counts '$counts'" 2 "${tiny[@]}" --groups 4 --map fixed --counts "$counts"; err "--counts $counts"
done
expect "counts of another sum" 2 "${tiny[@]}" --groups 4 --map fixed --counts 4,4,4,5; err "--counts 4,4,4,5"; err "16 tokens"
expect "patch drop with ASTRA" 2 "${tiny[@]}" --groups 4 --patch-drop 0.5; err "--patch-drop"

for loss in 1 -0.1 x 0.1,span 0.1,span:0.5 0.1,burst:3; do
  expect "token loss of '$loss'" 2 "${tiny[@]}" --groups 4 --token-loss "$loss"; err "--token-loss \"$loss\""
done
expect "token loss of a plain model" 2 "${tiny[@]}" --groups 0 --token-loss 0.1; err "--token-loss"; err "plain model"
expect "codebooks of a plain model" 2 "${tiny[@]}" --groups 0 --codebooks nowhere; err "--codebooks is for tokens that are quantised: it needs --groups"
expect "too many threads" 2 "${tiny[@]}" --threads 257; err "from 0 to 256"
expect "targets of no adapters" 2 "${tiny[@]}" --lora-targets query; err "--lora-targets is for --lora RANK"
expect "targets that there are not" 2 --model vit-cifar "${data[@]}" --groups 0 --lora 2 --lora-targets query,values,mlp --dry-run; err "--lora 2 --lora-targets query,values,mlp: 'values' has no matrices to adapt"
expect "nothing is chosen for data that there are not" 0 --model gpt2-mini --init random --groups 8 --dry-run; ! grep -q "defaults:" err || report "defaults for no data"
expect "Muon of adapters" 2 "${tiny[@]}" --lora 2 --optimizer muon --dry-run; err "adapters are AdamW's: leave --optimizer muon out"
expect "Muon of divided states" 2 "${tiny[@]}" --optimizer muon --shard-optimizer --dry-run; err "muon needs whole matrices: leave --shard-optimizer out"
expect "adapters of untrained weights" 2 "${tiny[@]}" --lora 2 --init random --dry-run; err "--init random has none that are trained"
expect "a hidden-state loss without a teacher" 2 "${tiny[@]}" --groups 4 --init random --distill-hidden 1 --dry-run; err "--distill-hidden needs a teacher"
expect "scale of no adapters" 2 "${tiny[@]}" --lora-alpha 8; err "--lora-alpha is for --lora RANK"
expect "crops without augmentation" 2 "${tiny[@]}" --no-augment --crop-min 0.5; err "--crop-min is for --augment"
for mixing in mixup cutmix; do # of an image with itself
  expect "--$mixing of one image" 2 "${tiny[@]}" --$mixing 1 --batch 1; err "--$mixing 1 mixes pairs of images of a batch, and a batch has 1 image: give --batch 2 or more, or --mixup 0 --cutmix 0"
done
expect "no mixing of one image" 0 "${tiny[@]}" --mixup 0 --cutmix 0 --batch 1 --dry-run --out unmixed
expect "token loss in evaluation" 2 "${tiny[@]}" --groups 4 --eval-token-loss 1; err "--eval-token-loss"

if [ ! -e "$root/checkpoints/vit-base" ] && [ ! -e "$root/datasets/vit-base" ]; then
  expect "no pretrained weights" 1 --model vit-base "${data[@]}"
  err "$ASTRA_HOME/checkpoints/vit-base"; err "astra-data get vit-base"; err "--init random"; silent out
fi
if [ ! -e "$root/datasets/cifar100" ]; then
  expect "no data" 1 --model tiny --init random --dataset cifar100; err "CIFAR-100 is not installed: .astra-data get cifar100. downloads it"; err "--data-dir"
  [ "$(wc -l <err)" = 1 ] && ! grep -q "$ASTRA_HOME" err || report "it lists places"
  expect "no data, and where" 1 --model tiny --init random --dataset cifar100 --verbose; err "looked for train.bin in $ASTRA_HOME/datasets/cifar100"
fi
expect "a model without weights" 1 --model tiny "${data[@]}"; err "model.safetensors"
expect "weights that are not there" 1 --model tiny "${data[@]}" --init none; err "none"
mkdir hollow
jq '.num_hidden_layers = 6' tiny/config.json >hollow/config.json
for init in nowhere minetic /etc/passwd hollow vit-cifar; do # without weights, and of another width
  expect "a plan with the weights of $init" 1 --model hollow "${data[@]}" --init $init --groups 0 --dry-run --out planned; err "error: .*$init"; silent out
done
err "has shape \[.*192.*\] where the model has \[.*48.*\]"
expect "a plan of a checkpoint without weights" 1 --model hollow "${data[@]}" --groups 0 --dry-run --out planned; err "error: hollow holds no model.safetensors"; silent out
expect "a plan with codebooks that are not there" 1 "${tiny[@]}" --groups 4 --codebooks nosuch --dry-run --out planned; err "error: nosuch: no such checkpoint"; silent out
expect "a plan with codebooks of another model" 2 "${tiny[@]}" --groups 8 --codebooks vit-cifar-g8 --dry-run --out planned; err "the codebooks of .*vit-cifar-g8 are of a model of 6 blocks, and this one has 2"; silent out
fine=(--model vit-cifar --init vit-cifar-g8 "${data[@]}" --groups 8)
expect "a plan with an installed checkpoint's weights" 0 "${fine[@]}" --dry-run --out planned; err "weights from .*checkpoints/vit-cifar-g8$"
expect "and its codebooks" 0 --model vit-cifar-g8 "${data[@]}" --codebooks vit-cifar-g8 --dry-run --out planned
expect "a run with its weights" 0 "${fine[@]}" --groups 0 --max-steps 1 --out planned --overwrite -q
rm -r hollow planned
[ -z "$(ls -A runs 2>/dev/null)" ] || report "a refused command line made $(ls runs)"

# ---- looking ahead

expect "dry run" 0 "${tiny[@]}" --groups 8 --dry-run --out dry
for line in "^parameters .*0.0[0-9] M$" "^  weights " "^  gradients " "^  optimizer moments " "^  activations" "^  self-test at each checkpoint (reuses that memory) " "^  total " "^memory of K-means" "^  peak of the run  *[1-9]" "GFLOP per image" \
  "^time (an estimate: " "^  a training step  *[0-9.]*s$" "^  the run " \
  "^  bits per token  *64$" "^  compression against 32-bit numbers (the paper's)  *48.0$"; do out "$line"; done
is_png dry/first_batch.png
touch blocked
expect "dry run where nothing can be written" 0 "${tiny[@]}" --groups 8 --dry-run --out blocked/dry; out "^parameters "; out "^time (an estimate: "
err "warning: the first batch is not drawn: .*blocked"; ! grep -q first_batch out || report "it names a file that is not there"
expect "and as JSON" 0 "${tiny[@]}" --groups 8 --dry-run --out blocked/dry --json; [ "$(tail -n 1 out | jq 'has("sheet"), has("parameters")' | tr '\n' ' ')" = "false true " ] || report "not a plan without a sheet"
[ ! -e dry/model.safetensors ] || report "a dry run trained"
expect "dry run of the paper's ratio" 0 --model vit-cifar --init random "${data[@]}" --groups 8 --dry-run --json --out dry2
last '^\{"schema":1,"parameters":27[0-9]{5},.*"data_bytes":[0-9]+,"selftest_bytes":[1-9][0-9]+,"program_bytes":[1-9].*"kmeans_bytes":[1-9].*,"total_bytes":.*"exchange_blocks":6,"bits_per_token":480,"compression":76\.8,"compression_16bit":38\.4,"paper_number_bits":32,"run":\{"steps":8000,"epoch_steps":250,"batch":8,"learning_rate":0\.001,"warmup":100,"eval_every":2,"chosen":"[^"]*"\},"seconds":\{"gflop_per_second":[1-9][^}]*"run":[1-9][^}]*"evaluations":16\},"sheet":"dry2/first_batch.png"\}$'
! grep -qE '"(parameters|trainable|[a-z_]*(_bytes|_blocks|_bits|_per_token))":[0-9]*[.e]' out || report "a count is written as a real number"
is_png dry2/first_batch.png

# ---- defaults that follow from the data

little=(--model tiny --init random --groups 0 --threads 1 --dataset synthetic:32x32:4:60 -q)
expect "little data" 0 "${little[@]}" --dry-run --out dry
out "^406 steps, 7 per epoch: batch 8, learning rate 0.001 after a warm-up of 40 steps, evaluation every 3 epochs$"
out "chosen for the data: batch 8 for 60 images, 58 epochs to have enough steps, learning rate 0.001 (from scratch), warm-up of 40 of 406 steps, evaluation every 3 epochs$"
expect "much data" 0 "${little[@]}" --dataset synthetic:32x32:4:60000 --dry-run --out dry
out "^29984 steps, 937 per epoch: batch 64, learning rate 0.001 after a warm-up of 100 steps, evaluation every 2 epochs$"
given=(--batch 16 --epochs 5 -l 1e-4 --warmup 3 --eval-every 1)
expect "what is given is taken" 0 "${little[@]}" "${given[@]}" --dry-run --out dry
out "^15 steps, 3 per epoch: batch 16, learning rate 0.0001 after a warm-up of 3 steps, evaluation every 1 epoch$"
! grep -q "chosen for the data" out || report "something was chosen"
expect "a warm-up as long as the run" 0 "${little[@]}" --max-steps 4 --warmup 8 --out warm
err "warning: --warmup 8 is as long as the run of 4 steps or longer: the learning rate never passes 38% of its peak"
expect "and once it is resumed" 0 --resume warm --max-steps 6
err "warning: the warm-up of 8 steps, chosen when the run began, is as long as the run of 6 steps or longer: the learning rate never passes 62% of its peak"
expect "defaults are remembered" 0 "${little[@]}" --max-steps 8 --out remembered; silent err
for line in --batch 8 --epochs 58 --eval-every 1 --learning-rate 0.001; do grep -qx -e "$line" remembered/training/options.txt || report "options.txt lacks $line"; done

# ---- a run and what it leaves

expect "a run" 0 "${tiny[@]}" --groups 8 --max-steps 4 --log-every 2 --out run --json
err "2000 images of 32x32, 100 classes"; err "2 blocks of width 48, 16 tokens"; err "weights from random"; err "8 groups of 16 codewords"
err "step 2/4 .*loss [0-9.]* .*task [0-9.]* .*commitment .*perplexity .*dead .*accuracy .* images/s .*ETA "
err "evaluation at step 4: accuracy .*% on 4 devices, .*% plain (20 images)"; err "checkpoint in run"
last '^\{"schema":1,"checkpoint":"run","steps":4,"loss":[0-9.]+,"accuracy_plain":[0-9.]+,"accuracy":[0-9.]+,"seconds":[0-9.e-]+,"eval_samples":20\}$'
for file in config.json preprocessor_config.json model.safetensors selftest.safetensors training/state.safetensors training/options.txt; do
  there "run/$file"
done
[ "$(head -n 1 run/metrics.csv | tr ',' '\n' | grep -c -x -e loss -e task_loss -e commitment -e test_accuracy -e test_accuracy_plain)" = 5 ] ||
  report "metrics.csv lacks a column"
[ "$(wc -l <run/metrics.csv)" = 4 ] || report "metrics.csv has $(wc -l <run/metrics.csv) lines, not a header, two intervals and an evaluation"
is_png run/curves.png
[ "$(find run -name 'events.out.tfevents.*' -size +100c | wc -l)" = 1 ] || report "there is no TensorBoard event file"
grep -q '"groups": *8' run/config.json || report "config.json does not say 8 groups"
no_leftovers run

accuracies=$(tail -n 1 out | grep -o '"accuracy_plain":[0-9.]*,"accuracy":[0-9.]*')
expect "evaluation alone" 0 --model run "${data[@]}" --codebook-size 16 --groups 8 --eval-only --out nowhere
out "^accuracy .*% on 4 emulated devices, .*% plain (20 images)$"
[ ! -e nowhere ] || report "evaluation made a checkpoint"
expect "evaluation with all that the checkpoint says" 0 --model run "${data[@]}" --eval-only --json; last "$accuracies"
last '"checkpoint":"run","steps":0,"loss":null,'
able=("${data[@]}" --eval-samples 200) # of weights that tell classes apart, accuracies are no guesses
expect "a run of a trained model" 0 --model vit-cifar "${able[@]}" --codebook-size 16 --groups 2 --max-steps 1 --out able --json
learnt=$(tail -n 1 out | grep -o '"accuracy_plain":[0-9.]*,"accuracy":[0-9.]*')
tail -n 1 out | jq -e '.accuracy > 0.1 and .accuracy_plain > 0.1 and .accuracy != .accuracy_plain' >/dev/null || report "such accuracies tell nothing: $learnt"
expect "its evaluation alone" 0 --model able "${able[@]}" --eval-only --json; last "$learnt"
expect "its evaluation when it is finished" 0 --resume able --json; last "$learnt"
expect "evaluation, plain" 0 --model run "${data[@]}" --groups 0 --eval-only; out "^accuracy .*% (20 images)$"
expect "evaluation with another K" 1 --model run "${data[@]}" --codebook-size 32 --groups 8 --eval-only; err "codebook"
expect "evaluation without codebooks" 2 --model tiny --init random "${data[@]}" --codebook-size 16 --groups 8 --eval-only; err "--codebooks"

expect "evaluation of other classes" 2 --model run --dataset synthetic:32x32:4:64 --eval-only; err "run has no classifier for the 4 classes of --dataset synthetic:32x32:4:64"; silent out
expect "evaluation of classes with other names" 0 --model run --dataset synthetic:32x32:100:400 --threads 1 --eval-only --eval-samples 20 --json
err "the classes of run have other names than those of --dataset synthetic"

cp -r run untouched
expect "the same --out again" 1 "${tiny[@]}" --groups 8 --max-steps 4 --out run
err "--out run holds finished work already (config.json)"; err "--overwrite to replace it"; err "astra-train --resume run"; ! grep -q k-means err || report "it clustered before it looked"
mkdir theirs empty; echo "weights of somebody else" >theirs/model.safetensors
expect "weights of somebody else" 1 "${tiny[@]}" --groups 8 --max-steps 4 --out theirs
err "theirs holds finished work already (model.safetensors)"; ! grep -q "resume" err || report "there is nothing to resume"
[ "$(cat theirs/model.safetensors)" = "weights of somebody else" ] && diff -r run untouched || report "something was replaced"
rm -r untouched
expect "an empty directory" 0 "${tiny[@]}" --groups 0 --max-steps 1 --out empty -q
expect "what is in the way may go" 0 "${tiny[@]}" --groups 0 --max-steps 1 --out theirs --overwrite -q
expect "looking replaces nothing" 0 "${tiny[@]}" --groups 8 --out run --dry-run; err "the run would be refused: --out run holds finished work already"
[ ! -e run/first_batch.png ] || report "a batch was drawn into what the run would not touch"
expect "one way on or the other" 2 --resume run --overwrite; err "--overwrite"
expect "a teacher that is nowhere" 1 --model empty "${data[@]}" --distill 0.5 --teacher nowhere --max-steps 1 --out taught; err "--teacher: nowhere: there is no config.json"
expect "a teacher of other patches" 2 --model empty "${data[@]}" --distill 0.5 --teacher vit-cifar --max-steps 1 --out taught; err "patches of side 4, the run 8"
expect "a teacher by the name of an installed checkpoint" 0 --model vit-cifar --init random "${data[@]}" --groups 0 --distill 0.5 --teacher vit-cifar --max-steps 1 --out taught -q
for look in "" --dry-run; do
  # shellcheck disable=SC2086
  expect "a teacher of other classes, by itself $look" 2 --model vit-cifar --dataset synthetic:32x32:3:64 --groups 8 --distill 0.5 --max-steps 1 --out taught --overwrite $look
  err "error: --distill: the teacher .*vit-cifar.* has classes: 100, the run 3; --teacher DIR names"
done
expect "a teacher of other images, by itself" 2 --model vit-cifar "${data[@]}" --image-size 64 --groups 8 --distill 0.5 --max-steps 1 --out taught --overwrite; err "images of side 32, the run 64"
expect "the teacher stays as it is" 2 --model empty "${data[@]}" --groups 8 --codebook-size 16 --max-steps 1 --out empty --overwrite; err "--out empty is where the weights lie that --distill learns from"
parts=$(printf 'part-%03d.txt,' {1..60})
expect "a long name" 1 --model gpt2-mini --init random --dataset "text:${parts%,}"

expect "no better than by guessing" 0 --model tiny --init random --dataset synthetic:32x32:2:64 --batch 8 --threads 1 --groups 0 --max-steps 1 -l 1e-9 --out guesses; err "is no better than guessing (.*), on those of the training [0-9.]*%: "
expect "a finished run" 0 --resume guesses --json; last '"steps":1,"loss":null,'
err "is no better than guessing ([0-9.]*%, 2 classes)$"
expect "which evaluates no more, whatever the conditions" 0 --resume guesses --eval-samples 9; ! grep -q "other conditions" err || report "it seeks the best evaluation"
expect "the same again" 0 "${tiny[@]}" --groups 8 --max-steps 4 --log-every 2 --out again -q; silent err; silent out
same run/model.safetensors again/model.safetensors; same run/selftest.safetensors again/selftest.safetensors
expect "another seed" 0 "${tiny[@]}" --groups 8 --max-steps 4 --out other -q --seed 7
! cmp -s run/model.safetensors other/model.safetensors || report "another seed gives the same weights"
expect "the plain model" 0 "${tiny[@]}" --groups 0 --max-steps 2 --out plain --json; err "accuracy .*%, loss "
last '"accuracy_plain":([0-9.]+),"accuracy":([0-9.]+)'; [ -e plain/selftest.safetensors ] || report "a plain model has no self-test"
! grep -q astra.layers plain/model.safetensors || report "a plain model has codebooks"
remembers() { [ "$(grep -A 1 -x -e "--$1" tuned/training/options.txt | tail -n 1)" = "$2" ] || report "$name: options.txt does not say --$1 $2"; }
expect "adapted by the recipe" 0 --model plain "${data[@]}" --codebook-size 16 --groups 4 --max-steps 1 --out tuned; remembers distill 0.5; remembers distill-hidden 1; remembers mixup 1; remembers cutmix 1; err "distillation (--recipe tuned), images mixed by mixup and CutMix (--recipe tuned)"
sed -i '/^--distill$/,+1d; /^--distill-hidden$/,+1d; /^--mixup$/,+1d; /^--cutmix$/,+1d; /^# xxh3/d' tuned/training/options.txt
expect "a run of a version whose recipe compared no rows and mixed no images" 0 --resume tuned --max-steps 2 -q; remembers distill 0.5; remembers distill-hidden 0; remembers mixup 0; remembers cutmix 0
expect "without its predictions" 0 --model plain "${data[@]}" --codebook-size 16 --groups 4 --no-prediction --no-rotation --max-steps 1 --out basis -q
expect "nor once it is resumed" 0 --resume basis --max-steps 2 -q; [ "$(jq '.astra | .rotation or .prediction' basis/config.json)" = false ] || report "config.json says $(jq -c .astra basis/config.json)"
expect "predictions without the basis" 2 --model plain "${data[@]}" --groups 4 --no-rotation --prediction; err "--no-rotation cannot be combined with --prediction"
biased() { jq -e ".astra.class_bias == $2" "$1/config.json" >/dev/null || report "$1/config.json says $(jq -c .astra "$1/config.json")"; }
exchanges() { [ "$(jq .astra.exchange_blocks "$1/config.json")" = "$2" ] || report "$1/config.json says $(jq -c .astra "$1/config.json")"; }
expect "a plain model of three blocks, of width 64" 0 --model tiny --init random --blocks 3 "${data[@]}" --groups 0 --max-steps 1 --out shallow -q
third=(--model shallow "${data[@]}" --codebook-size 16 --max-steps 1 --overwrite -q)
expect "coarse groups: codes of two of three blocks by the recipe" 0 "${third[@]:0:$((${#third[@]} - 1))}" --groups 2 --out coarse; exchanges coarse 2; biased coarse -0.8; err "defaults: .*class bias -0.8 (--recipe tuned), codes of the first 2 blocks (--recipe tuned)"
expect "they are kept" 0 --resume coarse --max-steps 2 -q; exchanges coarse 2; biased coarse -0.8
expect "codes of one group: half of the bias" 0 "${third[@]}" --groups 1 --out every; biased every -0.4
expect "and inherited with fine ones" 0 --model coarse "${data[@]}" --groups 4 --max-steps 1 --out other --overwrite -q; exchanges other 2
for how in "--groups 4" "--groups 2 --recipe paper" "--groups 2 --exchange-blocks 0 --class-bias 0" "--groups 2 --class-token single"; do
  # shellcheck disable=SC2086
  expect "codes of all blocks: $how" 0 "${third[@]}" $how --out every; exchanges every null; biased every null
done
expect "codebooks to start from" 0 "${third[@]}" --groups 2 --recipe paper --out every
expect "with these the recipe is another, and says so" 0 "${third[@]:0:$((${#third[@]} - 1))}" --groups 2 --codebooks every --out given; biased given null
err "defaults: .*the paper's recipe (--codebooks)"
expect "a model whose blocks all have codebooks exchanges the codes of all" 0 --model every "${data[@]}" --groups 2 --class-token distributed --max-steps 1 --out other --overwrite -q; exchanges other null
expect "as a version that knew no such blocks" 0 "${third[@]}" --groups 2 --exchange-blocks 0 --out every
sed -i '/^--exchange-blocks$/,+1d; /^--class-bias$/,+1d; /^# xxh3/d' every/training/options.txt
expect "its run goes on with all of them, and without a bias" 0 --resume every --max-steps 2 -q; exchanges every null; biased every null
cp -r plain teacher
expect "learned from a teacher" 0 --model plain "${data[@]}" --codebook-size 16 --groups 4 --teacher teacher --distill 0.5 --max-steps 1 --out pupil -q
cp empty/model.safetensors teacher
expect "resumed with another teacher" 1 --resume pupil --max-steps 2; err "pupil/training/state.safetensors: the teacher that the run has learned from had other weights"
cp -r pupil earlier; sed -i 's/"teacher":/"unknown":/' earlier/training/state.safetensors; unseal earlier/training/state.safetensors
expect "a state of a version that noted no teacher" 0 --resume earlier --max-steps 2 -q
cp plain/model.safetensors teacher
expect "resumed with its teacher" 0 --resume pupil --max-steps 2 -q
expect "for other images, with new codebooks" 0 --model tuned "${data[@]}" --groups 4 --image-size 48 --max-steps 1 --out tuned48 -q
[ "$(jq -c '[.image_size, .astra.prediction]' tuned48/config.json)" = "[48,true]" ] || report "config.json says $(jq -c .astra tuned48/config.json)"
for use in "--max-steps 1" --eval-only; do
  # shellcheck disable=SC2086
  expect "for other images, with the old ones, $use" 2 --model tuned "${data[@]}" --image-size 48 $use --out nowhere
  err "the codebooks of tuned cannot be used"; err "make new ones (astra-train --groups, without --codebooks)"; [ ! -e nowhere ] || report "it left something"
done
expect "a single class token" 0 "${tiny[@]}" --groups 4 --class-token single --devices 2-4 --max-steps 2 --out single -q
grep -q '"class_token": *"single"' single/config.json || report "config.json does not say single"
expect "class tokens with a bias" 0 "${tiny[@]}" --groups 4 --class-bias -0.5 --devices 3 --max-steps 2 --out biased -q
[ "$(jq .astra.class_bias biased/config.json)" = -0.5 ] || report "config.json does not say -0.5"
expect "without a bias" 0 "${tiny[@]}" --groups 4 --devices 3 --max-steps 2 --out unbiased -q; same biased/model.safetensors unbiased/model.safetensors
expect "with one, blocks computed twice" 0 "${tiny[@]}" --groups 4 --class-bias -0.5 --devices 3 --recompute all --max-steps 2 --out recomputed -q; same recomputed/model.safetensors unbiased/model.safetensors
! cmp -s biased/selftest.safetensors unbiased/selftest.safetensors || report "evaluation has no bias either"
expect "it is kept" 0 --resume biased --max-steps 3 -q; [ "$(jq .astra.class_bias biased/config.json)" = -0.5 ] || report "config.json does not say -0.5 any more"
expect "it is inherited" 0 --model biased "${data[@]}" --max-steps 1 --devices 3 --out inherited -q; [ "$(jq .astra.class_bias inherited/config.json)" = -0.5 ] || report "config.json does not say -0.5"
expect "K-means where codebooks are the model's" 2 --model biased "${data[@]}" --kmeans-start random --max-steps 1 --out nowhere; err "error: --kmeans-start: codebooks are those of biased: --groups makes new ones with K-means$"
expect "a single class token has neither bias nor shares" 0 --model biased "${data[@]}" --class-token single --max-steps 1 --devices 3 --out alone -q
[ "$(jq -c '[.astra.class_token, .astra.class_bias, .astra.class_mean_power]' alone/config.json)" = '["single",null,null]' ] || report "config.json says $(jq -c .astra alone/config.json)"
expect "unless it is given" 2 --model biased "${data[@]}" --class-token single --class-bias -0.5 --max-steps 1 --out nowhere; err "--class-bias is for one class token per device; it cannot be combined with --class-token single"
run "nodes compute what was emulated with it" 0 "$bin/astra-infer" selftest -c biased; tail -n 1 "$work/out" | grep -q '^passed$' || report "it does not say that it passed"
jq 'del(.astra.class_bias)' biased/config.json >biased/changed.json && mv biased/changed.json biased/config.json
run "without it they compute something else" 1 "$bin/astra-infer" selftest -c biased; out "^FAILED: "
apart=(--groups 4 --exchange-blocks 1 --devices 3) # of two blocks
expect "codes of the first block alone" 0 "${tiny[@]}" "${apart[@]}" --max-steps 2 --out apart --json; err "blocks: codes are exchanged in the first 1 of 2; in later ones tokens attend only to tokens of the same device"; err "16 bits per token, 192.0-fold"
[ "$(jq .astra.exchange_blocks apart/config.json)" = 1 ] || report "config.json does not say 1"
run "nodes compute what was emulated so" 0 "$bin/astra-infer" selftest -c apart; out "^passed"
expect "blocks computed twice" 0 "${tiny[@]}" "${apart[@]}" --recompute all --max-steps 2 --out recomputed --overwrite -q; same recomputed/model.safetensors apart/model.safetensors
expect "what is foreseen with codes" 0 "${tiny[@]}" "${apart[@]}" --dry-run --out foreseen --json; json '"exchange_blocks":1,'
expect "what is foreseen without" 0 "${tiny[@]}" --groups 0 --dry-run --out foreseen --json; json '"exchange_blocks":0,'
cp -r apart further
expect "it is kept" 0 --resume further --max-steps 3 -q; [ "$(jq .astra.exchange_blocks further/config.json)" = 1 ] || report "config.json does not say 1 any more"
expect "it is inherited" 0 --model apart "${data[@]}" --max-steps 1 --devices 3 --out inherited --overwrite -q; [ "$(jq .astra.exchange_blocks inherited/config.json)" = 1 ] || report "config.json does not say 1"
expect "evaluated so" 0 --model apart "${data[@]}" --eval-only; err "blocks: codes are exchanged in the first 1 of 2"; out "^accuracy [0-9.]*% on 3 emulated devices"
expect "it comes with the weights" 0 "${tiny[@]}" --groups 4 --init apart --max-steps 1 --devices 3 --out inherited --overwrite -q; [ "$(jq .astra.exchange_blocks inherited/config.json)" = 1 ] || report "config.json does not say 1"
expect "all blocks again" 0 --model apart "${data[@]}" --groups 4 --exchange-blocks 0 --max-steps 1 --devices 3 --out inherited --overwrite -q
[ "$(jq .astra.exchange_blocks inherited/config.json)" = null ] || report "config.json says $(jq .astra.exchange_blocks inherited/config.json)"
expect "with predictions" 0 "${tiny[@]}" "${apart[@]}" --prediction --max-steps 2 --out predicted -q; run "nodes, too" 0 "$bin/astra-infer" selftest -c predicted; out "^passed"
run "nodes whose codes are entropy-coded" 0 "$bin/astra-infer" selftest -c predicted --entropy on; out "^passed"
expect "blocks computed twice, with predictions" 0 "${tiny[@]}" "${apart[@]}" --prediction --recompute all --max-steps 2 --out recomputed --overwrite -q; same recomputed/model.safetensors predicted/model.safetensors
for how in "--transport udp --parts 2" "--parts 1"; do
  # shellcheck disable=SC2086
  run "over datagrams in parts, over streams in one" 0 "$bin/astra-infer" eval -c predicted --dataset cifar100-sample --data-dir "$root/datasets" --samples 8 --batch 1 --nodes 3 $how --per-sample "samples${how##* }.csv" -q
done
paste -d, samples1.csv samples2.csv | awk -F, 'NR > 1 { apart = $4 - $(NF / 2 + 4); if (apart > 1e-3 || apart < -1e-3) bad = 1 } END { exit bad || NR != 9 }' || report "parts give other losses"
for kind in "--groups 2,4" "--groups 2,4 --prediction" "--groups 4 --site kv" "--groups 4 --site kv --prediction" "--groups 4 --token-loss 0.3 --prediction"; do
  # shellcheck disable=SC2086
  expect "the first block alone, $kind" 0 "${tiny[@]}" $kind --exchange-blocks 1 --devices 3 --max-steps 2 --out coded --overwrite -q; run "nodes, too" 0 "$bin/astra-infer" selftest -c coded; out "^passed"
  expect "it goes on" 0 --resume coded --max-steps 3 -q; run "nodes, still" 0 "$bin/astra-infer" selftest -c coded; out "^passed"
done
run "in 8 bits" 0 "$bin/astra-quantize" -c predicted -o eighth --weights int8 -q; run "nodes, too" 0 "$bin/astra-infer" selftest -c ./eighth; out "^passed"
expect "codebooks of other blocks" 2 --model apart "${data[@]}" --codebooks apart --exchange-blocks 2 --max-steps 1 --devices 3 --out nowhere; err "are of the first 1 block, and this run exchanges codes in the first 2: give --exchange-blocks 1, or make new ones"
expect "codebooks of fewer blocks, with predictions" 2 --model predicted "${data[@]}" --exchange-blocks 0 --codebooks predicted --max-steps 1 --devices 3 --out nowhere; err "are of the first 1 block, and this run exchanges codes in the first 2: give --exchange-blocks 1, or make new ones"
mkdir three && jq '.num_hidden_layers = 3' tiny/config.json >three/config.json
expect "a model of three blocks" 0 --model three --init random "${data[@]}" --codebook-size 16 --groups 4 --devices 3 --max-steps 1 --out third -q
expect "its codebooks" 2 "${tiny[@]}" --groups 4 --codebooks third --max-steps 1 --devices 3 --out nowhere; err "are of a model of 3 blocks, and this one has 2: give codebooks that were made for this model"
expect "more blocks than there are" 2 "${tiny[@]}" --groups 4 --exchange-blocks 3 --out nowhere; err "--exchange-blocks 3: the model has 2 blocks; 0 means all of them$"
expect "blocks of a plain model" 2 "${tiny[@]}" --groups 0 --exchange-blocks 1 --out nowhere; err "--exchange-blocks is for tokens that are quantised"
expect "the plain model of such a one" 0 --model apart "${data[@]}" --groups 0 --max-steps 1 --out inherited --overwrite -q; [ "$(jq .astra.exchange_blocks inherited/config.json)" = null ] || report "config.json says $(jq -c .astra inherited/config.json)"
jq 'del(.astra.exchange_blocks)' apart/config.json >apart/changed.json && mv apart/changed.json apart/config.json
run "codebooks that are missing" 1 "$bin/astra-infer" selftest -c apart; err "asks for tensor astra.layers.1.x.codebook"
expect "class tokens by shares" 0 "${tiny[@]}" --groups 4 --class-mean-power 0.5 --map fixed --counts 9,4,3 --devices 3 --max-steps 2 --out shares -q
expect "it is kept" 0 --resume shares --max-steps 3 -q; [ "$(jq .astra.class_mean_power shares/config.json)" = 0.5 ] || report "config.json does not say 0.5"
expect "it is inherited" 0 --model shares "${data[@]}" --max-steps 1 --devices 3 --out inherited --overwrite -q; [ "$(jq .astra.class_mean_power inherited/config.json)" = 0.5 ] || report "config.json does not say 0.5"
run "nodes compute what was emulated with it" 0 "$bin/astra-infer" selftest -c shares; tail -n 1 "$work/out" | grep -q '^passed$' || report "it does not say that it passed"
jq 'del(.astra.class_mean_power)' shares/config.json >shares/changed.json && mv shares/changed.json shares/config.json
run "without it they compute something else" 1 "$bin/astra-infer" selftest -c shares; out "^FAILED: "
expect "the mean of the only class token" 2 "${tiny[@]}" --groups 4 --class-mean-power 0.5 --class-token single --max-steps 1 --out nowhere; err "--class-mean-power is for one class token per device; it cannot be combined with --class-token single"
expect "a bias of the only class token" 2 "${tiny[@]}" --groups 4 --class-bias -0.5 --class-token single --max-steps 1 --out nowhere; err "--class-bias is for one class token per device"
expect "no token loss" 0 "${tiny[@]}" --groups 4 --max-steps 2 --out lossless -q; there lossless/frequencies.safetensors
expect "a token loss of 0" 0 "${tiny[@]}" --groups 4 --max-steps 2 --token-loss 0 --out loss0 -q
same lossless/model.safetensors loss0/model.safetensors; same lossless/frequencies.safetensors loss0/frequencies.safetensors
for loss in 0.3 0.3,span:4; do
  expect "a token loss of $loss" 0 "${tiny[@]}" --groups 4 --max-steps 2 --token-loss "$loss" --out "loss$loss" -q
  ! cmp -s lossless/model.safetensors "loss$loss/model.safetensors" || report "trained as without losses"
done
! cmp -s loss0.3/model.safetensors loss0.3,span:4/model.safetensors || report "runs of tokens were lost like single ones"
expect "mimetic start on half the patches" 0 "${tiny[@]}" --init mimetic --groups 0 --patch-drop 0.5 --max-steps 2 --out mimetic --json
err "weights from mimetic"; last '"steps":2,'
# Where tokens live: in training another permutation for each batch unless a layout is fixed; the checkpoint says what evaluation does.
layout_of() { grep -o '"layout": *"[^"]*"' "$1/config.json" | sed 's/.*: *"\(.*\)"/\1/'; }
[ "$(layout_of run)" = checkerboard ] || report "config.json says $(layout_of run), not the usual layout"
for layout in raster strided checkerboard random:5; do
  expect "evaluation layout $layout" 0 "${tiny[@]}" --groups 8 --max-steps 4 --eval-layout "$layout" --out "eval-$layout" -q
  [ "$(layout_of "eval-$layout")" = "$layout" ] || report "$name: config.json says $(layout_of "eval-$layout")"
  same run/model.safetensors "eval-$layout/model.safetensors"
  "$bin/astra-infer" selftest --checkpoint "eval-$layout" -q >out 2>&1 || report "self-test, $layout: $(cat out)"
  cksum <"eval-$layout/selftest.safetensors" >>samples
done
[ "$(sort -u samples | wc -l)" = 4 ] || report "self-tests of different layouts are the same"
same run/selftest.safetensors eval-checkerboard/selftest.safetensors
expect "fixed layout" 0 "${tiny[@]}" --groups 8 --max-steps 4 --layout strided --out stripes -q
[ "$(layout_of stripes)" = strided ] || report "$name: config.json says $(layout_of stripes)"
! cmp -s run/model.safetensors stripes/model.safetensors || report "$name: trained as with permuted tokens"
expect "layouts of training and evaluation" 0 "${tiny[@]}" --groups 8 --max-steps 4 --layout strided --eval-layout raster --out two -q
[ "$(layout_of two)" = raster ] || report "$name: config.json says $(layout_of two)"
same stripes/model.safetensors two/model.safetensors
expect "permuted by name" 0 "${tiny[@]}" --groups 8 --max-steps 4 --layout permuted --out permuted -q; same run/model.safetensors permuted/model.safetensors
expect "layout of the model" 0 --model two "${data[@]}" --codebook-size 16 --max-steps 1 --out after -q
[ "$(layout_of after)" = raster ] || report "$name: config.json says $(layout_of after)"
expect "fixed counts" 0 "${tiny[@]}" --groups 4 --map fixed --counts 7,4,3,2 --max-steps 2 --out fixed -q
expect "codebooks and weights of another run, in half precision" 0 --model run "${data[@]}" --codebook-size 16 --groups 8 --codebooks run \
  --max-steps 1 --dtype f16 --out half; err "weights from run"
[ "$(stat -c %s half/model.safetensors)" -lt $(($(stat -c %s run/model.safetensors) * 2 / 3)) ] || report "float16 is not smaller"
expect "a file of weights" 0 --model tiny "${data[@]}" --init run/model.safetensors --max-steps 1 --out file; err "weights from run/model.safetensors"
# What the shapes do not show comes with the weights: heads, activation, epsilon, normalisation.
mkdir normal; cp run/model.safetensors normal
sed 's/"layer_norm_eps": *[0-9.e-]*/"layer_norm_eps": 0.5/; s/"num_attention_heads": *4/"num_attention_heads": 2/' run/config.json >normal/config.json
echo '{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.75, 0.75, 0.75]}' >normal/preprocessor_config.json
expect "the configuration beside the weights" 0 --model tiny "${data[@]}" --init normal --max-steps 1 --out adopted
expect "the configuration beside the file of weights" 0 --model tiny "${data[@]}" --init normal/model.safetensors --max-steps 1 --out adopted-file
same adopted/config.json adopted-file/config.json; same adopted/preprocessor_config.json adopted-file/preprocessor_config.json
for field in layer_norm_eps num_attention_heads; do
  [ "$(grep -o "\"$field\": *[0-9.e-]*" adopted/config.json)" = "$(grep -o "\"$field\": *[0-9.e-]*" normal/config.json)" ] || report "$field is the preset's"
done
tr -d ' \n' <adopted/preprocessor_config.json | grep -q '"image_std":\[0\.75,' || report "the normalisation is the preset's"
# Weights that do not say how their images are prepared are warned of once, and not where others say it.
cp -r run unprepared; rm -r unprepared/training unprepared/preprocessor_config.json
expect "no preprocessor_config.json" 0 --model unprepared "${data[@]}" --max-steps 1 --out prepared
[ "$(grep -c "unprepared has no preprocessor_config.json" "$work/err")" = 1 ] || report "$name: $(cat "$work/err")"
expect "what that wrote goes on" 0 --resume prepared --max-steps 2 -q; silent err
expect "weights that say it" 0 --model unprepared --init normal "${data[@]}" --groups 0 --max-steps 1 --out said; ! grep -q "has no preprocessor" "$work/err" || report "a warning"
expect "other images" 0 --model run "${data[@]}" --image-size 48 --max-steps 1 --out large; err "36 tokens"; err "position embeddings interpolated"

expect "another depth" 0 "${tiny[@]}" --groups 0 --blocks 3 --max-steps 1 --out deep; err "model: 3 blocks"
expect "of weights that are there" 2 --model deep "${data[@]}" --blocks 2 --out nowhere; err "--blocks 2 is for models trained from scratch"

# ---- Adam's constants: epsilon shows in the loss after one step, the decays, which the first step does not depend on, in that after two

adam() { # OPTION...: the losses of three steps, in `ours`
  expect "Adam with ${*:-its defaults}" 0 "${tiny[@]}" --groups 0 --max-steps 3 --log-every 1 "$@" --out adam --overwrite -q
  mapfile -t ours < <(awk -F, 'NR > 1 && $3 != "" { print $3 }' adam/metrics.csv)
}
adam; theirs=("${ours[@]}"); [ ${#theirs[@]} = 3 ] || report "metrics.csv has the losses ${theirs[*]}"
adam --beta1 0.9 --beta2 0.999 --epsilon 1e-8; [ "${ours[*]}" = "${theirs[*]}" ] || report "the losses ${ours[*]}, ${theirs[*]} without options"
for option in "2 --beta1 0.5" "2 --beta2 0.5" "1 --epsilon 1e-3"; do # behind the steps after which the loss is another one
  read -r steps flag value <<<"$option"
  adam "$flag" "$value"
  holds "(${ours[steps - 1]} - ${theirs[steps - 1]}) ^ 2 < 1e-10 && (${ours[steps]} - ${theirs[steps]}) ^ 2 > 1e-6"
done

# ---- the best evaluation, an early end, which class is taken for which

best=(--model tiny --init random --groups 0 --threads 1 --dataset synthetic:32x32:4:64 --batch 16 -l 0 --epochs 9 --eval-every 1)
expect "nothing gets better" 0 "${best[@]}" --early-stopping 2 --keep-best --out stopped
err "stopped early at step 12 of 36: 2 evaluations in a row without a better accuracy"
err "the best accuracy, 0.[0-9]*, was that of step 4: its checkpoint is in stopped/best"
[ "$(cut -d" " -f1 stopped/training/evaluations.txt | xargs)" = "4 8 12" ] || report "evaluations.txt says $(cat stopped/training/evaluations.txt)"
grep -q "^12,[^,]*,[0-9]" stopped/metrics.csv || report "metrics.csv has no losses up to step 12: $(cat stopped/metrics.csv)"
same stopped/model.safetensors stopped/best/model.safetensors; there stopped/best/config.json; [ ! -e stopped/best/curves.png ] || report "images were kept"
expect "and is over" 0 --resume stopped; err "the run was stopped early at step 12 of 36: --early-stopping 0 would go on"
sed -i '$d' stopped/training/evaluations.txt # as if the last evaluation had been interrupted
expect "its last evaluation is made up for" 0 --resume stopped --max-steps 12; err "evaluation at step 12: accuracy"; err "that of step 4: its checkpoint is in stopped/best"
[ "$(grep -c "^12,[^,]*,," stopped/metrics.csv)" = 1 ] || report "metrics.csv has $(grep -c "^12,[^,]*,," stopped/metrics.csv) evaluations of step 12"
[ "$(cut -d" " -f1 stopped/training/evaluations.txt | xargs)" = "4 8 12" ] || report "evaluations.txt says $(cat stopped/training/evaluations.txt)"
expect "unless told" 0 --resume stopped --epochs 9 --early-stopping 0 -q; [ "$(tail -n 1 stopped/training/evaluations.txt | cut -d" " -f1)" = 36 ] || report "it did not go on"
expect "something gets better" 0 "${best[@]}" -l 3e-3 --warmup 0 --keep-best --out better
[ "$(sort -k2,2gr -k1,1g better/training/evaluations.txt | head -n 1 | cut -d" " -f1)" = "$(grep -o "that of step [0-9]*" err | grep -o "[0-9]*")" ] || report "another was the best"
cp -r better rebest; mkdir rebest/adapter rebest/best/adapter
of_another="frequencies.safetensors chat_template.jinja tokenizer_config.json generation_config.json adapter/x"
for file in $of_another; do touch "rebest/$file" "rebest/best/$file"; done; touch rebest/mine.txt rebest/best/mine.txt
expect "from the best of the run before, in its place" 0 "${best[@]}" --init rebest/best --epochs 1 --overwrite --keep-best --out rebest -q
for file in $of_another; do [ ! -e "rebest/$file" ] && [ ! -e "rebest/best/$file" ] || report "$file of the run before is left"; done
[ -e rebest/mine.txt ] && [ ! -e rebest/adapter ] && [ ! -e rebest/best/adapter ] && there rebest/best/config.json || report "it left $(ls rebest rebest/best)"
touch rebest/generation_config.json
expect "from itself, in its place" 0 --model rebest --groups 0 --threads 1 --dataset synthetic:32x32:4:64 --max-steps 1 --overwrite --out rebest -q
[ -e rebest/generation_config.json ] && [ -e rebest/best ] || report "what it starts from is gone: $(ls rebest)"
expect "another one, in its place" 0 "${best[@]}" --epochs 1 --overwrite --out rebest -q
[ ! -e rebest/generation_config.json ] && [ ! -e rebest/best ] || report "files of the run before are left: $(ls rebest)"
cp -r better unkept; rm -r unkept/best
expect "the best is kept no longer" 0 --resume unkept --no-keep-best --epochs 10 -q
expect "which is remembered" 0 --resume unkept --epochs 11; ! grep -q "the best accuracy" err && [ ! -e unkept/best ] || report "it is kept again"
expect "until told" 0 --resume unkept --keep-best --epochs 12; err "the best accuracy"
same unkept/model.safetensors unkept/best/model.safetensors
expect "a run that keeps nothing" 0 "${best[@]}" --epochs 2 --out late; sed -i '2s/ [0-9.]* / 1 /' late/training/evaluations.txt # as if step 8 had been perfect
expect "and begins to" 0 --resume late --keep-best --epochs 3
err "the best accuracy, 1, was that of step 8, whose checkpoint was not kept; the one in late/best is that of step 12 (0.[0-9]*)"
same late/model.safetensors late/best/model.safetensors; [ "$(cut -d" " -f3 late/training/evaluations.txt | xargs)" = "- - kept" ] || report "evaluations.txt says $(cat late/training/evaluations.txt)"
cut -d" " -f1,2 stopped/training/evaluations.txt >notes && cp notes stopped/training/evaluations.txt # as earlier versions wrote it
expect "notes of an earlier version" 0 --resume stopped --epochs 10; err "the best accuracy, 0.[0-9]*, was that of step 4: its checkpoint is in stopped/best"
[ "$(cut -d" " -f3 stopped/training/evaluations.txt | uniq -c | xargs)" = "1 kept 9 -" ] || report "evaluations.txt says $(cat stopped/training/evaluations.txt)"
expect "the best is a checkpoint" 0 --model better/best --dataset synthetic:32x32:4:64 --threads 1 --eval-only --json
holds "$(tail -n 1 out | grep -o '"accuracy":[0-9.]*' | cut -d: -f2) == $(sort -k2,2gr better/training/evaluations.txt | head -n 1 | cut -d" " -f2)"
is_png better/confusion.png
[ "$(wc -l <better/confusion.csv)" = 5 ] && [ "$(tail -n +2 better/confusion.csv | cut -d, -f2- | tr ',' '\n' | awk '{ n += $1 } END { print n }')" = 16 ] || report "confusion.csv is not of 4 classes and 16 images: $(cat better/confusion.csv)"

expect "other conditions" 0 --resume late --eval-samples 8 --epochs 4
err "under other conditions (samples:8,loss:0,layout:checkerboard) than before (samples:0,loss:0,layout:checkerboard)"
err "the best accuracy, 0.[0-9]*, was that of step 16: its checkpoint is in late/best"
expect "and the first ones again" 0 --resume late --early-stopping 2 --epochs 9; err "than before (samples:8"
err "stopped early at step 28 of 36"; err "that of step 20: its checkpoint is in late/best"
expect "which are remembered" 0 --resume late; ! grep -q "other conditions" err || report "they have not changed"
[ "$(cut -d" " -f3 late/training/evaluations.txt | xargs)" = "- - kept kept kept - -" ] || report "evaluations.txt says $(cat late/training/evaluations.txt)"

# ---- steps of more batches than an epoch has, here 6 of 4: epochs follow each other within them

long=(--model tiny --init random --groups 0 --threads 1 --dataset synthetic:32x32:4:64 --batch 16 --accumulate 6 --eval-every 3 --log-every 1 -l 1e-3 --warmup 0 --rate-floor 1)
expect "their plan" 0 "${long[@]}" --epochs 9 --dry-run --out longer; out "^6 steps, 0.667 per epoch: batch 16, "
expect "long steps" 0 "${long[@]}" --epochs 9 --out longer
err "step 1/6  epoch 1.50"; err "step 6/6  epoch 9.00"
[ "$(cut -d" " -f1 longer/training/evaluations.txt | xargs)" = "2 4 6" ] || report "evaluations.txt says $(cat longer/training/evaluations.txt)"
expect "half of them" 0 "${long[@]}" --epochs 4 --out half-longer; err "step 2/2  epoch 3.00"
expect "and the other half" 0 --resume half-longer --epochs 9
same longer/model.safetensors half-longer/model.safetensors; same longer/training/state.safetensors half-longer/training/state.safetensors

# ---- a part of the test images: of all classes, also where each has a folder of its own

mkdir -p folders/train folders/test
for part in train test; do
  for class in a b c d e; do
    mkdir "folders/$part/$class"
    for i in 1 2 3 4 5 6; do printf 'P6 4 4 255\n%s' "$(head -c 48 /dev/zero | tr '\0' "$class")" >"folders/$part/$class/$i.ppm"; done
  done
done
expect "some of the test images" 0 --model tiny --init random --groups 0 --threads 1 --dataset folder:folders --max-steps 1 --eval-samples 15 --out some
[ "$(tail -n +2 some/confusion.csv | cut -d, -f2- | tr ',' '\n' | awk '{ n += $1 } END { print n }')" = 15 ] || report "not 15 images: $(cat some/confusion.csv)"
[ "$(tail -n +2 some/confusion.csv | awk -F, '{ n = 0; for (i = 2; i <= NF; i++) n += $i; if (n > 0) classes++ } END { print classes }')" = 5 ] || report "not of all classes: $(cat some/confusion.csv)"
labels() { tail -n +2 "$1/confusion.csv" | awk -F, '{ n = 0; for (i = 2; i <= NF; i++) n += $i; print $1, n }'; } # how many images of each class
for seed in 7 8 9; do
  expect "the same ones with seed $seed" 0 --model some --groups 0 --threads 1 --dataset folder:folders --max-steps 1 --eval-samples 15 --seed $seed --out some-$seed -q
  [ "$(labels some-$seed)" = "$(labels some)" ] || report "other images than with another seed: $(labels some-$seed)"
done

# ---- the names of classes: those that a run began with, and none that cannot be saved

cp some/config.json some-config.json
mv folders/train/b folders/train/f; mv folders/test/b folders/test/f
expect "resume with another order of the classes" 1 --resume some --max-steps 2; err 'class 1 is called "c" in the data set, and was "b" when the run was saved in some'
same some/config.json some-config.json
expect "a start from such a model" 0 --model some --groups 0 --threads 1 --dataset folder:folders --max-steps 1 --out renamed -q; err "the classes of some have other names than those of --dataset folder:folders: its head is kept"
latin=$(printf 'h\374nd'); mv folders/train/f "folders/train/$latin"; mv folders/test/f "folders/test/$latin"
expect "a class that is no UTF-8" 1 --model tiny --init random --groups 0 --threads 1 --dataset folder:folders --max-steps 1 --out unsaved; err "is not UTF-8; rename the class"
[ ! -e unsaved ] || report "it has begun: $(ls unsaved)"

# ---- a broken image of the test part is left out, and none stands for it

mv "folders/train/$latin" folders/train/b; mv "folders/test/$latin" folders/test/b; : >folders/test/a/1.ppm
expect "a broken image of the test part" 0 --model some --groups 0 --threads 1 --dataset folder:folders --eval-only --json
[ "$(tail -n 1 out | jq -r .eval_samples)" = 29 ] || report "not 29 of 30: $(tail -n 1 out)"

# ---- a validation part: evaluated in place of the test part, in training and by every program alike

synthetic=(--dataset synthetic:32x32:12:96 --validation-part 32)
expect "samples are held out" 0 --model tiny --init random "${synthetic[@]}" --groups 0 --threads 1 --epochs 2 --batch 8 -l 1e-3 --warmup 0 --keep-best --ema-decay 0.9 --out heldout
err "64 images, without those held out, of synthetic train"; err "(32 images held out)"
head -n 1 heldout/metrics.csv | grep -q "valid_accuracy,valid_accuracy_plain,valid_loss" || report "the columns are $(head -n 1 heldout/metrics.csv)"
expect "looked at again" 0 --model heldout "${synthetic[@]}" --groups 0 --threads 1 --eval-only --json
[ "$(tail -n 1 out | jq '.eval_part == "valid" and .eval_samples == 32')" = true ] || report "not the validation part"
valid=$(tail -n 1 out | jq .accuracy)
holds "$valid == $(tail -n 1 heldout/training/evaluations.txt | cut -d" " -f2)" # the averaged weights are what is evaluated and what is exported
run "by real processes" 0 "$bin/astra-infer" eval -c heldout -n 1 "${synthetic[@]}" --json
[ "$(tail -n 1 out | jq ".part == \"valid\" and .samples == 32 and (.top1 - $valid | fabs) < 1e-9")" = true ] || report "not $valid of the validation part"
expect "more than there are" 1 --model tiny --init random "${synthetic[@]}" --validation-part 85 --groups 0 --out nowhere; err "85 of 96 records cannot be held out"
expect "learn from those held out" 0 --model tiny --init random "${synthetic[@]}" --train-part 64 --groups 0 --max-steps 1 --batch 8 --eval-samples 8 --out held; err "32 images, part of those held out, from"
expect "nothing left to learn from" 2 --model tiny --init random "${synthetic[@]}" --train-part 32 --groups 0 --out nowhere; err "train-part 32: --validation-part 32 leaves nothing"
run "learn from a part of a text" 2 "$bin/astra-train" --model "$root/tests/golden/stories260K" --dataset "text:$root/datasets/enwiki-sample" --train-part 10 --groups 0 --out nowhere; err "train-part is for images"
run "of a text" 2 "$bin/astra-train" --model "$root/tests/golden/stories260K" --dataset "text:$root/datasets/enwiki-sample" --validation-part 10 --groups 0 --out nowhere; err "a text has a validation part already"

# ---- texts: a bundled Llama of 0.26 M parameters on a few drawn sentences

export XDG_CACHE_HOME="$work/cache"
llama=$root/tests/golden/stories260K
mkdir text
for part in train:400 valid:60; do
  awk -v n="${part#*:}" -v seed="${part#*:}" 'BEGIN { srand(seed); split("Lily,Tom,The cat,A bird", who, ","); split("a ball,the sun,her mom,some cake", what, ",")
    for (i = 0; i < n; i++) printf "%s sees %s.%s", who[1 + int(4 * rand())], what[1 + int(4 * rand())], i % 4 ? " " : "\n" }' >"text/${part%:*}.txt"
done
story=(--model "$llama" --dataset text:text --context 32 --batch 4 --threads 1 --codebook-size 16 --kmeans-samples 256 --log-every 2)
expect "a language model" 0 "${story[@]}" --groups 4 --max-steps 4 --out story --json
err "train text, 1 file, from text"; err "tokens/s"; err "evaluation at step 4: perplexity [0-9.]* per token ([0-9.]* bits per byte) on 4 devices, .* plain ([0-9]* windows)"
last '^\{"schema":1,"checkpoint":"story","steps":4,"loss":[0-9.]+,"perplexity_plain":[0-9.]+,"perplexity":[0-9.]+,"bits_per_byte_plain":[0-9.]+,"bits_per_byte":[0-9.]+,"seconds":'
for file in config.json model.safetensors selftest.safetensors tok512.bin curves.png; do there "story/$file"; done
same story/tok512.bin "$llama/tok512.bin"
head -n 1 story/metrics.csv | grep -q 'tokens_per_second.*valid_perplexity,valid_perplexity_plain,valid_bits_per_byte' || report "metrics.csv lacks columns of texts"
grep -q '"site": *"kv"' story/config.json || report "config.json does not say kv"
look=(--model story --dataset text:text --context 32 --threads 1 --eval-only --json)
expect "evaluation without loss" 0 "${look[@]}"; cp out lossless.json
expect "evaluation with loss" 0 "${look[@]}" --eval-token-loss 0.9
! cmp -s out lossless.json || report "judged as without losses"
for unit in token:"predicted tokens" word:"words of the text" byte:"bytes of text" gpt2-paper:"words and line ends"; do
  expect "perplexity per ${unit%:*}" 0 --model story --dataset text:text --context 32 --eval-only --perplexity "${unit%:*}" --stride 16 -q
  out "^perplexity (${unit%:*}) [0-9.]* on 4 emulated devices = exp("; out "plain = exp("; out "^divided by ${unit#*:}.*windows of 32 tokens, each 16 further"
done
expect "another text, whole" 0 --model story --dataset text:text --eval-dataset text:text/train.txt --context 32 --eval-only --json -q --perplexity word
tail -n 1 "$work/out" | jq -e --argjson words "$(wc -w <text/train.txt)" '.convention == "word" and .units == $words and .context == 32 and .stride == 32' >/dev/null || report "another convention"
# Several ends of a text, as chat models have them, come with the weights, and so does the tokenizer; named by directory or file.
cp -r "$llama" ends; chmod -R u+w ends
sed -i 's/"eos_token_id": *2/"eos_token_id": [2, 7, 9]/; s/"bos_token_id": *1/"bos_token_id": 3/' ends/config.json
mkdir bare; cp "$llama/config.json" bare
for init in ends ends/model.safetensors; do
  expect "ids beside $init" 0 "${story[@]}" --model bare --init $init --max-steps 1 --out "of-${init%%/*}" -q
  tr -d ' \n' <"of-${init%%/*}/config.json" | grep -q '"bos_token_id":3,"eos_token_id":\[2,7,9\]' || report "the ids are not those beside $init"
  there of-ends/tok512.bin; rm -r of-ends
done
expect "adapters" 0 "${story[@]}" --lora 2 --lora-targets query,value --max-steps 4 --out adapted; err "adapters: rank 2 beside query,value"
tensors() { head -c $((8 + $(od -An -tu8 -N8 "$1"))) "$1" | tail -c +9 | jq "[to_entries[] | select(.key != \"__metadata__\").value.data_offsets[1]] | max"; }
[ "$(tensors adapted/model.safetensors)" = "$(tensors "$llama/model.safetensors")" ] || report "the export is not as large as the model"
there adapted/adapter/adapter_model.safetensors; grep -q '"peft_type": *"LORA"' adapted/adapter/adapter_config.json || report "no adapters for PEFT"
expect "the best adapters are kept" 0 "${story[@]}" --lora 2 --max-steps 4 --keep-best --out bestlora -q
for file in adapter_model.safetensors adapter_config.json; do same bestlora/adapter/$file bestlora/best/adapter/$file; done
expect "adapters over their own weights" 2 "${story[@]}" --model adapted --lora 2 --out adapted --overwrite; err "give another directory"
cp -r "$llama" other-words; chmod -R u+w other-words; LC_ALL=C sed -i 's/ was/ wxs/' other-words/tok512.bin
expect "a teacher of other tokens" 0 "${story[@]}" --groups 0 --teacher other-words --distill 0.5 --max-steps 1 --out taught --overwrite; err "the teacher other-words has another tokenizer than this run"
expect "a teacher of these tokens" 0 "${story[@]}" --groups 0 --teacher "$llama" --distill 0.5 --max-steps 1 --out taught --overwrite; ! grep -q "another tokenizer" err || report "it doubts its own tokenizer"
expect "adapters over what would be replaced as the best" 2 "${story[@]}" --model bestlora/best --lora 2 --keep-best --out bestlora --overwrite
err "error: --keep-best: --out bestlora/best is where the weights lie that --lora keeps as they are"
cp adapted/model.safetensors kept-base
ln -s ../adapted/model.safetensors text/linked.safetensors
for init in adapted/model.safetensors text/linked.safetensors; do
  expect "adapters over the file $init" 2 "${story[@]}" --init $init --lora 2 --out adapted --overwrite; err "give another directory"
done
same adapted/model.safetensors kept-base
cp -r "$llama" base; chmod -R u+w base
expect "adapters beside a base" 0 "${story[@]}" --model base --lora 2 --max-steps 2 --out beside -q
expect "adapters go on beside it" 0 --resume beside --max-steps 3 -q
cp adapted/model.safetensors base
expect "adapters beside another base" 1 --resume beside --max-steps 4; err "beside/training/state.safetensors"; err "have been replaced"
cp "$llama/model.safetensors" base
expect "and beside the first again" 0 --resume beside --max-steps 4 -q
expect "from scratch, in half precision, computed twice" 0 "${story[@]}" --model gpt2-mini --init random --tokenizer "$llama" --groups 8 --max-steps 2 --dtype f16 --recompute --out scratch
grep -q '"n_positions": *32' scratch/config.json && grep -q '"vocab_size": *512' scratch/config.json || report "config.json is the preset's"
printf 'text\tlabel\n' >table.tsv
for i in 1 2 3 4 5 6 7 8 9 10; do printf 'Lily sees the sun.\tgood\nThe cat finds some old cake.\tbad\n'; done >>table.tsv
expect "classes of texts" 0 "${story[@]}" --dataset tsv:table.tsv --groups 4 --max-steps 3 --out classes --json
err "accuracy [0-9.]*% (Matthews correlation -*[0-9.]*) on 4 devices"; last '"accuracy_plain":[0-9.]+,"accuracy":[0-9.]+,"matthews_plain":[-0-9.e]+,"matthews":'
expect "fixed numbers of tokens for texts" 2 "${story[@]}" --dataset tsv:table.tsv --groups 4 --map fixed --counts 8,8,8,8; err "--map fixed: texts to classify have lengths of their own"
grep -q '"LlamaForSequenceClassification"' classes/config.json || report "config.json does not say that it classifies"
# The same names in another order: each row of the head goes with its name, in an evaluation, a training and what that writes.
printf 'text\tlabel\n' >three.tsv
for i in 1 2 3 4 5 6 7 8 9 10; do printf 'Lily sees the sun.\tgood\nThe cat finds some old cake.\tbad\nTom and his dog are on a big red boat.\tfair\n'; done >>three.tsv
sed 's/good$/was/; s/fair$/good/; s/bad$/fair/; s/was$/bad/' three.tsv >turned.tsv
expect "three classes of texts" 0 "${story[@]}" --dataset tsv:three.tsv --groups 0 --max-steps 30 -l 3e-3 --out sure -q --json; last '"accuracy_plain":1.0,'
mkdir turned && cp sure/model.safetensors sure/tok512.bin turned && jq '.id2label = {"0": "fair", "1": "good", "2": "bad"} | .label2id = {"fair": 0, "good": 1, "bad": 2}' sure/config.json >turned/config.json
turned=(--model turned --dataset tsv:turned.tsv --context 32 --batch 4 --threads 1 --groups 0)
expect "an evaluation of classes in another order" 0 "${turned[@]}" --eval-only --json; last '"accuracy_plain":1.0,'; err "turned are in another order than those of --dataset tsv:turned.tsv: the rows of its head are matched by name"; ! grep -q warning err || report "a warning"
expect "a training of classes in another order" 0 "${turned[@]}" --max-steps 2 -l 1e-9 --out went-on --json -q; last '"accuracy_plain":1.0,'; silent err
expect "a teacher of classes in another order, by itself" 2 "${turned[@]}" --distill 0.5 --max-steps 1 --out taught --overwrite; err "--distill: the classes of turned are in another order than those of --dataset tsv:turned.tsv: its answers would teach"
run "what that wrote" 0 "$bin/astra-infer" eval -c ./went-on --dataset tsv:turned.tsv --json -q; last '"accuracy":1.0,'; silent err

# 399 bytes, then characters of three: what is shown ends before the one that does not fit. An escape would be obeyed by a terminal.
mkdir euro
{ printf '%*s' 399 '' | tr ' ' Q; for i in 1 2 3 4 5 6 7 8; do printf '\342\202\254'; done; } | tee euro/valid.txt >euro/train.txt
expect "the first window" 0 "${story[@]}" --dataset text:euro --context 404 --batch 1 --dry-run
grep -a -q '^first window: "Q\{399\}\.\.\."$' out || report "it does not end with a whole character"
{ printf 'text\tlabel\n'; for i in 1 2 3 4 5 6 7 8 9 10; do printf 'Lily \033[2J sees\tgood\nTom\tbad\n'; done; } >escape.tsv
expect "the first text" 0 "${story[@]}" --dataset tsv:escape.tsv --dry-run; out '^first text: "Lily  \[2J sees"$'
expect "a plan of what fits nowhere" 0 --model llama-3-8b --lora 16 --groups 32 --context 1024 --batch 1 --dry-run
out "^batch 1 of 1024 tokens; without --dataset there is no run to plan$"; ! grep -qE "steps|warm-up|epoch" out || report "a run without data is planned"
out "^parameters  *8072.20 M$"; out "^trainable parameters  *41.94 M$"; out "^  compression against 16-bit numbers (the paper.s) *51.2$"; out "^  compression against 32-bit numbers *102.4$"; out "frozen weights, 16 bits, mapped from their file  *15317.0 MiB"
out "^  codebooks, in 16 bits  *128.0 MiB$"; out "^  keys and values: own in 16 bits, others as codes  *33.9 MiB$"
out "the paper's M_KV^ASTRA (16 bits)  *33.9 MiB$"; out "the paper's M_KV^orig (16 bits)  *128.0 MiB$"
expect "a plan with predictions, whose keys and values are all in full" 0 --model llama-3-8b --groups 32 --site x --prediction --context 1024 --batch 1 --dry-run
out "^  keys and values, in 16 bits  *128.0 MiB$"; ! grep -q "others as codes" out || report "a cache in full is called one of codes"
expect "the same as JSON" 0 --model llama-3-8b --lora 16 --groups 32 --context 1024 --batch 1 --dry-run --json
[ "$(tail -n 1 out | jq -c '.run | [.steps, .epoch_steps, .warmup, .chosen]')" = '[null,null,null,""]' ] || report "it has the steps of no run"
last '"node":\{"tokens":1024,.*"work_bytes":[1-9][0-9]+,"total_bytes":1[0-9]{10},.*"paper_cache_bytes":35520512,"paper_cache_full_bytes":134217728\}\}$'

expect "no tokenizer" 1 --model gpt2 --init random --dataset text:text; err "no tokenizer beside gpt2"; err "astra-data tokenizer"
expect "no tokenizer of a preset that is nowhere to be had" 1 --model llama-3-8b --dataset text:text; err "no tokenizer beside llama-3-8b: name that of its weights"
expect "nor its weights" 1 --model llama-3-8b --tokenizer "$llama" --dataset text:text; err "do not belong together"
expect "no weights that could be fetched" 1 --model llama-15m --tokenizer "$root/checkpoints/gpt2-mini-g8" --dataset text:text; err "Give a Hugging Face directory or a GGUF file"
expect "no text" 1 "${story[@]}" --dataset text:nowhere; err "nowhere"
expect "a text that is too short" 1 "${story[@]}" --eval-dataset text:table.tsv --context 512; err "--context 512"; err "shorten the context"
expect "longer than the model takes" 2 "${story[@]}" --context 513; err "--context 513"; err "at most 512 tokens"
mkdir few; head -n 20 text/train.txt >few/train.txt; cp text/train.txt few/valid.txt
expect "fewer windows than a usual batch" 0 "${story[@]}" --dataset text:few --context 400 --batch 0 --groups 0 --max-steps 1 --out few-windows
err "defaults: batch \([3-7]\) for \1 windows, "
expect "fewer windows than --batch" 1 "${story[@]}" --dataset text:few --context 400 --batch 8; err "windows, fewer than a batch of 8; make the batch smaller"
expect "images for a language model" 2 "${story[@]}" --dataset cifar100-sample; err "learns from texts"
expect "texts for a vision transformer" 2 --model tiny --init random --dataset text:text; err "learns from images"
expect "an image's option" 2 "${story[@]}" --image-size 32; err "--image-size is for images"
expect "another one" 2 "${story[@]}" --cutmix 1; err "--cutmix is for images"
expect "a third" 2 "${story[@]}" --augment trivial; err "--augment is for images"
expect "a text's option" 2 "${tiny[@]}" --context 32; err "--context is for texts"
expect "perplexity of a training" 2 "${story[@]}" --perplexity word; err "--perplexity is for --eval-only"
for unit in word gpt2-paper; do
  expect "$unit of a part" 2 --model story --dataset text:text --context 32 --eval-only --perplexity $unit --eval-samples 2 --stride 1
  err "--perplexity $unit needs the whole text, of which --eval-samples takes 2 of [0-9]* windows"; silent out
done
expect "words of more windows than there are" 0 --model story --dataset text:text --context 32 --eval-only --perplexity word --eval-samples 100000 -q
expect "lost tokens of a training" 2 --model story --dataset text:text --context 32 --eval-only --token-loss 0.5; err "--token-loss 0.5 is for training"; err "give --eval-token-loss"
expect "adapters of an evaluation" 2 --model story --dataset text:text --context 32 --eval-only --lora 4; err "--lora 4 is for training"
for kind in "${story[*]}" "${tiny[*]}"; do
  # shellcheck disable=SC2086
  expect "a plan of an evaluation" 2 $kind --eval-only --dry-run; err "cannot be combined with --eval-only"; silent out
done
mkdir taken; echo '{}' >taken/tokenizer.json
for set in text:text tsv:table.tsv; do
  expect "another tokenizer's directory, $set" 1 "${story[@]}" --dataset $set --groups 4 --max-steps 2 --out taken
  err "^astra-train: error: --out: taken: its tokenizer.json belongs to another tokenizer"
  ! grep -q k-means err || report "it clustered before it looked"
  [ "$(ls taken)" = tokenizer.json ] || report "it left $(ls taken)"
done
mkdir merged && cp "$root"/checkpoints/gpt2-mini/{vocab.json,merges.txt,tokenizer.json} merged && cp merged/tokenizer.json theirs.json && cp -r merged merged-only
run "a tokenizer of one's own" 0 "$bin/astra-data" tokenizer -q -v 300 -o own "$root/datasets/enwiki-sample/train.txt"
from_own=(--model gpt2-mini --init random --tokenizer own --dataset text:text --context 32 --batch 4 --threads 1 --groups 0 --max-steps 1)
expect "over a tokenizer of merges" 1 "${from_own[@]}" --out merged; err "^astra-train: error: --out: merged holds another tokenizer than the run's"; err "overwrite"
same merged/tokenizer.json theirs.json; [ "$(ls merged | xargs)" = "merges.txt tokenizer.json vocab.json" ] || report "it left $(ls merged)"
expect "over it, as told" 0 "${from_own[@]}" --out merged --overwrite -q; same merged/tokenizer.json own/tokenizer.json
expect "beside its own tokenizer" 0 "${from_own[@]}" --out own -q; there own/model.safetensors
for one in chat_template.jinja generation_config.json; do # of no tokenizer that is there
  mkdir stale && echo theirs >stale/$one
  expect "over a former model's $one" 1 "${from_own[@]}" --out stale; err "^astra-train: error: --out stale holds finished work already ($one)"; err "overwrite"
  [ "$(cat stale/$one)" = theirs ] && [ "$(ls stale)" = $one ] || report "it left $(ls stale)"
  expect "over it, as told" 0 "${from_own[@]}" --out stale --overwrite -q; there stale/model.safetensors; [ ! -e stale/$one ] || report "$one is left"
  rm -r stale
done
expect "images over a tokenizer" 1 "${tiny[@]}" --groups 0 --max-steps 1 --out merged-only; err "merged-only holds finished work already (merges.txt)"
expect "no such convention" 2 "${story[@]}" --eval-only --perplexity line; err "gpt2-paper"
printf 'a\0b' >nul.txt
expect "a NUL byte" 1 "${story[@]}" --dataset text:nul.txt --eval-only; err "nul.txt, line 1: a NUL byte"

# ---- what it refuses, and leaves as it was

touch occupied
expect "a file in the way of --out" 1 "${tiny[@]}" --groups 8 --max-steps 1 --out occupied; err "occupied"
! grep -q k-means err || report "it clustered before it looked"
expect "an unwritable place" 1 "${tiny[@]}" --groups 8 --max-steps 1 --out /proc/nowhere; err "/proc/nowhere"

mkdir cut; cp run/config.json cut
for bytes in 0 7 100 5000 100000; do
  head -c $bytes run/model.safetensors >cut/model.safetensors
  expect "weights cut after $bytes bytes" 1 --model tiny "${data[@]}" --init cut --max-steps 1 --out never; err "cut/model.safetensors"
done
{ printf '\377\377\377\377\377\377\377\177'; tail -c +9 run/model.safetensors; } >cut/model.safetensors
expect "a lying header" 1 --model tiny "${data[@]}" --init cut --max-steps 1 --out never; err "cut/model.safetensors"
sed 's/"hidden_size": *48/"hidden_size": 96/' run/config.json >cut/config.json; cp run/model.safetensors cut
expect "weights of another width" 1 --model cut "${data[@]}" --max-steps 1 --out never; err "cut"; err "48"; err "96"
sed 's/"num_hidden_layers": *2/"num_hidden_layers": 1/' run/config.json >cut/config.json
expect "a deeper model's weights" 1 --model cut "${data[@]}" --max-steps 1 --out never; err "cut"; err "the model.s 1 block (tensor"
echo '{"model_type": "vit"' >cut/config.json
expect "a broken config.json" 1 --model cut "${data[@]}" --max-steps 1 --out never; err "cut/config.json"
[ ! -e never ] || report "a refused run made its directory"

expect "resume of nothing" 1 --resume none; err "--resume none: no run to resume here; give the --out directory of an interrupted run"
expect "resume with other options" 2 --resume run --groups 4; err "--groups"; err "--max-steps"
expect "a run of Muon" 0 "${tiny[@]}" --groups 0 --optimizer muon --max-steps 2 --out moved -q
expect "its states divided from now on" 2 --resume moved --max-steps 4 --shard-optimizer; err "muon needs whole matrices"
expect "resume of a finished run" 0 --resume run --json; err "step 4 of 4 is done already"; last "$accuracies"
expect "several bit rates" 0 "${tiny[@]}" --groups 8,2 --max-steps 2 --out rates --json; rates=$(jq -c '[.rates[] | .groups]' out)
[ "$(jq '.rates | length' out)" = 2 ] || report "not an evaluation of each: $rates"; cp out first
expect "and when they are done" 0 --resume rates --json; jq -se '.[0].rates == .[1].rates' first out >/dev/null || report "other evaluations than at the end of the run"
looking=(--model rates "${data[@]}" --eval-only)
expect "of one of them" 0 "${looking[@]}" --groups 2 --json; err "bit rate: the one with 2 groups, of 2, 8$"; [ "$(jq -c '[.rates[].groups]' out)" = "[2]" ] || report "another than the one asked for"
expect "of all of them" 0 "${looking[@]}" --groups 8,2 --json; err "bit rates: all, with 2, 8 groups$"; [ "$(jq '.rates | length' out)" = 2 ] || report "not an evaluation of each"
expect "of some that it does not have" 2 "${looking[@]}" --groups 2,4; err "--groups: with --eval-only one of 2, 8 is accepted, the bit rates of rates; without --groups all of them are evaluated"
cp -r run broken; head -c 3000 run/training/state.safetensors >broken/training/state.safetensors
cp -r run narrow
expect "and its export in 16 bits" 0 --resume narrow --dtype f16 -q
[ $(($(stat -c %s narrow/model.safetensors) * 10)) -lt $(($(stat -c %s run/model.safetensors) * 6)) ] || report "its weights are as large as before"
expect "resume of a cut state" 1 --resume broken --max-steps 6; err "broken/training/state.safetensors"
same run/model.safetensors broken/model.safetensors

# A full disk, as a limit on file sizes in KiB: first the weights do not fit, then the weights do and the state does not.
for limit in 100 $(($(stat -c %s run/model.safetensors) / 1024 + 50)); do
  rm -rf full; cp -r run full
  name="a full disk ($limit KiB)"
  (ulimit -f "$limit"; exec "$program" --resume full --max-steps 6) >out 2>err
  [ $? = 1 ] || report "exit code is not 1"
  err "cannot write full/.*safetensors"; err "nothing was replaced"; no_leftovers full
  same run/training/state.safetensors full/training/state.safetensors
  [ "$limit" != 100 ] || same run/model.safetensors full/model.safetensors
  expect "and on with room" 0 --resume full --max-steps 6 -q
  expect "without the accident" 0 --resume again --max-steps 6 -q
  same again/model.safetensors full/model.safetensors; same again/training/state.safetensors full/training/state.safetensors
done

# What cannot be written after the state loses nothing: the run goes on from its last step.
rm -rf full; cp -r run full; rm full/config.json; mkdir full/config.json
expect "no place for config.json" 1 --resume full --max-steps 6; err "the state after step 6 is saved, and .astra-train --resume full. writes the rest: .*config.json"
rmdir full/config.json
expect "the rest, of as many steps as it was asked for last" 0 --resume full; err "step 6 of 6 is done already"
for file in model.safetensors config.json training/state.safetensors; do same again/$file full/$file; done

# A disk that is too small is told of before the work. The weights are kept where the state, three times as large, does not fit.
mkdir disk
if unshare -rm mount -t tmpfs -o size=500k none disk 2>/dev/null; then
  name="a small disk"
  unshare -rm bash -c 'mount -t tmpfs -o size=500k none disk && "$@"; code=$?; ls disk/out; exit $code' - \
    "$program" "${tiny[@]}" --max-steps 1 --groups 0 --out disk/out >out 2>err
  [ $? = 1 ] || report "exit code is not 1"
  err "warning: a checkpoint of this run takes [0-9.]* MiB, and the disk of disk/out has 0.[0-9] MiB left"
  err "cannot write disk/out/training/state.safetensors"; out "^model.safetensors$"
else
  echo "skipped: a small disk, as this user may not mount one"
fi

# Weights that explode: the step and the tensor are named, and the last good checkpoint is kept.
expect "numbers run away" 1 "${tiny[@]}" --groups 8 --learning-rate 100 --weight-decay 10 --warmup 0 --clip 0 --max-steps 60 --checkpoint-every 1 --out wild
diverged="The first tensor with such a value is\|The first tensor that is not finite is\|the gradient of\|optimizer[.a-z]* holds a number that is not finite"
err "step [0-9]*"; err "$diverged"; err "lower"
there wild/model.safetensors; there wild/training/state.safetensors
cp -r wild kept
expect "they do so again" 1 --resume wild; err "$diverged"
same wild/model.safetensors kept/model.safetensors; same wild/training/state.safetensors kept/training/state.safetensors
expect "the kept weights are numbers" 0 --model wild "${data[@]}" --eval-only

# ---- interrupted runs

# wait_for PATTERN [FILE]: until the run's messages hold it, or the run has ended
wait_for() {
  until grep -q -e "$1" "${2:-$work/err}"; do
    kill -0 "$running" 2>/dev/null || return
    sleep 0.01
  done
}

# stop SIGNAL LEAST MOST ARGUMENTS...: starts a run and ends it at a random moment after a random step in [LEAST, MOST]; false when the run
# was done before.
stop() {
  local signal=$1 step=$(($2 + RANDOM % ($3 - $2 + 1)))
  shift 3
  : >"$work/err" # what an earlier run said must not be taken for this one's
  "$program" "$@" >"$work/out" 2>"$work/err" </dev/null &
  running=$!
  wait_for "step $step/"
  sleep "0.00$((RANDOM % 10))"
  kill -"$signal" "$running" 2>/dev/null
  wait "$running"
  got=$?
  running=
  [ $got != 0 ] || return 1
  [ $got = 1 ] || report "exit code $got after SIG$signal"
  err "interrupted after step [0-9]* of [0-9]*; go on with .astra-train --resume $name"
  [ -s "$name/curves.png" ] || report "no curves of what was interrupted"
  echo "$name: SIG$signal after step $step, $(grep -o 'interrupted after step [0-9]*' "$work/err")"
}

# A run in the place of another one that is killed before its first checkpoint: the state of that one is not its own.
expect "to be replaced" 0 "${tiny[@]}" --groups 0 --max-steps 2 --out replaced -q
"$program" "${tiny[@]}" --groups 0 --max-steps 100000 --checkpoint-every 100000 --log-every 1 -l 1e-5 --out replaced --overwrite >"$work/replaced.out" 2>"$work/replaced.log" </dev/null &
running=$!
wait_for "step 2/" "$work/replaced.log"
for second in "--resume replaced" "${tiny[*]} --groups 4 --max-steps 2 --out replaced --overwrite"; do
  # shellcheck disable=SC2086
  expect "beside a run in the same directory: $second" 1 $second; err "another process trains in replaced and holds replaced/training/lock: wait for its end"
  ! grep -q k-means err || report "it clustered before it looked"
done
kill -KILL "$running"
wait "$running" 2>/dev/null
running=
expect "the state of a run that was replaced" 1 --resume replaced; err "replaced/training/state.safetensors is not there: that run ended before its first checkpoint"

# survive NAME STEPS SIGNALS ARGUMENTS...: a run in one go, and one that each of the signals stops; both end with the same bytes.
survive() {
  name=$1
  local steps=$2 signals=$3 try signal arguments
  shift 3
  "$program" "$@" --max-steps "$steps" --log-every 1 --out "$name-whole" >out 2>err || report "exit code $?"
  for try in 1 2 3 4 5; do # a machine that stalls for long may let a run slip through
    local least=1 most=$((steps / 2))
    arguments=("$@" --max-steps "$steps" --log-every 1 --out "$name" --overwrite)
    for signal in $signals; do
      stop "$signal" "$least" "$most" "${arguments[@]}" || continue 2
      least=$(($(grep -o 'interrupted after step [0-9]*' "$work/err" | grep -o '[0-9]*$') + 1))
      most=$((steps - 4))
      [ $least -le $most ] || least=$most
      arguments=(--resume "$name")
    done
    break
  done
  [ $got = 1 ] || report "in $try tries no run could be stopped before it was done"
  expect "$name" 0 --resume "$name"
  for file in model.safetensors config.json selftest.safetensors training/state.safetensors training/evaluations.txt best/model.safetensors; do
    [ ! -e "$name-whole/$file" ] || same "$name-whole/$file" "$name/$file"
  done
  [ "$(tail -n +2 "$name/metrics.csv" | cut -d, -f1 | sort -n | uniq | wc -l)" = "$steps" ] || report "metrics.csv lacks steps"
  no_leftovers "$name"
}

# A row of the steps since the last one is written before the run ends.
expect_rows() { [ "$(cut -d, -f1 "$1/metrics.csv" | xargs)" = "$2" ] || report "metrics.csv has the steps $(cut -d, -f1 "$1/metrics.csv" | xargs), not $2"; }
name=interval
stop INT 40 40 "${tiny[@]}" --groups 4 --batch 100 --max-steps 100000 --eval-every 100000 --log-every 40 -l 1e-5 --out interval || report "it was not interrupted"
ended=$(grep -o 'interrupted after step [0-9]*' "$work/err" | grep -o '[0-9]*$')
expect_rows interval "step $(seq -s " " 40 40 "$ended")$([ $((ended % 40)) = 0 ] || echo " $ended")"
expect "it goes on behind them" 0 --resume interval --max-steps $((ended + 1)); expect_rows interval "step $(seq -s " " 40 40 "$ended")$([ $((ended % 40)) = 0 ] || echo " $ended") $((ended + 1)) $((ended + 1))"

echo "random moments: SEED=$seed"
many=(--batch 100) # 20 steps make an epoch
survive astra 50 "TERM INT" "${tiny[@]}" "${many[@]}" --groups 8 --devices 2-4 --map dirichlet --threads 2
survive averaged 25 "INT TERM" "${tiny[@]}" "${many[@]}" --groups 4 --accumulate 2 --mixup 0.2 --cutmix 1 --drop-path 0.2 --augment trivial --random-erasing 0.25 --validation-part 100 --ema-decay 0.99 --checkpoint-every 7 --keep-best
survive dropped 50 TERM "${tiny[@]}" "${many[@]}" --groups 0 --keep-best --patch-drop 0.5 --label-smoothing 0.1 --weight-decay 0.1
survive lossy 30 TERM "${tiny[@]}" "${many[@]}" --groups 4 --token-loss 0.2,span:3 --devices 2-4
survive story-kv 40 "TERM INT" "${story[@]}" --groups 4 --devices 2-4 --eval-samples 4
survive story-lora 40 TERM "${story[@]}" --lora 2 --accumulate 2 --recompute --eval-samples 4

[ $failed = 0 ] && echo "astra-train: command line, files and interrupted runs as expected"
exit $failed
