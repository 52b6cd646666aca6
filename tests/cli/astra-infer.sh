#!/bin/bash
# astra-infer from outside: exit codes and the lines people rely on.
. tests/network/helpers.sh
make_checkpoint "$work/model" tiny 4 50 4
make_checkpoint "$work/plain" tiny 0
# An 8x8 PNG: red, and the same file cut short.
printf '%s' iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mP4z8CAFTEMLQkAKP8/wc53yE8AAAAASUVORK5CYII= | base64 -d >"$work/red.png"
head -c 50 "$work/red.png" >"$work/broken.png"

expect "help" 0 --help; out "^usage: astra-infer"; out "^  eval "; out "^  selftest "; silent err
[ "$(wc -l <"$work/out")" -le 56 ] || report "--help is too long"
! grep -q -e "--special" "$work/out" || report "--help lists what is rare"
for command in eval selftest; do
  expect "help of $command" 0 $command --help; out "^usage: astra-infer $command"; out "--checkpoint"; silent err
done
expect "version" 0 --version; out "^astra-infer [0-9]*\.[0-9]*\.[0-9]*$"

expect "keygen" 0 keygen "$work/key"; silent out; err "copy it to each device of the cluster, readable only by its owner$"
[ "$(stat -c %a "$work/key")" = 600 ] || report "$name: mode $(stat -c %a "$work/key")"
grep -qxE '[0-9a-f]{64}' "$work/key" && [ "$(wc -l <"$work/key")" = 1 ] || report "$name: not a line of 64 digits"
cp "$work/key" "$work/key.before"
expect "keygen again" 1 keygen "$work/key"; err "$work/key: already exists; a lost key cannot be recovered, so delete the file yourself first$"
cmp -s "$work/key" "$work/key.before" || report "$name: the key has changed"
expect "keygen to stdout" 0 keygen; out '^[0-9a-f]\{64\}$'; silent err
cmp -s "$work/out" "$work/key" && report "$name: the same key twice"
expect "keygen of two" 2 keygen a b; err "one FILE"
expect "keygen where nothing is" 1 keygen "$work/nowhere/key"; err "$work/nowhere/key"
expect "keygen without a name" 2 keygen ""; err "name of FILE is empty"
for option in --help -h; do expect "links $option" 0 links $option; out "--transport"; silent err; done
expect "links of something" 2 links photo.png; err "photo.png"
expect "a queue of nobody" 2 worker -c model --busy refuse --queue 3; err "queue is for --busy queue"
expect "help of keygen" 0 keygen --help; out "^usage: astra-infer keygen"

