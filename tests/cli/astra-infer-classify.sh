#!/bin/bash
# limit: 300
# astra-infer with texts to classify, from outside: a classifier is trained for a few steps on a small table and one of pairs, passes its own
# self-test, and is measured by processes as by the emulation; texts of any length, files, pairs, messages.
. tests/network/helpers.sh
trainer=$(realpath "$build/bin/astra-train")
stories=$PWD/tests/golden/stories260K

learn() { # NAME ARGUMENTS...: a checkpoint of that name
  name="training of $1"
  (cd "$work" && "$trainer" --model "$stories" --batch 8 --max-steps 6 --warmup 2 --codebook-size 16 --kmeans-samples 512 --kmeans-iterations 3 -q --out "$@") \
    >"$work/out" 2>"$work/err" || report "$name"
}
emulated() { (cd "$work" && "$trainer" --eval-only --model "$1" --dataset "$2" --json "${@:4}") 2>>"$work/err" | tail -n 1 | jq -c "$3"; } # CHECKPOINT DATA-SET FIELD [OPTION...]

# ---- data: a word or two more or less, so that lengths differ; of a pair whether the second begins as the first
words=(Lily Tom the cat dog sees finds an old red cake ball and sun very happy big friend)
{
  printf 'text\tlabel\n'
  for ((i = 0; i < 120; i++)); do
    text=${words[i % 18]}
    for ((j = 0; j < 1 + i % 9; j++)); do text+=" ${words[(i * 5 + j * (1 + i % 7)) % 18]}"; done
    case $text in *cat*) label=cat ;; *) label=none ;; esac
    printf '%s.\t%s\n' "$text" $label
  done
} >"$work/table.tsv"
{
  printf 'id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n'
  for ((i = 0; i < 60; i++)); do
    first="${words[i % 18]} sees ${words[i * 7 % 18]}"
    [ $((i % 2)) = 0 ] && second="$first now" || second="an ${words[(i + 5) % 18]}"
    printf '%d\t%d\t%d\t%s?\t%s?\t%d\n' $i $i $i "$first" "$second" $((1 - i % 2))
  done
} >"$work/QQP.tsv"
mkdir "$work/QQP" && cp "$work/QQP.tsv" "$work/QQP/train.tsv" && { cat "$work/QQP.tsv"; printf '60\t1\t2\tcut in\n'; } >"$work/QQP/dev.tsv"

learn model --dataset tsv:table.tsv --groups 4
learn plain --dataset tsv:table.tsv --groups 0
learn pairs --dataset qqp:QQP --groups 4 --devices 3

# ---- the self-test that training wrote
for model in model plain pairs; do
  expect "self-test of $model" 0 selftest -c $model --json; json_holds '.passed and .images >= 1 and .wrong == 0'
  case $model in
    plain) json_holds '.nodes == 1 and .codes == 0' ;;
    model) json_holds '.nodes == 4 and .codes > 0' ;;
    pairs) json_holds '.nodes == 3 and .codes > 0' ;;
  esac
done

# ---- accuracy of processes is that of the emulation
for row in "model tsv:table.tsv 4" "pairs qqp:QQP 3" "plain tsv:table.tsv 1"; do
  read -r model data nodes <<<"$row"
  expect "eval of $model" 0 eval -c $model -d "$data" --json
  json_holds "(.nodes | length) == $nodes"
  expected=$(emulated $model "$data" '[.accuracy // .accuracy_plain, .matthews // .matthews_plain]')
  [ "$(field '.accuracy * 1000000 | round')" = "$(jq -n "$expected | .[0] * 1000000 | round")" ] || report "$name: accuracy $(field .accuracy), emulated $expected"
  [ "$(field '.matthews * 1000000 | round')" = "$(jq -n "$expected | .[1] * 1000000 | round")" ] || report "$name: correlation $(field .matthews), emulated $expected"
