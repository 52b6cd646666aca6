#!/bin/bash
# --json of every command: standard output is one JSON object with "schema" as its first member, and nothing else. limit: 180
# Usage: tests/cli/json.sh; programs in $BUILD/bin (build/bin).
. tests/cli/helpers.sh astra-train
maker=$(realpath "$bin/../tests/infer/make_sample")

# one NAME PROGRAM ARGUMENTS... : the command succeeds, and so is what it prints
tried=" "
one() {
  tried="$tried$2 $3 "
  run "$1" 0 "$bin/$2" "${@:3}" --json
  jq -es 'length == 1 and (.[0] | type == "object" and (keys_unsorted[0] == "schema") and .schema == 1)' <"$work/out" >"$work/jq" 2>&1 ||
    report "stdout is not one object with a schema: $(cut -c -200 "$work/out")"
}

"$maker" model tiny 4 50 4 || { echo "cannot make a checkpoint"; exit 1; }
printf '%s' iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mP4z8CAFTEMLQkAKP8/wc53yE8AAAAASUVORK5CYII= | base64 -d >red.png
mkdir tiny pictures pictures/a pictures/b
cp red.png pictures/a && cp red.png pictures/b && head -c 50 red.png >pictures/b/broken.png
cat >tiny/config.json <<'END'
{"model_type": "vit", "hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 96,
 "image_size": 32, "patch_size": 8, "num_labels": 100}
END
for i in 1 2 3 4 5 6 7 8; do echo "The quick brown fox number $i jumps over the lazy dog."; done >text.txt
printf 'text\tlabel\ngood\t1\nbad\t0\n' >labels.tsv

data=(--dataset cifar100-sample --data-dir "$root/datasets" --threads 1)
tiny=(--model tiny --init random "${data[@]}" -g 4 --codebook-size 16 --kmeans-samples 256 --batch 8)
one "dry run" astra-train "${tiny[@]}" --dry-run
one "training" astra-train "${tiny[@]}" --max-steps 2 --eval-samples 20 --out run --quiet
one "evaluation alone" astra-train --model run --init run "${data[@]}" -g 4 --codebook-size 16 --eval-only --eval-samples 20
one "plain evaluation" astra-train --model run --init run "${data[@]}" -g 0 --eval-only --eval-samples 20
one "codebooks" astra-kmeans init "${tiny[@]}" --out books
one "their quality" astra-kmeans eval --codebooks run "${data[@]}" --eval-samples 20
one "their shapes" astra-kmeans show --codebooks run
one "their frequencies" astra-kmeans frequencies --checkpoint run "${data[@]}" --eval-samples 20
one "a catalogue" astra-data list
one "images" astra-data show cifar100-sample --data-dir "$root/datasets" --part test --sheet sheet.png
one "broken images" astra-data show folder:pictures
one "a text" astra-data show text:text.txt
one "texts with classes" astra-data show tsv:labels.tsv
one "a tokenizer" astra-data tokenizer text.txt --vocab 270 --out pieces
one "digests" astra-data verify run
one "ids of a text" astra-data encode --tokenizer "$root/checkpoints/gpt2-mini" "The history"
one "a text of ids" astra-data decode --tokenizer "$root/checkpoints/gpt2-mini" 40 41
one "an image" astra-infer -c run -n 2 "$root/datasets/pictures/apple_0614.png"
one "accuracy" astra-infer eval -c run "${data[@]:0:4}" -n 2 --samples 20
one "the self-test" astra-infer selftest -c run
one "8 bits" astra-quantize --checkpoint run --out run8
one "a plan" astra-infer plan -c run
one "a prompt" astra-infer -c "$root/checkpoints/gpt2-mini" -n 1 --prompt "The" --max-new-tokens 3
one "a prompt by its name" astra-infer generate -c "$root/checkpoints/gpt2-mini" -n 1 --prompt "The" --max-new-tokens 3
one "perplexity" astra-infer eval -c "$root/checkpoints/gpt2-mini" -n 1 --dataset text:text.txt
one "a step" astra-bench step --model tiny --batch 2 --steps 1 --warm-up 0 -g 4
one "a forward pass" astra-bench forward --model tiny --repeats 1 --warm-up 0
one "decoding" astra-bench forward --model gpt2-mini --length 8 --decode 2 --repeats 1 --profile
one "steps of several sequences" astra-bench decode --model gpt2-mini --sequences 2 --length 8 --repeats 1
one "operations" astra-bench op --rows 8 --width 8 --outputs 8 --tokens 4 --heads 2 --groups 2 --entries 4 --vocabulary 8 --repeats 1
one "K-means" astra-bench kmeans --samples 64 --width 8 --entries 4 --iterations 2
one "accuracy by shares" astra-bench fpar -c run "${data[@]:0:4}" --samples 16
one "class tokens" astra-bench class-token -c run "${data[@]:0:4}" --samples 8 --nodes 2
one "peak rates" astra-bench peak --threads 1
one "widths of weights" astra-bench quantize -c run "${data[@]:0:4}" --samples 8 --repeats 1
echo '{"title": "A look", "figure": "top1", "seeds": [1], "rows": [{"name": "as-it-is", "model": "run", "eval": {"dataset": "cifar100-sample", "nodes": 1, "samples": 8}}]}' >look.json
one "an experiment" astra-bench accuracy --table ./look.json --data-dir "$root/datasets"
one "latency" astra-bench latency --quick --figure tokens --width 64 --blocks 1 --heads 2 --tokens 64
one "training on several ranks" astra-bench scaling --model tiny --batch 2 --steps 1 --threads 1 --ranks 1,2