expect "nothing" 2; err "--checkpoint"; silent out
expect "nodes of nothing" 2 --nodes 3; err "For example: astra-infer --nodes 3 .*--checkpoint .*/checkpoints/vit-cifar.* .*/datasets/pictures$"
# shellcheck disable=SC2046
expect "the example" 0 $(sed -n "s/.*For example: astra-infer //p" "$work/err"); out "apple"
expect "no image" 2 -c model; err "no image"; silent out
expect "an image without a name" 2 -c model red.png ""; err "argument 2 is empty"; silent out
expect "unknown option" 2 -c model --nods 4 red.png; err "--nods"
expect "too many nodes" 2 -c model --nodes 65 red.png; err "--nodes"; err "from 0 to 64"
expect "the limit in the help" 0 --help; out "at most 64"
expect "bad split" 2 -c model --split 3,x red.png; err "--split 3,x"
expect "a share for one of two" 2 -c model --nodes 2 --split 1 red.png; err "--split 1 names 1 node, but there are 2"
expect "split against nodes" 2 -c model --nodes 3 --split 1,1 red.png; err "2 nodes"
expect "more nodes than tokens" 2 -c model --nodes 17 red.png; err "--nodes 17: 17 nodes for 16 tokens"
expect "eval without data set" 2 eval -c model; err "--dataset"
expect "a mistyped command" 2 evl -c model; err "unknown command 'evl'; the commands are: .*eval, selftest"
mkdir "$work/no_model"; expect "a folder that holds no model" 1 -c ./no_model red.png; err "./no_model: there is no config.json; give the directory of a model"
mkdir "$work/looped"; ln -s config.json "$work/looped/config.json"; expect "a config.json that cannot be reached" 1 -c ./looped red.png; err "./looped/config.json: Too many levels of symbolic links"
expect "eval with a stray argument" 2 eval -c model -d cifar100 red.png; err "takes options only"
expect "no such checkpoint" 1 -c nowhere red.png; err "nowhere"
expect "no such directory" 1 -c ./nowhere red.png; err "checkpoint ./nowhere: there is no such directory or GGUF file; give that of a model"
[ "$(grep -o nowhere "$work/err" | wc -l)" = 1 ] || report "$name: named more than once"
touch "$work/notes"
expect "a checkpoint that is a file of something else" 1 -c notes red.png; err "checkpoint notes: it is no directory or GGUF file"
expect "waiting for no workers" 2 -c model --wait 5 red.png; err "--wait: a busy worker is waited for, one of --peers, of which none"
expect "a unit of no losses" 2 -c model -n 2 --loss-unit token red.png; err "--loss-unit token is for --loss SHARE"
expect "rows into a directory" 1 eval -c model -n 2 -d folder:pictures --per-sample no_model; err "cannot write no_model: it is a directory; give the name of a file"; silent out
expect "a blank behind a comma" 2 -c model --peers "127.0.0.1:1, host" red.png; err 'peers: "host" is not an address: the port is missing'
expect "no such data set" 1 eval -c model -d folder:nowhere; err "nowhere"
expect "plain on four" 2 -c plain -n 4 red.png; err "--nodes 4: a plain model .*--nodes 1"; silent out
expect "plain on as many as shares" 2 -c plain --split 3,1 red.png; err "--split 3,1: a plain model"; silent out
expect "more devices than heads, as trained" 2 -c model --strategy tp red.png; err "--strategy: strategy tp: 4 devices for . key and value heads"; silent out

expect "four nodes" 0 -c model -n 4 red.png; out "^red.png$"; out "%  LABEL_"; out "^node  tokens  *compute ms"; silent err
[ "$(grep -c '%  LABEL_' "$work/out")" = 5 ] || report "$name: not five classes"
[ "$(grep -c '^   [0-3]       4 ' "$work/out")" = 4 ] || report "$name: not four rows of four tokens"
expect "as trained" 0 -c model red.png --quiet --top 2; [ "$(wc -l <"$work/out")" = 3 ] || report "$name: not three lines"
expect "split" 0 -c model --split 5,2,1 red.png; out "^   0      10 "; out "^   2       2 "
# 16 tokens by any rule: each node's share, and the sum of their squares over 256.
shared() { # NAME TOKENS FPAR ARGUMENTS...
  name=$1
  local tokens=$2 fpar=$3
  shift 3
  expect "$name" 0 -c model "$@" red.png; out "^full-precision attention rate $(printf %.3f "$fpar")$"
  [ "$(sed -n 's/^   [0-9] *\([0-9]*\) .*/\1/p' "$work/out" | xargs)" = "$tokens" ] || report "$name: other shares than $tokens"
  expect "$name, JSON" 0 -c model --json "$@" red.png; out "\"fpar\":$fpar[,}]"
  [ "$(tail -1 "$work/out" | grep -o '"tokens":[0-9]*' | sed 's/.*://' | xargs)" = "$tokens" ] || report "$name: other shares than $tokens"
}
shared "split 3,1,1,1" "8 3 3 2" 0.3359375 --split 3,1,1,1
shared "split 1,7" "2 14" 0.78125 --split 1,7
shared "three nodes" "6 5 5" 0.3359375 -n 3
shared "seven nodes" "3 3 2 2 2 2 2" 0.1484375 -n 7
# Which tokens: the shares and bytes stay, the answers change.
expect "trained layout" 0 -c model --json red.png; json_holds '.layout == "checkerboard"'
for layout in raster strided checkerboard random:1 random:2; do
  expect "layout $layout" 0 -c model --layout $layout --split 3,1,1,1 --json red.png
  json_holds ".layout == \"$layout\" and [.nodes[].tokens] == [8, 3, 3, 2]"
  jq -c '.images[0].top' "$work/out" >>"$work/answers"
