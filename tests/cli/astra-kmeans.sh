#!/bin/bash
# astra-kmeans from outside: makes codebooks of a tiny model on drawn images, evaluates and shows them, starts a training from them, counts codes;
# makes a checkpoint without training.
# Usage: tests/cli/astra-kmeans.sh; programs in $BUILD/bin (build/bin). limit: 90
. tests/cli/helpers.sh astra-kmeans
column() { awk -v row="$1" -v column="$2" '$1 == row { print $column }' "$work/out" | tr -d %; } # of the table in $work/out

mkdir model
cat >model/config.json <<'END'
{"model_type": "vit", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "image_size": 16,
 "patch_size": 4, "num_channels": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-12}
END
data="synthetic:16x16:4:160"
tiny=(--model model --init random --dataset "$data" --batch 16 --threads 2)

# ---- the command line
expect "help" 0 --help; out "^usage: astra-kmeans"; out "^  init "; out "^  eval "; out "^  show "; silent err
expect "version" 0 --version; out "^astra-kmeans [0-9]*\.[0-9]*\.[0-9]*$"
for command in init eval frequencies show; do
  expect "help of $command" 0 $command --help; out "^usage: astra-kmeans $command"; out "--json"; silent err
done
[ "$(wc -l <"$work/out")" -le 24 ] || report "help of show does not fit a screen"
expect "init of nothing" 2 init; err "For example: astra-kmeans init --model vit-cifar --dataset cifar100-sample --groups 8$"
expect "nothing" 2; err "no command given"; err "init, eval, frequencies, show"
expect "unknown command" 2 make; err "unknown command 'make'"
expect "unknown option" 2 show --colour; err "--colour"
expect "option of another command" 2 show --groups 4; err "--groups"
expect "argument" 2 show directory; err "unexpected argument \"directory\""
expect "no model" 2 init --dataset "$data"; err "--model is missing"; err "vit-base"
expect "no groups" 2 init "${tiny[@]}" --groups 0; err "--groups 0"; err "1 or more"
expect "one codeword" 2 init "${tiny[@]}" -k 1; err "-k"; err "2 to 65536"
expect "groups that do not divide" 2 init "${tiny[@]}" --groups 5 --out none; err "5"; err "32"
expect "more codewords than samples" 2 init "${tiny[@]}" -g 2 -k 512 --kmeans-samples 300 --out none; err "--codebook-size 512"; err "300"
expect "no weights" 1 init --model vit-base --dataset "$data" --out none; err "vit-base"; err "astra-data get vit-base"; err "--init random"
expect "unknown data" 2 init --model model --init random --dataset mnist; err "mnist"; err "synthetic:"
mkdir own; expect "codebooks among the images" 2 init --model model --init random --dataset folder:own --out own/codes; err "out own/codes lies in the data set's folder own, whose files it would join; give one outside$"; rmdir own
expect "bad synthetic data" 2 init --model model --init random --dataset synthetic:16x0:4; err "synthetic:16x0:4"
[ ! -e none ] || report "something was made"
expect "codebooks missing" 2 eval --dataset "$data"; err "--codebooks is missing"
expect "codebooks nowhere" 1 show --codebooks nowhere; err "nowhere"; err "no installed checkpoint of that name"
expect "codebooks of an installed checkpoint" 0 show --codebooks vit-cifar-g8; out "6 codebooks of 8 groups x 1024 codewords"
expect "a plain model" 1 show --codebooks model; err "plain model"