done
expect "eval of one node" 0 eval -c model -d tsv:table.tsv -n 1
out "^TSV test, 24 texts, 2 classes, from table.tsv (every fifth row)$"; out "^24 texts of [0-9]* to [0-9]* tokens on 1 node in"
out "^accuracy [0-9.]*% (Matthews correlation -*[0-9.]*)   mean loss [0-9.]*, [0-9.]* at temperature [0-9.]*$"; out "^node  tokens"
expect "eval of pairs" 0 eval -c pairs -d qqp:QQP -q
out "^QQP test, 60 pairs of texts, 2 classes, from QQP/dev.tsv (1 incomplete row left out)$"; silent err
expect "eval of some" 0 eval -c model -d tsv:table.tsv --samples 7 --batch 2 --split 3,1,1 --json; json_holds '.samples == 7 and (.nodes | length) == 3'
{ head -n 1 "$work/table.tsv"; tail -n +2 "$work/table.tsv" | sort -t $'\t' -k 2; } >"$work/sorted.tsv"
expect "eval of some of a sorted table" 0 eval -c model -d tsv:sorted.tsv --samples 9 --per-sample some.csv --json
some=$(emulated model tsv:sorted.tsv .accuracy --eval-samples 9); json_holds ".samples == 9 and (.accuracy - ${some:-9} | fabs) < 1e-6"
expect "eval of one bit rate" 0 eval -c model -d tsv:table.tsv --json; json_holds 'has("rates") | not'
learn rates --dataset tsv:table.tsv --groups 1,4
expect "eval of a rate of several" 0 eval -c rates -d tsv:table.tsv --groups 1 --nodes 2 --json; json_holds '.groups == 1 and .rates == [{"groups": 1, "samples": 24}]'
expect "eval of whichever rates" 0 eval -c rates -d tsv:table.tsv --groups auto --nodes 2 --batch 4 --json
json_holds '([.rates[].samples] | add) == 24 and ([.rates[].groups] - [1, 4]) == []'
expect "a text at a rate of several" 0 -c rates --groups 4 --nodes 2 --text "Lily sees a cat" --json; json_holds '.rates == [{"groups": 4, "samples": 1}]'
expect "eval by single" 0 eval -c plain -d tsv:table.tsv -n 2 --strategy single --json
loss=$(field .loss)
for strategy in sp tp; do
  expect "eval by $strategy" 0 eval -c plain -d tsv:table.tsv -n 2 --strategy $strategy --json
  json_holds "(.loss - $loss) | fabs < 0.0001"; json_holds '.bytes_sent > 0'
done

# ---- texts of the command line and of files, on one node and on three
long=$(printf 'Lily sees the cat and %.0s' {1..9})
for nodes in 1 3; do
  expect "texts on $nodes" 0 -c model -n $nodes --text "the cat" --text "$long" --text A --json
  json_holds '[.texts[].text] | .[0] == "the cat" and .[2] == "A" and (.[1] | length) > 100'
  json_holds '.texts | all((.top | map(.probability) | add) > 0.999 and .top[0].probability >= .top[1].probability)'
  json_holds "(.nodes | length) == $nodes"
  json_holds '[.texts[].tokens] | .[1] > .[0] and .[2] <= .[0]'
  cp "$work/out" "$work/three"
  expect "one of them alone on $nodes" 0 -c model -n $nodes --text "$long" --json
  alone=$(field '.texts[0].top | map([.label, (.probability * 100000 | round)])')
  [ "$(tail -n 1 "$work/three" | jq -c '.texts[1].top | map([.label, (.probability * 100000 | round)])')" = "$alone" ] || report "$name: another answer"