done
[ "$(sort -u "$work/answers" | wc -l)" = 5 ] || report "layouts: $(sort -u "$work/answers" | wc -l) different answers of 5"
expect "trained layout, uneven" 0 -c model --layout trained --split 3,1,1,1 --json red.png
[ "$(jq -c '.images[0].top' "$work/out")" = "$(sed -n 3p "$work/answers")" ] || report "trained layout: another answer than checkerboard"
sed 's/"layout": *"checkerboard"/"layout": "random:2"/' "$work/model/config.json" >"$work/config.json"
cp "$work/model/config.json" "$work/config.before"; cp "$work/config.json" "$work/model"
expect "the checkpoint's layout" 0 -c model --split 3,1,1,1 --json red.png; json_holds '.layout == "random:2"'
[ "$(jq -c '.images[0].top' "$work/out")" = "$(sed -n 5p "$work/answers")" ] || report "the checkpoint's layout: another answer than --layout random:2"
cp "$work/config.before" "$work/model/config.json"
for layout in diagonal random random:x permuted; do
  expect "layout $layout" 2 -c model --layout $layout red.png; err "--layout $layout: accepted are raster, strided, checkerboard or random:SEED"
done
expect "sequence parallel with a layout" 0 -c model -n 2 --strategy sp --layout checkerboard --json red.png
jq -c '[.images[0].top[].class]' "$work/out" >"$work/sp"
expect "sequence parallel, raster" 0 -c model -n 2 --strategy sp --layout raster --json red.png
jq -c '[.images[0].top[].class]' "$work/out" | cmp -s - "$work/sp" || report "$name: full precision depends on the layout"

expect "one node" 0 -c model -n 1 red.png; out "^   0      16 .* 0  *0$"
expect "plain" 0 -c plain red.png; out "^red.png$"
expect "threads" 0 -c model -n 2 -t 2 red.png; out "^red.png$"
expect "verbose" 0 -c model -n 2 -v red.png; err "^node 1 is pid [0-9]*$"

expect "tables" 0 -c model -n 2 -v --table-memory 1M red.png; cp "$work/out" "$work/with"
err "keys and values of other nodes' tokens .*256 tokens in a block[: ]* [0-9.]* ms, by products [0-9.]* ms"
expect "no tables" 0 -c model -n 2 -v --table-memory 0 red.png
grep -q "keys and values" "$work/err" && report "$name: tables are told of"
[ "$(head -6 "$work/out")" = "$(head -6 "$work/with")" ] || report "$name: other answers than with tables"
expect "too little for a table" 0 -c model -n 2 -v --table-memory 10k red.png; err "of 4 groups has no room in --table-memory"
for size in 1X -1 lots; do expect "tables of $size" 2 -c model --table-memory "$size" red.png; err "--table-memory: '$size'"; done
expect "tables in json" 0 -c model -n 2 --json red.png
tail -1 "$work/out" | grep -qE '"tables":\{"chosen":"tables","blocks":3,"bytes":153600,"tables_ms":[0-9.e-]+,"product_ms":[0-9.e-]+\}' || report "$name"
tail -1 "$work/out" | grep -q '"coded_bits":.*"tables_ms":' || report "$name: no times of nodes"
expect "one node has no tables" 0 -c model -n 1 --json red.png
tail -1 "$work/out" | grep -q '"tables":' && report "$name"
expect "no frequencies" 2 -c model -n 2 --entropy on red.png; err "--entropy on: model has no frequencies of codes; astra-kmeans frequencies"
expect "no codes of a plain model" 2 -c plain --entropy on red.png; err "--entropy on: a plain model has no codebooks, and so no codes to send"
for strategy in sp single; do
  expect "no codes by $strategy" 2 -c model -n 2 --strategy $strategy --entropy on red.png; err "--entropy on: --strategy $strategy sends no codes"
done
expect "no such coding" 2 -c model --entropy some red.png; err "--entropy"
# shellcheck disable=SC2086
for option in "--datagrams 4" "--mtu 1500"; do expect "$option in a stream" 2 -c model -n 2 $option red.png; err "${option% *} is for --transport udp"; done