# ---- init
expect "init" 0 init "${tiny[@]}" -g 4 -k 32 --out books; out "4 groups x 32 codewords x 8 numbers"; err "k-means of block 1"
expect "few iterations" 0 init "${tiny[@]}" -g 4 -k 32 --kmeans-iterations 3 --out three; err "stopped after 3 iterations"
expect "many iterations" 0 init "${tiny[@]}" -g 4 -k 32 --kmeans-iterations 5000 --out many; err "converged after [0-9]* iterations"
expect "tolerance" 0 init "${tiny[@]}" -g 4 -k 32 --kmeans-tolerance 1 --kmeans-start plus-plus --out coarse; err "converged after 1 iteration, 0 empty clusters"
out "^0  "; out "^1  "
expect "iterations over parts of the samples" 0 init "${tiny[@]}" -g 4 -k 32 --kmeans-minibatch 50 --out parts -q; ! cmp -s books/codebooks.safetensors parts/codebooks.safetensors || report "the same codebooks as of all samples"
holds "$(column mean 2) > 0 && $(column mean 3) < 1 && $(column mean 4) > 1 && $(column mean 4) <= 32 && $(column mean 5) > 50"
first=$(column mean 3)
[ -s books/codebooks.safetensors ] && [ -s books/config.json ] && [ ! -e books/model.safetensors ] || report "files of the codebooks"
expect "the same --out again" 1 init "${tiny[@]}" -g 4 -k 32 --out books; err "--out books holds finished work already (codebooks.safetensors)"; err "--overwrite"
expect "init again" 0 init "${tiny[@]}" -g 4 -k 32 --out again --json --quiet; silent err
json '^\{"schema":1,"codebooks":"again","groups":4,"codebook_size":32,.*"bits_per_token":40\.0,.*"sites":\[\{"block":"0",.*"mean":\{.*\}\}$'
cmp -s books/codebooks.safetensors again/codebooks.safetensors || report "the same seed gives other codebooks"
expect "another seed" 0 init "${tiny[@]}" -g 4 -k 32 --out other --seed 7 -q
! cmp -s books/codebooks.safetensors other/codebooks.safetensors || report "another seed gives the same codebooks"
expect "four that load images" 0 init "${tiny[@]}" -g 4 -k 32 --workers 4 --out loaded -q
cmp -s books/codebooks.safetensors loaded/codebooks.safetensors || report "other codebooks than of one"
expect "without those that are held out" 0 init "${tiny[@]}" -g 4 -k 32 --validation-part 32 --out rest; err "^astra-kmeans: 128 images, "
expect "of those that would be held out" 0 init "${tiny[@]}" -g 4 -k 32 --validation-part 32 --train-part 64 --out kept; err "^astra-kmeans: 32 images, part of those held out, "
for pair in "books rest" "books kept" "rest kept"; do
  ! cmp -s "${pair% *}/codebooks.safetensors" "${pair#* }/codebooks.safetensors" || report "the codebooks in ${pair% *} and ${pair#* } are the same"
done
expect "over the other seed" 0 init "${tiny[@]}" -g 4 -k 32 --out other --overwrite -q; cmp -s books/codebooks.safetensors other/codebooks.safetensors || report "not replaced"
expect "more groups lose less" 0 init "${tiny[@]}" -g 16 -k 32 --out fine -q; holds "$(column mean 3) < $first"
expect "a file in the way" 1 init "${tiny[@]}" -g 4 -k 16 --out books/config.json; err "--out books/config.json"
! grep -q k-means "$work/err" || report "clustered for an --out that cannot be written"

