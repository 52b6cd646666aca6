#!/bin/bash
# Names of classes, files, models and tensors that hold what a terminal obeys: every program writes it out instead of sending it, and JSON
# holds it exactly.
. tests/cli/helpers.sh astra-infer
make=$root/${BUILD:-build}/tests/infer/make_sample
escape=$'\033'

# The last command sent no control character but line feeds, and showed the escape sequence as text.
clean() {
  ! LC_ALL=C grep -q $'[\001-\010\013-\037\177]' "$work/out" "$work/err" || report "a control character reached the output"
  cat "$work/out" "$work/err" | grep -qF '\x1b[31m' || report 'nothing shows \x1b[31m'
}

"$make" model tiny 4 50 4 || exit 1
printf '%s' iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mP4z8CAFTEMLQkAKP8/wc53yE8AAAAASUVORK5CYII= | base64 -d >red.png
cp red.png "${escape}[31mred.png"
cp -R model "${escape}[31mmodel"
for name in labels type tensor; do cp -R model $name; done
jq '.id2label |= map_values("\u001b[31m" + .) | .label2id |= with_entries(.key |= "\u001b[31m" + .)' model/config.json >labels/config.json
jq '.model_type = "\u001b[31mvit"' model/config.json >type/config.json
LC_ALL=C sed -i 's/"classifier\.bias":{"dtype":"F32"/"\\u001b[31m.bias":{"dtype":"F99"/' tensor/model.safetensors # of the same length

expect "class names" 0 -c labels -n 2 red.png; clean; out '%  \\x1b\[31mLABEL_'
expect "class names in JSON" 0 -c labels -n 2 --json red.png
[ "$(jq -r '.images[0].top[0].label' "$work/out" | head -c 5)" = "${escape}[31m" ] || report "JSON does not hold the name as it is"
expect "a file name" 0 -c model -n 2 "${escape}[31mred.png"; clean; out '^\\x1b\[31mred.png$'
expect "the name of a missing file" 1 -c model -n 2 "${escape}[31mnone.png"; clean; err '\\x1b\[31mnone.png'
expect "the name of a checkpoint" 0 selftest -c "${escape}[31mmodel" --json
expect "a type of model" 1 -c type red.png; clean
expect "a name of a tensor" 1 -c tensor red.png; clean; err 'x1b\[31m.bias'
expect "an option" 2 -c model "--${escape}[31m" red.png; clean
expect "a command line" 1 worker -c model --listen "unix:/nowhere/${escape}[31m"; clean

"$make" words tiny-gpt2 4 50 4 || exit 1
expect "a stray argument" 2 generate -c words --prompt a "${escape}[31m"; clean

# What a model writes is data: exact in a file, and on a terminal nothing that it obeys.
cp "$root/tests/golden/stories260K/tok512.bin" words
prompt=$'a\n\033[31mb'
expect "a text to a file" 0 generate -c words --prompt "$prompt" --echo --max-new-tokens 1 --quiet
head -c 8 "$work/out" | cmp -s - <(printf '%s' "$prompt" | head -c 8) || report "the prompt is not echoed as it is"
if command -v script >/dev/null; then
  export prompt
  run "a text to a terminal" 0 script -qec "'$program' generate -c words --prompt \"\$prompt\" --echo --max-new-tokens 1 --quiet 2>err" /dev/null
  sed -i 's/\r$//' "$work/out"; clean; out '^a$'; out '^\\x1b\[31mb'
else
  echo "skipped: a text to a terminal: util-linux's script is not there"
fi

run "train, a type of model" 1 "$bin/astra-train" --model ./type --dataset synthetic:16x16:7 --out "$work/run"; clean
run "train, a name of a data set" 1 "$bin/astra-train" --model ./model --dataset "folder:${escape}[31m" --out "$work/run"; clean
run "kmeans, a type of model" 1 "$bin/astra-kmeans" show --codebooks type; clean
run "kmeans, a directory" 0 "$bin/astra-kmeans" show --codebooks "${escape}[31mmodel"; clean; out '^\\x1b\[31mmodel: '
run "bench, a type of model" 1 "$bin/astra-bench" step --model ./type; clean
run "bench, an option" 2 "$bin/astra-bench" step "${escape}[31m"; clean

for part in train test; do
  mkdir -p "set/$part/${escape}[31mclass"
  cp red.png "set/$part/${escape}[31mclass/a.png"
  head -c 50 red.png >"set/$part/${escape}[31mclass/b.png"
done
run "data, a class" 0 "$bin/astra-data" show folder:set; clean; out '\\x1b\[31mclass$'
run "data, a class in JSON" 0 "$bin/astra-data" show folder:set --json
[ "$(jq -r '.. | .label? // empty' "$work/out" | head -c 5)" = "${escape}[31m" ] || report "JSON does not hold the class as it is"
printf 'text\tlabel\nwords\t%s[31mgood\nmore\tbad\n' "$escape" >labels.tsv
run "data, a class of texts" 0 "$bin/astra-data" show tsv:labels.tsv; clean; out '\\x1b\[31mgood'
exit $failed