# Names that are not UTF-8: with U+FFFD in place of what is none, and nothing missing.
odd=$(printf 'caf\351')
fits() { jq -e "$1" "$work/out" >"$work/jq" 2>&1 || report "stdout does not fit $1"; }
cp red.png "$odd.png" && cp -r run "$odd" && mkdir "$odd-set" && cp -r pictures/a "$odd-set/$odd" && cp -r pictures/a "$odd-set/b"
run "images of such a name" 1 "$bin/astra-infer" -c run -n 1 "$odd.png" red.png "no-$odd.png" --json
fits '[.images[] | [.file, .error != null, (.top | length)]] == [["caf\ufffd.png", false, 5], ["red.png", false, 5], ["no-caf\ufffd.png", true, 0]]'
one "a checkpoint" astra-infer -c "./$odd" -n 1 red.png; fits '.checkpoint == "./caf\ufffd"'
one "its plan" astra-infer plan -c "./$odd"; fits '.model == "./caf\ufffd"'
one "its codebooks" astra-kmeans show --codebooks "./$odd"; fits '.codebooks == "./caf\ufffd"'
one "its evaluation" astra-train --model "./$odd" "${data[@]}" --eval-only --eval-samples 8; fits '.checkpoint == "./caf\ufffd"'
one "its digests" astra-data verify "./$odd"; fits '.path == "./caf\ufffd" and .damaged == 0 and (.files | length > 0)'
one "8 bits of it" astra-quantize --checkpoint run --out "$odd-8"; fits '.out == "caf\ufffd-8"'
one "classes" astra-data show "folder:$odd-set"; fits '[.classes[].label] == ["b", "caf\ufffd"]'
run "its digests as text" 0 "$bin/astra-data" verify "./$odd"

# A command that takes --json and is not tried above would go unnoticed.
for name in astra-train astra-kmeans astra-infer astra-data astra-bench; do
  for command in "" $("$bin/$name" --help | sed -n '/^[Cc]ommands/,/^$/s/^  \([a-z][a-z-]*\)  *.*/\1/p'); do
    "$bin/$name" $command --help 2>/dev/null | grep -q -e '--json' || continue
    case "$name $command" in "astra-data get") continue ;; esac # fetches: astra-data.sh has it where all is there, test_download a server
    case "$tried" in *" $name $command "* | *" $name ${command:--}"*) continue ;; esac
    echo "FAILED: $name $command takes --json and is not tried" && failed=1
  done
done

# As many as 0 stands for.
run "a batch of 0" 0 "$bin/astra-bench" step --model tiny --batch 0 --steps 1 --warm-up 0
run "codebooks without a model" 2 "$bin/astra-kmeans" eval --codebooks books "${data[@]}"; err "books holds codebooks alone"; err "--model"

[ $failed = 0 ] && echo "json: one object on stdout"
exit $failed