# ---- show
expect "show" 0 show --codebooks books; out "2 codebooks of 4 groups x 32 codewords x 8 numbers"; out "^40 bits per token"; silent err
holds "$(column 1 2) > 0 && $(column 1 3) >= $(column 1 2) && $(column 1 4) >= $(column 1 3) && $(column 1 5) == 0"
expect "show as JSON" 0 show --codebooks books --json; json '"sites":\[\{"block":"0","norm_min":[0-9.]+,.*"norm_max":[0-9.]+,"duplicates":0\}\]\}$'
mkdir cut && cp books/* cut/ && head -c 1000 books/codebooks.safetensors >cut/codebooks.safetensors
expect "a cut file" 1 show --codebooks cut; err "cut/codebooks.safetensors"
sed -i 's/"codebook_size": *32/"codebook_size": 64/' cut/config.json; cp books/codebooks.safetensors cut/
expect "a configuration that lies" 1 show --codebooks cut; err "astra.layers.0.x.codebook"; err "\[4, 64, 8\]"; err "\[4, 32, 8\]"

# ---- eval
expect "eval" 0 eval --codebooks books "${tiny[@]}"; out "^mean "; err "test"
holds "$(column mean 3) > 0 && $(column mean 3) < 1 && $(column mean 5) + $(column mean 6) > 99.8"
expect "eval as JSON" 0 eval --codebooks books "${tiny[@]}" --eval-samples 10 --json -q; silent err
json '"relative_distortion":[0-9.]+,"perplexity":[0-9.]+'
expect "eval with moments" 0 eval --codebooks books "${tiny[@]}" --covariance; out "Cov(X^,R)"; out "W2^2 of X and X^ + noise"; out "^mean *[0-9.e-]* *[0-9.e-]* *[0-9.e-]* *[0-9.e-]* *[0-9.e-]*$"
expect "eval with moments as JSON" 0 eval --codebooks books "${tiny[@]}" --covariance --json -q; json '"covariance_quantised_residual":[0-9.e-]+,"wasserstein_quantised":[0-9.e-]+,"wasserstein_noisy":[0-9.e-]+,"wasserstein_full":[0-9.e-]+,"wasserstein_restored":'
expect "moments of eval alone" 2 init "${tiny[@]}" --covariance --out none; err "--covariance"
expect "eval without a model" 2 eval --codebooks books --dataset "$data"; err "holds codebooks alone"; err "--model"

# ---- samples: each once, also those of a last short batch; as many as a basis and predictions need, however few codewords there are
expect "all samples" 0 init --model model --init random --dataset synthetic:16x16:4:30 --batch 16 --threads 2 -g 1 -k 480 --kmeans-start random --kmeans-samples 1000 --out each -q
expect "and none of them twice" 0 show --codebooks each --json; holds "$(jq '[.sites[].duplicates] | add' out) == 0"
expect "few codewords" 0 init "${tiny[@]}" -g 4 -k 2 --prediction --out few --json -q; fitted=$(tail -n 1 out | jq .mean.relative_distortion)
expect "few codewords, of other images" 0 eval --codebooks few --model few --dataset "$data" --json -q; holds "$(tail -n 1 out | jq .mean.relative_distortion) < 2 * $fitted"
expect "few samples" 0 init "${tiny[@]}" -g 4 -k 2 --prediction --kmeans-samples 64 --out fewer -q; err "64 samples are few for a basis and predictions of 32 numbers"; err "512 or more"

# ---- a training that starts from them
run "training" 0 "$bin/astra-train" "${tiny[@]}" -g 4 -k 32 --codebooks books --max-steps 1 --eval-samples 8 --out trained
! grep -q k-means "$work/err" || report "the training ran K-means"
cp -r trained earlier; sed -i '/^# xxh3/d; s/^# begun in /--kmeans-tolerance\n0.1\n&/' earlier/training/options.txt
run "one begun when it took options of K-means, too" 0 "$bin/astra-train" --resume earlier --max-steps 2 -q
expect "eval of a checkpoint, which holds its model" 0 eval --codebooks trained --dataset "$data" -q; out "^mean "
expect "show of a checkpoint" 0 show --codebooks trained; out "4 groups x 32 codewords"
expect "init into a checkpoint" 1 init "${tiny[@]}" -g 4 -k 16 --out trained; err "trained holds a checkpoint"
! grep -q k-means "$work/err" || report "clustered for a directory that holds a checkpoint"

# ---- a full checkpoint without training
expect "predictions" 0 init "${tiny[@]}" -g 4 -k 32 --prediction --out ready; out "4 groups x 32 codewords x 8 numbers"; err "k-means of block 1"
[ -e ready/model.safetensors ] && [ -e ready/frequencies.safetensors ] && [ ! -e ready/codebooks.safetensors ] || report "not a checkpoint"
jq -e .astra.prediction ready/config.json >/dev/null || report "the configuration has no predictions"
jq -e ".astra.class_mean_power == 0.5" ready/config.json >/dev/null || report "class tokens do not count by the root of shares, as in training"
run "its self-test" 0 "$bin/astra-infer" selftest --checkpoint ready; out "^passed"
run "its evaluation" 0 "$bin/astra-infer" eval --checkpoint ready --dataset "$data" --nodes 2 --samples 8 --json; jq -e .top1 <"$work/out" >/dev/null || report "no accuracy"
expect "its codebooks" 0 eval --codebooks ready --dataset "$data" -q; out "^mean "
run "training from it" 0 "$bin/astra-train" --model ready --dataset "$data" --batch 16 -g 4 -k 32 --codebooks ready --max-steps 1 --eval-samples 8 --out continued
! grep -q k-means "$work/err" || report "the training ran K-means"
jq -e .astra.prediction continued/config.json >/dev/null || report "the predictions are gone"
for directory in ready/ ./ready "$work/ready"; do
  run "training from it as $directory" 0 "$bin/astra-train" --model ready --dataset "$data" --batch 16 --codebooks "$directory" --max-steps 1 --eval-samples 8 --out continued --overwrite -q
  jq -e .astra.prediction continued/config.json >/dev/null || report "the predictions are gone"
done
for use in "--max-steps 1" --eval-only; do
  # shellcheck disable=SC2086
  run "its codebooks for tokens as they are, $use" 2 "$bin/astra-train" "${tiny[@]}" -g 4 -k 32 --codebooks ready $use --out none
  err "the codebooks of ready are of another basis than this run's: rotation (there true, here false), prediction"; err "give --model ready"; [ ! -e none ] || report "it left something"
done
expect "predictions again" 1 init "${tiny[@]}" -g 4 -k 32 --prediction --out ready; err "--overwrite"
expect "into its own weights" 2 init --model ready --dataset "$data" -g 4 -k 32 --prediction --out ready --overwrite; err "it starts from"
expect "over a training" 1 init "${tiny[@]}" -g 4 -k 32 --prediction --out continued --overwrite; err "continued holds a training that can be resumed"
cp ready/model.safetensors cut.safetensors && head -c 20000 cut.safetensors >ready/model.safetensors
run "a truncated checkpoint" 1 "$bin/astra-infer" selftest --checkpoint ready; err "ready/model.safetensors"
expect "predictions in its place" 0 init "${tiny[@]}" -g 4 -k 32 --prediction --out ready --overwrite -q; cmp -s ready/model.safetensors cut.safetensors || report "not the same checkpoint"
cp -r ready replaced && cp books/codebooks.safetensors replaced && touch replaced/generation_config.json replaced/chat_template.jinja && mkdir replaced/best
expect "in place of one with files of its own" 0 init "${tiny[@]}" -g 4 -k 32 --prediction --out replaced --overwrite -q
[ ! -e replaced/generation_config.json ] && [ ! -e replaced/chat_template.jinja ] && [ ! -e replaced/best ] && [ ! -e replaced/codebooks.safetensors ] || report "files of the checkpoint before are left: $(ls replaced)"
cp -r books over
run "a training in place of the codebooks that it starts from" 0 "$bin/astra-train" "${tiny[@]}" -g 4 -k 32 --codebooks over --max-steps 1 --eval-samples 8 --out over --overwrite -q
cmp -s over/codebooks.safetensors books/codebooks.safetensors || report "what it starts from is gone"
run "a training in place of codebooks" 0 "$bin/astra-train" "${tiny[@]}" -g 0 --max-steps 1 --eval-samples 8 --out over --overwrite -q
[ ! -e over/codebooks.safetensors ] || report "codebooks lie beside a plain model"
mkdir held && echo '{}' >held/tokenizer.json
expect "beside another tokenizer" 1 init --model "$root/tests/golden/stories260K" --dataset "text:$root/datasets/enwiki-sample" --context 32 -g 4 -k 16 --prediction --kmeans-samples 256 --out held
err "--out: held: its tokenizer.json belongs to another tokenizer"; ! grep -q k-means "$work/err" || report "clustered before it looked"
[ "$(ls held)" = tokenizer.json ] || report "it left $(ls held)"
expect "codes of the first block alone" 0 init "${tiny[@]}" -g 4 -k 32 --prediction --exchange-blocks 1 --out early; out "1 codebook of 4 groups"; out "20 bits per token over the first 1 of [2-9] blocks"
run "its self-test" 0 "$bin/astra-infer" selftest --checkpoint early; out "^passed"
expect "its codebooks" 0 eval --codebooks early --dataset "$data" --json -q; jq -e '.exchange_blocks == 1 and (.sites | length) == 1' "$work/out" >/dev/null || report "not those of one block"
expect "its frequencies" 0 frequencies --checkpoint early --dataset "$data" --eval-samples 8 --json -q; jq -e '.packed_bits_per_token == 20' "$work/out" >/dev/null || report "not the bits of one block"
expect "rotation" 0 init "${tiny[@]}" -g 4 -k 32 --rotation --out turned -q; jq -e '.astra.rotation and (.astra.prediction | not)' turned/config.json >/dev/null || report "no rotation"

settings=".astra | [.class_token, .class_bias, .class_mean_power, .noise, .commitment_weight, .devices_min, .devices]"
for kind in "--class-token single" "--class-token distributed --class-bias -0.5 --class-mean-power 0.25"; do
  # shellcheck disable=SC2086
  run "a model with $kind" 0 "$bin/astra-train" "${tiny[@]}" -g 4 -k 32 $kind --noise 0.5 --commitment 0.125 --devices 2-3 --max-steps 1 --eval-samples 8 --out adapted --overwrite -q
  expect "predictions of $kind" 0 init --model adapted --dataset "$data" -g 4 -k 32 --prediction --out readapted --overwrite -q
  [ "$(jq -c "$settings" readapted/config.json)" = "$(jq -c "$settings" adapted/config.json)" ] || report "config.json says $(jq -c .astra readapted/config.json)"
done
expect "the classifier of other classes" 2 init --model ready --dataset synthetic:16x16:3:160 -g 4 -k 32 --prediction --out none
err "ready has no classifier for the 3 classes of --dataset synthetic:16x16:3:160"; [ ! -e none ] || report "it left something"
jq '.id2label[] |= "my " + .' ready/config.json >named.json; cp -r ready named; cp named.json named/config.json
expect "classes of other names" 0 init --model named --dataset "$data" -g 4 -k 32 --prediction --out renamed; err "the classes of named have other names than those of --dataset $data"
[ "$(jq -c .id2label renamed/config.json)" = "$(jq -c .id2label named.json)" ] || report "the classifier's classes are called otherwise"
expect "codebooks alone, of other classes" 0 init --model ready --dataset synthetic:16x16:3:160 -g 4 -k 32 --out of-others -q

mkdir sharded && cp trained/*.json sharded/ && cp trained/model.safetensors sharded/model-00001-of-00001.safetensors
echo '{"weight_map": {"classifier.bias": "model-00001-of-00001.safetensors"}}' >sharded/model.safetensors.index.json
cp sharded/config.json before
expect "eval of a checkpoint in shards" 0 eval --codebooks sharded --dataset "$data" -q; out "^mean "
expect "init into a checkpoint in shards" 1 init "${tiny[@]}" -g 4 -k 16 --out sharded; err "sharded holds a checkpoint (model.safetensors.index.json)"
cmp -s before sharded/config.json || report "the checkpoint's configuration was replaced"
run "training with other groups" 1 "$bin/astra-train" "${tiny[@]}" -g 8 -k 32 --codebooks books --max-steps 1 --out none -q
err "astra.layers.0.x.codebook"

# ---- frequencies of codes: from the training, counted, used between processes
[ -s trained/frequencies.safetensors ] || report "the training left no frequencies"
mkdir counted && cp trained/*.json trained/model.safetensors counted/
eval=("$bin/astra-infer" eval --dataset "synthetic:16x16:4:64" --nodes 3 --table-memory 0 --json --quiet)
run "entropy coding without frequencies" 2 "${eval[@]}" --checkpoint counted --entropy on; err "--entropy on: counted has no frequencies"
run "packed codes" 0 "${eval[@]}" --checkpoint counted --entropy off; json '"coded_bits_per_token_block_receiver":20\.0,"packed_bits_per_token_block_receiver":20\.0'
cp "$work/out" packed
expect "frequencies" 0 frequencies --checkpoint counted --dataset "$data" --threads 1; err "counting the codes of"
out "^frequencies of codes added to counted: a token of the test part takes [0-9.]* bits where packed codes take 40 (-[0-9.]*%)$"
[ -s counted/frequencies.safetensors ] || report "no file"
cmp -s counted/model.safetensors trained/model.safetensors || report "the weights were changed"
cp counted/frequencies.safetensors first
expect "frequencies again" 0 frequencies --checkpoint counted --dataset "$data" --threads 1 --json -q; silent err
json '"packed_bits_per_token":40\.0,"coded_bits_per_token":[0-9.]+\}$'
cmp -s counted/frequencies.safetensors first || report "the same codes were counted differently"
promised=$(sed 's/.*"coded_bits_per_token":\([0-9.]*\).*/\1/' "$work/out")
run "coded codes" 0 "${eval[@]}" --checkpoint counted --entropy on
sent=$(sed 's/.*"coded_bits_per_token_block_receiver":\([0-9.]*\).*/\1/' "$work/out")
holds "$promised > 20 && $promised < 40 && 2 * $sent > $promised - 1 && 2 * $sent < $promised + 3 && $sent < 20" # bits of two blocks; a packet's ends
as_packed() { holds "($(jq .loss out) - $(jq .loss packed)) ^ 2 < 1e-10"; } # the same codes, or some that differ
as_packed
run "as text" 0 "$bin/astra-infer" eval --dataset "synthetic:16x16:4:64" --nodes 3 --checkpoint counted --entropy on
out "^entropy coding: 1[0-9.]* bits per token instead of 20.00 (-[0-9.]*%)$"; out "^entropy coding: 9[0-9.]*% of the bits that codes take packed$"
run "those of the training serve as well" 0 "${eval[@]}" --checkpoint trained --entropy on
holds "$(sed 's/.*"coded_bits_per_token_block_receiver":\([0-9.]*\).*/\1/' "$work/out") <= 20"
expect "rounds of nothing" 2 frequencies --checkpoint counted --dataset "$data" --rounds 2; err "rounds is for an --entropy-weight above 0"
expect "fewer bits" 0 frequencies --checkpoint counted --dataset "$data" --threads 1 --entropy-weight 0.1 --rounds 2 --json -q
fewer=$(sed 's/.*"coded_bits_per_token":\([0-9.]*\).*/\1/' "$work/out")
run "cheaper codes" 0 "${eval[@]}" --checkpoint counted --entropy on
cheaper=$(sed 's/.*"coded_bits_per_token_block_receiver":\([0-9.]*\).*/\1/' "$work/out")
holds "$fewer < $promised - 1 && 2 * $cheaper > $fewer - 1 && 2 * $cheaper < $fewer + 3 && $cheaper < $sent"
holds "($(jq .loss out) - $(jq .loss packed)) ^ 2 > 1e-8" # other codes
run "the nearest codes, packed" 0 "${eval[@]}" --checkpoint counted --entropy off
as_packed
cp trained/selftest.safetensors counted/
run "self-test with cheaper codes" 0 "$bin/astra-infer" selftest --checkpoint counted
# A training that is finished, resumed for another type of numbers, keeps them; a step makes codebooks that they are not of.
cp -r trained finished; cp counted/frequencies.safetensors finished
run "resumed at its end" 0 "$bin/astra-train" --resume finished --dtype bf16 -q
cmp -s counted/frequencies.safetensors finished/frequencies.safetensors || report "what was counted, or its weight, is gone"
cp -r trained ended; cp counted/frequencies.safetensors ended
run "resumed at its end, evaluated as its files are" 0 "$bin/astra-train" --resume ended; err "codes are assigned with the entropy weight 0.1 of ended"
run "resumed at its end again" 0 "$bin/astra-train" --resume finished -q
cmp -s counted/frequencies.safetensors finished/frequencies.safetensors || report "what was counted, or its weight, is gone"
rm finished/selftest.safetensors; mkdir finished/selftest.safetensors # as a kill or a full disk, behind the weights
run "resumed at its end, not written whole" 1 "$bin/astra-train" --resume finished -q; err "finished/selftest.safetensors"
cmp -s counted/frequencies.safetensors finished/frequencies.safetensors || report "what was counted, or its weight, is gone"
rmdir finished/selftest.safetensors
run "resumed for a step" 0 "$bin/astra-train" --resume finished --max-steps 2 -q
! grep -q astra.entropy_weight finished/frequencies.safetensors || report "frequencies are those of earlier codebooks"
cp -r finished behind; cp trained/model.safetensors behind; cp counted/frequencies.safetensors behind
run "resumed after a step whose weights were not written" 0 "$bin/astra-train" --resume behind -q
cmp -s finished/frequencies.safetensors behind/frequencies.safetensors || report "frequencies are those of earlier codebooks"
expect "no such weight" 2 frequencies --checkpoint counted --dataset "$data" --entropy-weight -1; err "entropy-weight"
head -c 300 first >counted/frequencies.safetensors
run "a cut file" 1 "${eval[@]}" --checkpoint counted; err "counted/frequencies.safetensors"
cp few/frequencies.safetensors counted/
run "of other codebooks" 1 "${eval[@]}" --checkpoint counted; err "counted/frequencies.safetensors: the configuration asks for tensor astra.layers.0.x.frequencies of shape \[4, 32\]"
expect "frequencies without a checkpoint" 2 frequencies --dataset "$data"; err "--checkpoint is missing"
expect "frequencies of nothing" 1 frequencies --checkpoint nowhere --dataset "$data"; err "nowhere"
expect "frequencies of codebooks alone" 1 frequencies --checkpoint books --dataset "$data"; err "books holds no model.safetensors"
run "a plain model" 0 "$bin/astra-train" "${tiny[@]}" --groups 0 --max-steps 1 --eval-samples 8 --out plain -q
expect "frequencies of a plain model" 1 frequencies --checkpoint plain --dataset "$data"; err "plain model"; err "sends no codes"

