#!/bin/bash
# Digests of checkpoints: damage anywhere in a file of weights is refused with the tensor's name, by astra-data verify and by whoever loads
# it; files without digests are taken as they are.
. tests/cli/helpers.sh astra-data verify
infer=$bin/astra-infer
cp -r "$root/checkpoints/vit-cifar" good
weights=model.safetensors
picture=("$root"/datasets/pictures/apple*.png)

expect "an undamaged checkpoint" 0 good; out "^good/$weights: ok (104 tensors)$"
expect "JSON" 0 good --json; json '"decision":"ok","tensors":104,"damage":\[\]'
expect "one file" 0 "good/$weights"; out ': ok'
expect "an installed one" 0 vit-cifar; out 'vit-cifar/model.safetensors: ok'
cp "good/$weights" $'red\e[31m.safetensors'
expect "a name that a terminal would obey" 0 $'red\e[31m.safetensors'; out '^red\\x1b\[31m.safetensors: ok'
run "its answer" 0 "$infer" -c good --nodes 1 "${picture[0]}"

# Bit $3 of byte $2 of file $1.
flip() {
  local byte
  byte=$(od -An -tu1 -j "$2" -N1 "$1")
  printf "\\x$(printf %x $((byte ^ 1 << $3)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# In the data part, evenly spread over the file, and in the header.
header=$((8 + $(od -An -tu8 -N8 "good/$weights"))) size=$(stat -c %s "good/$weights")
for i in {0..19}; do
  cp -r good bent
  at=$((header + (size - header - 1) * i / 19))
  flip "bent/$weights" $at $((i % 8))
  expect "flip $i at $at" 1 bent; out "^bent/$weights: damaged"; out '^  tensor [a-z_.0-9]*.* is damaged'
  tensor=$(sed -n 's/^  \(tensor .*\) is damaged.*/\1/p' "$work/out")
  run "flip $i, loaded" 1 "$infer" -c bent --nodes 1 "${picture[0]}"; err "bent.*$tensor is damaged"; silent out
  rm -r bent
done
for i in {0..7}; do
  cp -r good bent
  flip "bent/$weights" $((header * i / 8)) $i
  expect "flip $i of the header" 1 bent; out "^bent/$weights: damaged"
  run "flip $i of the header, loaded" 1 "$infer" -c bent --nodes 1 "${picture[0]}"; err "bent/$weights"; silent out
  rm -r bent
done
for i in {0..9}; do
  cp -r good short
  truncate -s $((size * i / 10)) "short/$weights"
  expect "$i tenths of the file" 1 short; out 'damaged'
  run "$i tenths of the file, loaded" 1 "$infer" -c short --nodes 1 "${picture[0]}"; err "short/$weights"; silent out
  rm -r short
done

# ---- without digests
cp -r good bare; unseal "bare/$weights"
expect "no digests" 0 bare; out "no digests"
run "no digests, loaded" 0 "$infer" -c bare --nodes 1 "${picture[0]}"; silent err
flip "bare/$weights" $((size - 5)) 0
expect "no digests, changed" 0 bare; out "no digests"
expect "digests are added" 0 bare --write; out "digests written"
expect "and found" 0 bare; out ": ok"
flip "bare/$weights" $((size - 5)) 0
expect "and compared" 1 bare --write; out "is damaged"

# ---- links: what is named is written, what a directory links to is not
mkdir blobs linked; cp "good/$weights" blobs/abc; unseal blobs/abc; ln -s ../blobs/abc "linked/$weights"; cp blobs/abc before
expect "a link in a directory" 0 linked --write; out "^linked/$weights: digests written, to a file in the place of the link ("
cmp -s blobs/abc before || report "a file of another directory was written"
[ -L "linked/$weights" ] && report "nothing was written"
ln -sf ../blobs/abc "linked/$weights"
expect "a link without --write" 0 "linked/$weights"; out "^linked/$weights: no digests"
expect "a link by its name" 0 "linked/$weights" --write; out "blobs/abc: digests written"
[ -L "linked/$weights" ] || report "a copy is in the place of the link"
expect "its file" 0 blobs/abc; out "^blobs/abc: ok"

# ---- shards
mkdir shards; cp "good/$weights" shards/model-00001-of-00002.safetensors
echo '{"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}' >shards/$weights.index.json
expect "a shard is missing" 1 shards; out "^shards/model-00001-of-00002.safetensors: ok"; out "^shards/$weights.index.json: incomplete or damaged"
out "the shard model-00002-of-00002.safetensors is missing"; err "1 of 2 files"
expect "the same as JSON" 1 shards --json; json '"decision":"incomplete or damaged","tensors":0,"damage":\["[^"]*model-00002'
echo '{"weight_map": {"a": "model-00001-of-00002.safetensors"}}' >shards/$weights.index.json
expect "all shards" 0 shards; ! grep -q index "$work/out" || report "an index in order"
echo '{"weight_map": {"a": "../shards"}}' >shards/$weights.index.json
expect "an index of other directories" 1 shards; out "^shards/$weights.index.json: incomplete or damaged"; out "is not a file of the same directory"

# ---- a training state
data=(--model vit-cifar --dataset "folder:$work/pictures" --batch 2 --groups 4 --codebook-size 4 --kmeans-samples 64 -q)
for class in a b; do mkdir -p "pictures/$class"; for i in 1 2 3 4 5 6; do cp "${picture[0]}" "pictures/$class/$i.png"; done; done
run "a short run" 0 "$bin/astra-train" "${data[@]}" --max-steps 1 --out trained
expect "all files of a run" 0 trained
for file in model selftest frequencies training/state; do out "^trained/$file.safetensors: ok"; done
flip trained/training/state.safetensors $(($(stat -c %s trained/training/state.safetensors) / 2)) 3
expect "a damaged state" 1 trained; out "^trained/training/state.safetensors: damaged"; err "1 of 4 files"
run "a damaged state, resumed" 1 "$bin/astra-train" --resume trained --max-steps 2; err "state.safetensors: tensor .* is damaged"
flip trained/training/options.txt 9 1
run "damaged options" 1 "$bin/astra-train" --resume trained --max-steps 2; err "options.txt is damaged"

# ---- wrong usage
expect "no directory" 2
expect "nothing there" 1 absent
mkdir empty
expect "an empty directory" 1 ./empty; err "holds no .safetensors files"

exit $failed