done
expect "text as it is shown" 0 -c model -n 3 --text $'the \33[2J cat'
out '^"the  \[2J cat"$'; out '^ *[0-9.]*%  cat$'; out '^ *[0-9.]*%  none$'; out "^node  tokens"
expect "quiet, the best alone" 0 -c model --text "the cat" --top 1 -q; silent err
[ "$(wc -l <"$work/out")" = 2 ] || report "$name: more than two lines"
printf '\357\273\277the cat\r\n\nTom sees\tTom finds\n   \nthe dog' >"$work/lines.txt"
expect "a file" 0 -c model --text "first" --text-file lines.txt --json
json_holds '[.texts[] | [.text, .pair]] == [["first", null], ["the cat", null], ["Tom sees", "Tom finds"], ["the dog", null]]'
printf 'the cat\r\nthe cat\rand the dog\r\n' >"$work/returns.txt"
expect "carriage returns" 0 -c model --text-file returns.txt --json; json_holds '[.texts[].text] == ["the cat", "the cat\rand the dog"]'
input=$work/lines.txt expect "standard input" 0 -c model --text-file - --json; json_holds '.texts | length == 3'
expect "a pair" 0 -c pairs --text "Tom sees" --text-pair "Tom finds" --text A --text-pair "" --json
json_holds '[.texts[].pair] == ["Tom finds", ""]'
expect "a pair as it is shown" 0 -c pairs --text "Tom sees" --text-pair "Tom finds"; out '^"Tom sees" and "Tom finds"$'; out "duplicate$"
expect "longer than the context" 0 -c model -n 3 --text "$long" --text "the cat" --max-context 6
err "warning: 1 of 2 texts is longer than the context of 6 tokens; its end is cut off"
[ "$(grep -c "longer than the context" "$work/err")" = 1 ] || report "$name: said more than once"
expect "eval of a shorter context" 0 eval -c model -d tsv:table.tsv --context 4 --json; json_holds '.longest == 4 and .cut > 5'

# ---- what is refused
expect "prompt for a classifier" 2 -c model -p A; err "is a model that classifies texts: give astra-infer --text TEXT"; silent out
expect "text for a language model" 2 -c "$stories" --text A; err "is a language model: give astra-infer --prompt TEXT"; silent out
expect "images for a classifier" 2 -c model x.png; err "classifies texts: give astra-infer --text"
expect "perplexity of a classifier" 2 eval -c model -d text:table.tsv; err "classifies texts"
expect "classes for a language model" 2 eval -c "$stories" -d tsv:table.tsv; err "is a language model"
expect "an option of prompts" 2 -c model --text A --max-new-tokens 3; err "--max-new-tokens is for a language model; model is a model that classifies texts"
expect "an option of classes" 2 -c "$stories" -p A --top 3; err "--top is for a model that classifies images or a model that classifies texts"
expect "a pair too few" 2 -c pairs --text A --text B --text-pair C; err "--text-pair: 1 for 2 --text"
expect "text and prompt" 2 -c model --text A -p B; err "give one of them"
expect "text and image" 2 -c model --text A x.png; err "not several"
expect "empty text" 2 -c model --text ""; err "--text: an empty text"
printf 'a\tb\tc\n' >"$work/tabs.txt"
expect "two tabs" 1 -c model --text-file tabs.txt; err "tabs.txt, line 1: more than one tab"
: >"$work/nothing.txt"
expect "nothing" 1 -c model --text-file nothing.txt; err "nothing.txt: no text in it"
expect "no file" 1 -c model --text-file nowhere.txt; err "nowhere.txt"
printf 'a\0b\n' >"$work/nul.txt"
expect "NUL" 1 -c model --text-file nul.txt; err "nul.txt: a NUL byte"
expect "context beyond the model" 2 -c model --text A --max-context 5000; err "--max-context 5000: the model takes at most 512 tokens"
printf 'text\tlabel\na\tx\nb\ty\nc\tz\na\tx\nb\ty\nc\tz\n' >"$work/three.tsv"
expect "other classes" 1 eval -c model -d tsv:three.tsv; err "the checkpoint knows 2 classes, the data set has 3"
sed 's/\tcat$/\tfeline/' "$work/table.tsv" >"$work/renamed.tsv"
expect "classes of other names" 0 eval -c model -d tsv:renamed.tsv -q; err 'class 0 is called "feline" in the data set, and "cat" in the checkpoint'
expect "a plain model on four" 2 -c plain -n 4 --text A; err "--nodes 4: .*--nodes 1"; silent out
exit $failed