# ---- texts: keys and values of a bundled Llama
for i in 1 2 3 4 5 6 7 8; do echo "Lily sees the sun. Tom finds a ball number $i. The cat likes her mom."; done >text.txt
export XDG_CACHE_HOME="$work/cache"
story=(--model "$root/tests/golden/stories260K" --dataset text:text.txt --context 16 --threads 1 -q)
expect "init on text" 0 init "${story[@]}" -g 4 -k 16 --out books-kv; out "^books-kv: 10 codebooks of 4 groups x 16 codewords x 8 numbers"; out "^0.k "; out "^4.v "
expect "eval on text" 0 eval --codebooks books-kv "${story[@]}"; out "^mean "
expect "init at the other site" 0 init "${story[@]}" -g 4 -k 16 --site x --out books-x; out "^books-x: 5 codebooks of 4 groups x 16 codewords x 16 numbers"
expect "predictions of text" 0 init "${story[@]}" -g 4 -k 16 --site x --prediction --out ready-x
run "the self-test of text" 0 "$bin/astra-infer" selftest --checkpoint ready-x; out "^passed"
run "training from them" 0 "$bin/astra-train" "${story[@]}" -g 4 -k 16 --site x --codebooks books-x --max-steps 1 --out story
# Codes chosen by their bits, as devices that entropy-code choose them, in what evaluates the emulated ones, too.
text=(--dataset text:text.txt --context 16 --threads 1)
run "training for them" 0 "$bin/astra-train" "${story[@]}" -g 4 -k 16 --codebooks books-kv --max-steps 1 --out cheap
expect "the nearest codes of text" 0 eval --codebooks cheap "${text[@]}" -q; nearest=$(column mean 3)
expect "frequencies of text" 0 frequencies --checkpoint cheap "${text[@]}" --entropy-weight 0.2 -q
expect "cheaper codes of text" 0 eval --codebooks cheap "${text[@]}"; holds "$(column mean 3) > 1.2 * $nearest"; err "entropy weight 0.2 of cheap's frequencies"
run "on devices" 0 "$bin/astra-infer" eval --checkpoint cheap --dataset text:text.txt --context 16 --nodes 4 --entropy on --json -q; devices=$(jq .perplexity "$work/out")
run "on emulated ones" 0 "$bin/astra-train" --model cheap "${text[@]}" --eval-only --eval-part whole --json; err "entropy weight 0.2 of cheap's frequencies, as by devices that entropy-code (astra-infer --entropy on; auto where that saves 5%)"
err "astra-infer eval --entropy off. evaluates without it"
holds "($(jq .perplexity "$work/out") / $devices - 1) ^ 2 < 1e-8"
run "on devices that do not" 0 "$bin/astra-infer" eval --checkpoint cheap --dataset text:text.txt --context 16 --nodes 4 --entropy off --json -q; devices=$(jq .perplexity "$work/out")
run "an option of astra-infer alone" 2 "$bin/astra-train" --model cheap "${text[@]}" --eval-only --entropy off; err "unknown option --entropy"
rm cheap/frequencies.safetensors
run "on emulated ones without a weight" 0 "$bin/astra-train" --model cheap "${text[@]}" --eval-only --eval-part whole --json -q
holds "($(jq .perplexity "$work/out") / $devices - 1) ^ 2 < 1e-8"
expect "init of a language model on images" 2 init --model gpt2-mini --init random --dataset "$data"; err "learns from texts"

[ $failed = 0 ] && echo "astra-kmeans: command line, codebooks and reports as expected"
exit $failed