# The device of this machine has nothing to say of it, whether it began before or after the leader gave up.
for i in 1 2 3 4; do
  expect "a worker that is not there, $i" 1 plan -c model --peers unix:/none
  err "^astra-infer: error: unix:/none: "
  [ "$(grep -vcE 'warning: (the environment forces slower kernels|OpenBLAS does not know this processor)' "$work/err")" = 1 ] || report "$name: more than one line"
done

expect "missing and broken images" 1 -c model -n 2 red.png missing.png broken.png red.png
[ "$(grep -c '^red.png$' "$work/out")" = 2 ] || report "$name: the good ones did not run"
err "missing.png"; err "broken.png"; err "2 of 4 images"
expect "only broken" 1 -c model -n 2 broken.png; err "broken.png"

mkdir -p "$work/folder/deeper" "$work/empty"
cp "$work/red.png" "$work/folder/b.PNG"; cp "$work/red.png" "$work/folder/a.png"; cp "$work/red.png" "$work/folder/.hidden.png"
cp "$work/red.png" "$work/folder/deeper/c.png"; echo words >"$work/folder/readme.txt"; echo words >"$work/folder/notes"
expect "a directory" 0 -c model -n 2 folder red.png --top 1; err "2 files skipped: no image by the name"
[ "$(grep 'png$\|PNG$' "$work/out" | xargs)" = "folder/a.png folder/b.PNG red.png" ] || report "$name: not its images, sorted"
expect "a directory, quiet" 0 -c model -n 2 folder -q; silent err
cp -r "$work/model" "$work/unprepared"; rm "$work/unprepared/preprocessor_config.json"
expect "a model that does not say how its images are prepared" 0 -c ./unprepared -n 2 red.png red.png -q; err "warning: ./unprepared has no preprocessor_config.json: images are resized bilinearly"
[ "$(grep -c preprocessor_config "$work/err")" = 1 ] || report "$name: it is said more than once"
# Adapters that nobody has merged, in a shard of their own: the answers are those of the model below them. Said once, by whoever loads them.
mkdir "$work/adapted"; cp "$work"/model/*.json "$work/adapted"; cp "$work/model/model.safetensors" "$work/adapted/base.safetensors"
header='{"vit.encoder.layer.0.attention.attention.query.lora_A.weight":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},"vit.encoder.layer.0.attention.attention.query.lora_B.weight":{"dtype":"F32","shape":[1,1],"data_offsets":[4,8]}}'
{ printf "\\x$(printf %x ${#header})\0\0\0\0\0\0\0%s\0\0\0\0\0\0\0\0" "$header"; } >"$work/adapted/lora.safetensors"
echo '{"weight_map": {"a": "base.safetensors", "b": "lora.safetensors"}}' >"$work/adapted/model.safetensors.index.json"
unused="warning: 2 tensors of [^ ]*adapted belong to no parameter of the model, the first is vit.encoder.layer.0.attention.attention.query.lora_A.weight: they are not used; merge adapters"
expect "adapters beside the weights" 0 -c ./adapted -n 4 red.png -q; err "$unused"; [ "$(grep -c "belong to no parameter" "$work/err")" = 1 ] || report "$name: said more than once"
for checkpoint in adapted model; do
  name="training from $checkpoint"; "$bin/astra-train" --model "$work/$checkpoint" --dataset cifar100-sample --data-dir datasets --dry-run >"$work/out" 2>"$work/err" || report "exit code $?"
  [ "$(grep -c "no parameter" "$work/err")" = "$([ $checkpoint = model ] && echo 0 || echo 1)" ] || report "warnings of tensors"
done
expect "a directory without images" 1 -c model -n 2 empty; err "empty: a directory without images (jpg, .*tiff)"
cp "$work/folder/readme.txt" "$work/words.png"
expect "not an image" 1 -c model -n 2 words.png; err "words.png: not an image that can be read.*this build reads JPEG, PNG, BMP"

expect "json" 0 -c model -n 4 --json red.png red.png --top 3
json_holds '[.images[].top | length] == [3, 3] and .images[0].file == "red.png" and (.image_milliseconds | length == 2)'
json_holds '.images[0].top[0].probability | 0 < . and . <= 1'
json_holds '[.images[].top | map([.class, (.probability * 10000 | round)])] | .[0] == .[1]'
json_holds '[.nodes[].tokens] == [4, 4, 4, 4]'
# 3 blocks, 3 receivers; a packet holds 2 images of 4 tokens of 4 * 6 bits, behind 4 bytes of length and 12 of header
json_holds 'all(.nodes[]; .bytes_sent == 3 * 3 * (16 + 2 * 4 * 3))'

mkdir -p "$work/pictures"
for class in 0 1 2 3 4 5 6; do mkdir -p "$work/pictures/test/c$class" "$work/pictures/train/c$class"; cp "$work/red.png" "$work/pictures/test/c$class/a.png"; cp "$work/red.png" "$work/pictures/train/c$class/a.png"; done
# An image in each class: the loss is the mean over all classes of what the image itself is given.
all_lost() { jq '[.images[0].top[].probability | -log] | add / 7' "$work/out"; }
lost_as() { json_holds ".samples == 7 and (.loss - $1 | fabs) < 1e-5"; }
expect "all classes of the image" 0 -c model -n 4 --json --top 7 red.png; lost=$(all_lost)
expect "eval, JSON" 0 eval -c model -n 4 -d folder:pictures --json; lost_as "$lost"
expect "eval" 0 eval -c model -n 4 -d folder:pictures; out "^7 images on 4 nodes"; out "^top-1 14.29%   top-5 71.43%   mean loss [0-9][0-9]*[.][0-9]\{4\}, [0-9][0-9]*[.][0-9]\{4\} at temperature [0-2][.][0-9][0-9]$"; out "3 bytes per token, block and receiver"
expect "bursts that are too short" 2 eval -c model -n 2 -d folder:pictures --loss 90% --loss-unit token --loss-model gilbert-elliott; err "in bursts of 4 tokens"; err "in bursts of 9 or more"
expect "bursts of nothing" 2 eval -c model -n 2 -d folder:pictures --loss-model gilbert-elliott; err "--loss-model gilbert-elliott is for --loss SHARE"
expect "such packets" 2 eval -c model -n 2 -d folder:pictures --transport udp --loss 90% --loss-model gilbert-elliott; err "in bursts of 4 packets"
expect "bursts of losses one by one" 2 eval -c model -n 2 -d folder:pictures --loss 5% --loss-unit token --loss-burst 9; err "--loss-burst 9 is for --loss-model gilbert-elliott"
expect "longer bursts" 0 eval -c model -n 2 -d folder:pictures --loss 90% --loss-unit token --loss-model gilbert-elliott --loss-burst 9
expect "what a run accepts, in a plan" 0 plan -c model -n 2 --strategies single,astra --datagrams 255 --link-seed 5000000000 --loss 95%
for command in "eval -d folder:pictures --loss-unit token" plan; do
  # shellcheck disable=SC2086
  expect "all of it lost: $command" 2 $command -c model -n 2 --loss 100%; err "--loss"; err "from 0 to 0.999999"
done
expect "bursts that are long enough" 0 eval -c model -n 2 -d folder:pictures --loss 80% --loss-unit token --loss-model gilbert-elliott
expect "all classes with a layout" 0 -c model -n 4 --layout random:3 --json --top 7 red.png; lost=$(all_lost)
expect "eval with a layout" 0 eval -c model -n 4 -d folder:pictures --layout random:3 --json; json_holds '.layout == "random:3" and .bytes_per_image > 0'; lost_as "$lost"
expect "all classes on two nodes" 0 -c model -n 2 --json --top 7 red.png; lost=$(all_lost)
expect "eval in batches, JSON" 0 eval -c model -n 2 -d folder:pictures --batch 2 --json; lost_as "$lost"
expect "eval in batches" 0 eval -c model -n 2 -d folder:pictures --batch 2; out "^top-1 14.29%   top-5 71.43%   mean loss [0-9][0-9]*[.][0-9]\{4\}, [0-9][0-9]*[.][0-9]\{4\} at temperature [0-2][.][0-9][0-9]$"; out "3 bytes per token"
expect "eval of some" 0 eval -c model -n 4 -d folder:pictures --samples 3 --batch 2 --json
tail -1 "$work/out" | grep -q '"samples":3' || report "$name: not three samples"
# The first of a folder would be of its first classes: they are chosen from all of them, and are the same ones each time.
expect "rows of all" 0 eval -c model -n 2 -d folder:pictures -q --per-sample all.csv
for batch in 2 3; do expect "rows of some" 0 eval -c model -n 2 -d folder:pictures -q --samples 3 --batch $batch --per-sample some.$batch.csv; done
losses() { awk -F, 'NR > 1 { printf "%.4f\n", $4 }' "$1" | sort; }
[ "$(losses "$work/some.2.csv")" = "$(losses "$work/some.3.csv")" ] || report "$name: others in other batches"
[ -z "$(comm -13 <(losses "$work/all.csv") <(losses "$work/some.2.csv"))" ] || report "$name: losses that no class has: $(cat "$work/some.2.csv")"
[ "$(losses "$work/some.2.csv")" != "$(losses <(head -n 4 "$work/all.csv"))" ] || report "$name: they are the first classes"
cp -r "$work/model" "$work/named"
names() { jq ".id2label = ($1 | with_entries(.key |= tostring))" "$work/model/config.json" >"$work/named/config.json"; }
names '["c0", "c1", "c2", "c3", "c4", "c5", "c6"]'
expect "eval of classes of the same names" 0 eval -c named -n 2 -d folder:pictures -q; silent err
names '["c0", "c2", "c1", "c3", "c4", "c5", "c6"]'
expect "rows of classes in the model's order" 0 eval -c model -n 2 -d folder:pictures -q --per-sample rows.csv
expect "eval of classes in another order" 0 eval -c named -n 2 -d folder:pictures --per-sample swapped.csv; err "they are matched by name"
row() { awk -F, -v s="$2" '$1 == s { printf "%s %.4f\n", $3, $4 }' "$work/$1"; } # right or not, and the loss
[ "$(row swapped.csv 1) $(row swapped.csv 2)" = "$(row rows.csv 2) $(row rows.csv 1)" ] && [ "$(row rows.csv 1)" != "$(row rows.csv 2)" ] ||
  report "classes are not matched by name: $(head -n 4 "$work/swapped.csv" "$work/rows.csv")"
names '["c0", "c2", "c9", "c3", "c4", "c5", "c6"]'
expect "eval of other classes, as many" 0 eval -c named -n 2 -d folder:pictures -q; err 'class 1 is called "c1" in the data set, and "c2" in the checkpoint'
cp -r "$work/pictures" "$work/damaged"
cp "$work/broken.png" "$work/damaged/test/c2/a.png"
expect "eval with a broken image" 0 eval -c model -n 2 -d folder:damaged --batch 3 --per-sample left.csv --json; json_holds ".samples == 6 and .skipped == 1"
json_holds '.bytes_per_token == .bytes_per_token_formula and .bytes_per_token_block_receiver == 3' # a picture that is none is sent as a black one
err "test/c2/a.png.*left out"
rows() { awk -F, 'NR > 1 { printf "%s %s %.3f\n", $1, $3, $4 }' "$work/$1"; }
[ "$(rows rows.csv | grep -v "^2 ")" = "$(rows left.csv)" ] || report "other rows than those of the other six: $(cat "$work/left.csv")"
expect "eval of some beside a broken image" 0 eval -c model -n 2 -d folder:damaged --samples 3 --json; json_holds ".samples == 3 and .skipped == 0"
for class in 0 1 2 3 4 5 6; do cp "$work/broken.png" "$work/damaged/test/c$class/a.png"; done
expect "eval of broken images alone" 1 eval -c model -n 2 -d folder:damaged --batch 3 --samples 3; err "not one of 3 images can be read"
rm -r "$work/pictures"/t*/c6
expect "eval of other classes" 1 eval -c model -n 4 -d folder:pictures; err "7 classes"; err "has 6"
exit $failed
