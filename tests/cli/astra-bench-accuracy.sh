#!/bin/bash
# astra-bench accuracy from outside: an experiment of two rows and two seeds, what is refused, and that an interrupted one goes on.
# Usage: tests/cli/astra-bench-accuracy.sh; programs in $BUILD/bin (build/bin). limit: 240
. tests/cli/helpers.sh astra-bench accuracy
mkdir tiny
cat >tiny/config.json <<'END'
{"model_type": "vit", "hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 96,
 "image_size": 32, "patch_size": 8, "num_labels": 4}
END
experiment() { # ROW'S MEMBERS [STEPS]
  cat <<END
{"title": "A small one", "figure": "top1", "scale": 100, "unit": "%", "x_label": "ratio", "baseline": "plain", "seeds": [3, 5],
 "train": {"dataset": "synthetic:32x32:4:256", "max-steps": ${2:-4}, "batch": 16, "threads": 1, "learning-rate": 1e-3}, "eval": {"dataset": "synthetic:32x32:4:256"},
 "rows": [{"name": "plain", "train": {"model": "tiny", "init": "random"}, "eval": {"nodes": 1}, "paper": 90},
          {"name": "G=4", "from": "plain", "train": {"groups": 4, "codebook-size": 16, "kmeans-samples": 256}, "eval": {"nodes": 2}, "x": 2, "paper": 88.5},
          {"name": "G=2", "from": "plain", "train": {"groups": 2, "codebook-size": 16, "kmeans-samples": 256}, "eval": {"nodes": 2}, "x": 4}$1]}
END
}
experiment "" >small.json

expect "help" 0 --help; out "^usage: astra-bench accuracy"; out "--quick"; silent err
expect "no table" 2; err "--table NAME is missing"
expect "unknown table" 1 --table none-such; err "no experiment is named .none-such.: astra-bench accuracy --list prints all"; err "as in ./mine.json"
! grep -q "astra-data list" "$work/err" || report "a hint at a list without experiments"
expect "no such file" 1 --table ./none.json; err "none.json"
experiment ', {"name": "plain", "train": {}}' >twice.json
expect "two rows of one name" 1 --table ./twice.json; err 'twice.json: row "plain": every row needs a name of its own'
experiment ', {"name": "x", "form": "plain"}' >typo.json
expect "an unknown member" 1 --table ./typo.json; err 'typo.json: row "x": there is no member "form"; accepted are name, from, .*, note;'
experiment ', {"name": "x", "from": "y"}' >from.json
expect "a row from nowhere" 1 --table ./from.json; err 'from.json: row "x": "from" must name an earlier row'
experiment ', {"name": "../x", "from": "plain"}' >path.json
expect "a name that is a path" 1 --table ./path.json; err "path.json: row 4: .*letters, digits"
experiment ', {"name": "x", "from": "plain", "model": "tiny"}' >both.json
expect "two origins" 1 --table ./both.json; err '"from" or "model", not both'
experiment ', {"name": "x", "from": "plain", "eval": {"layout": "a\u001b[2J"}}' >escape.json
expect "what a terminal obeys" 1 --table ./escape.json; err 'escape.json: row "x": eval.layout: a text with control characters'
for wrong in '"train": {"groups": [4]}|train.groups: a number, a text, true, false or null is accepted' '"eval": 4|eval: an object of options' '"x": "4"|x: a number is accepted' \
  '"train": {"a b": 4}|train: "a b" is no option'; do
  experiment ", {\"name\": \"x\", \"from\": \"plain\", ${wrong%|*}}" >wrong.json
  expect "a wrong kind: ${wrong%|*}" 1 --table ./wrong.json; err "wrong.json: row \"x\": ${wrong#*|}"
done
experiment "" | sed 's/"scale"/"scales"/' >wrong.json
expect "an unknown member of all" 1 --table ./wrong.json; err 'wrong.json: there is no member "scales"; accepted are title, .*scale, '
experiment "" | sed 's/"figure": "top1", //' >wrong.json
expect "no figure" 1 --table ./wrong.json; err 'wrong.json: "figure" is missing'
experiment ', 4' >wrong.json
expect "a row that is none" 1 --table ./wrong.json; err "wrong.json: row 4: a JSON object is accepted"
for own in '"train": {"seed": 7}' '"train": {"out": "x"}' '"eval": {"json": false}' '"eval": {"data-dir": "x"}'; do
  experiment ", {\"name\": \"x\", \"from\": \"plain\", $own}" >own.json; key=${own#*\{}
  expect "what would be lost: $own" 1 --table ./own.json; err "own.json: row .x.: ${own%%:*} has ${key%%:*}, which astra-bench accuracy gives itself"
done
experiment "" | sed 's/"figure": "top1"/"figure": "top1,x"/' >figure.json
expect "a figure that CSV obeys" 1 --table ./figure.json; err '"figure" is a name'
experiment "" | sed 's/\[3, 5\]/[3, 3]/' >seeds.json
expect "a seed twice" 1 --table ./seeds.json; err "is there twice"
experiment ', {"name": "x", "from": "plain", "eval": {"dataset": null}}' >blind.json
expect "an evaluation of nothing" 1 --table ./blind.json; err 'x: nothing says what it is evaluated on: give "dataset" in "eval"'
experiment "" | sed 's/"rows"/"quick": {"trian": {}}, "rows"/' >quick.json
expect "an unknown member of quick" 1 --table ./quick.json; err 'quick.json: "quick": there is no member "trian"; accepted are train, eval;'
experiment "" | sed 's/"rows"/"quick": {"train": {"seed": 1}}, "rows"/' >quick.json
expect "what would be lost in quick" 1 --table ./quick.json; err 'quick.json: "quick": "train" has "seed", which astra-bench accuracy gives itself'
for dry in "" --dry-run; do
  expect "quick without settings for it $dry" 1 --table ./small.json --quick ${dry:+$dry}; err '--quick: ./small.json has no "quick", the settings that make it short'
done
[ ! -e runs ] || report "it was run"
expect "a seed twice on the command line" 2 --table ./small.json --seeds 1,1; err '--seeds "1,1"'
expect "a seed that is too large" 2 --table ./small.json --seeds 99999999999999999999; err 'different whole numbers'
expect "bad seeds" 2 --table ./small.json --seeds 1,x; err '--seeds "1,x"'
head -c 100 small.json >half.json
expect "half a file" 1 --table ./half.json; err "half.json: line"

experiment ', {"name": "x", "model": "{run:other/plain}"}, {"name": "y", "from": "x", "eval": {"layout": "{data}/{seed}"}}' >braces.json
expect "braces" 0 --table ./braces.json --seeds 7 --data-dir there --out here/braces/ --dry-run
out "^astra-infer eval --checkpoint here/other/seed-7/plain "; out "^astra-infer eval .*--layout there/7 "
expect "no data directory" 2 --table ./braces.json --seeds 7 --dry-run; err "y: --data-dir DIR is missing"
experiment ', {"name": "x", "model": "{home}"}' >other.json
expect "other braces" 1 --table ./other.json --dry-run; err '"{home}": accepted in braces'
experiment ', {"name": "x", "from": "plain", "train": {"dataset": "folder:{Data}/clothing"}}' >trained.json
expect "other braces in what is trained" 1 --table ./trained.json --dry-run; err 'x: "folder:{Data}/clothing": accepted in braces'
experiment ', {"name": "x", "model": "{run:../../plain}"}' >outside.json
expect "a run elsewhere" 1 --table ./outside.json --dry-run; err 'accepted in braces'
experiment ', {"name": "x", "from": "plain", "eval": {"layout": "a b$(c)'\''d"}}' >quotes.json
expect "what a shell obeys" 0 --table ./quotes.json --dry-run
grep -qF -e "--layout 'a b\$(c)'\\''d' " "$work/out" || report "a command line that a shell reads differently"
expect "a run that is not there" 1 --table cifar100-weights --quick; err "cifar100-groups-quick/seed-1/G=8 is not there"; err "astra-bench accuracy --table cifar100-groups --quick"
[[ $(cat "$work/err") == *"--table cifar100-groups --quick --rows G=8"*" --seeds 1" ]] || report "not the rows and the seed that it needs"
cat >others.json <<'END'
{"title": "Rows of others", "figure": "top1", "seeds": [3], "eval": {"dataset": "synthetic:32x32:4:256", "nodes": 2}, "rows": [{"name": "a", "model": "{run:other/A}"},
  {"name": "b", "model": "{run:other/B}"}, {"name": "first", "model": "{run:other/A@1}"}, {"name": "c", "model": "{run:other/C}"}, {"name": "d", "model": "{run:more/D}"}]}
END
expect "what is to be made first, with which seeds and where" 1 --table ./others.json --rows a,b,first,d --seeds 8,9 --data-dir "a b" --out here/others
err "here/other/seed-8/A is not there, .*: astra-bench accuracy --table other --rows A,B --seeds 8,1,9 --data-dir 'a b' --out here/other$"
for file in "$root"/experiments/*.json; do
  expect "the commands of $(basename "$file")" 0 --table "$(basename "$file" .json)" --data-dir there --dry-run; silent err
  cat "$work/out" >>"$work/commands"
done
# What --quick evaluates and learns from, without DIR, is bundled.
for file in "$root"/experiments/*.json; do
  expect "the quick commands of $(basename "$file")" 0 --table "$(basename "$file" .json)" --data-dir there --quick --dry-run; silent err
  for dataset in $(grep -oE -e ' --dataset [^ ]+' "$work/out" | sort -u | cut -d' ' -f3); do
    case $dataset in
      synthetic:* | *:there/*) ;;
      *) [ -d "$root/datasets/${dataset#text:}" ] || report "the data set $dataset is not bundled" ;;
    esac
  done
done
# The programs themselves are asked, as --help does not list what few need: an empty value is refused by an option that is there.
for command in "astra-train" "astra-infer eval" "astra-kmeans eval" "astra-bench fpar" "astra-bench class-token"; do
  for option in $(grep "^$command " "$work/commands" | grep -oE -e ' --[a-z0-9-]+' | sort -u); do
    # shellcheck disable=SC2086
    run "option of the experiments: $command" 2 "$bin"/$command "$option=" --no-such-option
    grep -q "unknown option $option[;,]" "$work/err" && report "there is no such option"
  done
done
# astra-train accepts the options of every row together: with a finished --out that alone is left to refuse. One row for each set of options.
mkdir finished; touch finished/config.json
declare -A asked
while read -r line; do
  eval "words=($line)" names="" # as a shell takes them
  for ((i = 1; i < ${#words[@]}; i++)); do
    case ${words[i]} in
      --overwrite) unset "words[i]" ;;
      --out) words[i + 1]=finished ;;
      --model | --teacher | --init) # what another row or table makes: a bundled one of its kind
        case ${words[i + 1]} in
          runs/*llama*) words[i + 1]=$root/tests/golden/stories260K ;;
          runs/*wiki* | runs/*gpt2*) words[i + 1]=gpt2-mini ;;
          runs/*) words[i + 1]=vit-cifar-45k ;;
        esac
        names+=" ${words[i]} ${words[i + 1]}" ;;
      --*) names+=" ${words[i]}" ;;
    esac
  done
  [ -z "${asked[$names]:-}" ] || continue
  asked[$names]=yes
  run "$line" 1 "$bin/${words[0]}" "${words[@]:1}"; err "holds finished work already"
done < <(grep '^astra-train ' "$work/commands" | grep -e ' --seed 1 ')
[ ${#asked[@]} -gt 20 ] || report "only ${#asked[@]} sets of options are checked"

# The list of the paper's experiments: its commands and tables are there, it has all that come with the programs, and all that the paper shows.
list=$root/docs/results/README.md
name="docs/results/README.md"
for table in $(grep -oE -e '--table [a-z0-9-]+' "$list" | sort -u | cut -d' ' -f2); do
  [ "$table" = all ] || [ -e "$root/experiments/$table.json" ] || report "there is no experiment $table"
done
for file in "$root"/experiments/*.json; do
  table=$(basename "$file" .json)
  ends='`'
  ! grep -q '{data}' "$file" || ends=' --data-dir DIR`' # without it the experiment is refused
  grep -F -e "--table $table$ends" "$list" | grep -qE ' \| (-|<?[0-9.]+) \| [^|]*\|$' || report "lacks the experiment $table, or its hours"
  grep -qF "${table//-/\\-}\\fR" "$root/docs/man/astra-bench.1" || report "astra-bench(1) lacks the experiment $table"
done
while read -r command word; do
  [[ $word == -* ]] || "$bin/$command" "$word" --help >/dev/null 2>&1 || report "there is no command $command $word"
done < <(grep -oE '`astra-[a-z]+ [^ `]+' "$list" | tr -d '`' | sort -u)
paper=${ASTRA_SHARED:-$root/../shared}/paper/astra-paper.tex
if [ -e "$paper" ]; then
  for label in $(grep -oE '\\label\{(tab|fig|thm):[a-zA-Z0-9_-]+\}' "$paper" | sed 's/.*{//; s/}//' | grep -v fig:overview); do
    grep -qF "\`$label\`" "$list" || report "lacks the paper's $label"
  done
else
  echo "skipped: the paper is not at $paper: what it shows is not compared with $list"
fi

# Rows with a baseline of their own, with another figure of an earlier row's evaluation, with the checkpoint of one seed; another evaluation.
own() { experiment ", {\"name\": \"bytes\", \"of\": \"G=4\", \"figure\": \"nodes.1.bytes_sent\"}, {\"name\": \"G=4-raster\", \"from\": \"G=4\",
  \"baseline\": \"G=4\", \"eval\": {\"layout\": \"raster\"}}$1"; }
own ', {"name": "y", "of": "none"}' >of.json
expect "the evaluation of no row" 1 --table ./of.json; err '"of" must name an earlier row'
own ', {"name": "y", "of": "plain", "eval": {"nodes": 2}}' >of.json
expect "settings of no evaluation" 1 --table ./of.json; err 'row with "of" has no model or settings'
own ', {"name": "y", "from": "bytes", "train": {}}' >of.json
expect "a model of another row's evaluation" 1 --table ./of.json --dry-run; err '"from" must name an earlier row with a model of its own'
own ', {"name": "y", "from": "plain", "baseline": "z"}' >of.json
expect "a baseline that is not there" 1 --table ./of.json; err "row's \"baseline\" must name"
own ', {"name": "y", "model": "{run:other/plain@12}"}' >at.json
expect "the checkpoint of one seed" 0 --table ./at.json --seeds 7 --dry-run --out here/at; out "eval --checkpoint here/other/seed-12/plain "
own ', {"name": "y", "model": "{run:other/plain@1x}"}' >at.json
expect "a seed that is none" 1 --table ./at.json --seeds 7 --dry-run; err 'accepted in braces'
experiment "" | sed 's/"figure"/"evaluation": "astra-infer plan", "figure"/' >evaluation.json
expect "an evaluation that is none" 1 --table ./evaluation.json; err '"evaluation" is astra-infer eval'
experiment "" | sed 's/"figure": "top1"/"evaluation": "astra-kmeans eval", "figure": "mean.wasserstein_full"/' >evaluation.json
expect "another evaluation" 0 --table ./evaluation.json --seeds 3 --dry-run; out "^astra-kmeans eval --codebooks runs/evaluation/seed-3/G=4 "
! grep -q -e "^astra-kmeans.*--per-sample" "$work/out" || report "an option that astra-kmeans does not have"

expect "dry run as JSON" 2 --table ./small.json --dry-run --json; err "cannot be combined with --json"
expect "dry run" 0 --table ./small.json --dry-run; silent err
[ "$(grep -c '^astra-train' "$work/out")" = 6 ] && [ "$(grep -c '^astra-infer eval' "$work/out")" = 6 ] || report "not six trainings and evaluations"
out "^astra-train .*--groups 4 .*--model runs/small/seed-5/plain .*--seed 5 .*--out runs/small/seed-5/G=4 "
out "^astra-train .*--threads 1 "; ! grep -q -e "--threads 0" "$work/out" || report "the experiment's threads are not kept"
expect "threads of the command line" 0 --table ./small.json --dry-run -t 2
[ "$(grep -c -e "--threads 2 " "$work/out")" = 6 ] && ! grep -q -e "--threads 1 " "$work/out" || report "the experiment's threads, or both"
[ ! -e runs/small ] || report "a dry run left files"

expect "the experiment" 0 --table ./small.json --out run
out "^| plain | - | [0-9.]* ± [0-9.]* | - | - | 90.00 | - | 2 |$"; out "^| G=4 | 2 | [0-9.]* ± [0-9.]* | [+-]\?[0-9.]* ± [0-9.]* | [+-]\?[0-9.]* to [+-]\?[0-9.]* | 88.50 | -1.50 | 2 |$"
err "run: results.md, results.csv, metrics.csv, results.png$"; out '^`astra-bench accuracy --table ./small.json`: '
cmp -s "$work/out" run/results.md || report "results.md is not what was printed"
[ "$(wc -l <run/results.csv)" = 7 ] || report "not a CSV row a run"
[ "$(tail -n +2 run/metrics.csv | wc -l)" = "$(cat run/seed-?/*/metrics.csv | grep -vc '^step')" ] || report "metrics of other trainings, or not of all"
[ "$(head -n 1 run/metrics.csv | cut -d, -f1-3)" = row,seed,step ] || report "the metrics' columns are $(head -n 1 run/metrics.csv)"
losses() { awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "loss") at = i; next } { print $at }'; }
cmp -s <(grep -e '^row,' -e '^G=2,5,' run/metrics.csv | losses) <(losses <run/seed-5/G=2/metrics.csv) || report "other losses than those of the training"
commit=$(cat "$bin/../commit")
[ "$(cut -d, -f2 run/results.csv | sort -u | tr '\n' ' ')" = "$(printf '%s\n' ${commit:+"\"$commit\""} commit | sort | tr '\n' ' ')" ] || [ -z "$commit" ] ||
  report "another commit than that of the programs"
for seed in 3 5; do
  holds "$(awk -F, 'NR > 1 { n += $2; right += $3 } END { print right / n }' run/seed-$seed/plain.samples.csv) == $(jq .top1 run/seed-$seed/plain.eval.json)"
  grep -q "^plain,[^,]*,$seed,,top1,$(jq '100 * .top1' run/seed-$seed/plain.eval.json)," run/results.csv || report "another figure than the evaluation's, seed $seed"
done
[ "$(head -c 4 run/results.png | tail -c 3)" = PNG ] || report "no chart"
before=$(stat -c %Y%i run/seed-3/G=4/model.safetensors)
expect "again" 0 --table ./small.json --out run --json
jq -e '.schema == 1 and (.rows | length) == 3 and .rows[1].row == "G=4" and .rows[1].seeds == 2 and .rows[1].paper == 88.5 and .rows[2].paper == null and
  (.rows[0] | .row == "plain" and .difference == null and .difference_low == null) and
  (.rows[1] | .difference_low <= .difference and .difference <= .difference_high and .difference_low >= -100)' <"$work/out" >/dev/null || report "another JSON"
[ "$before" = "$(stat -c %Y%i run/seed-3/G=4/model.safetensors)" ] || report "a finished run was made again"

# Where the folder lies and how it is spelt is no setting: a copy has what was made, as has the folder by another name. Lines as programs write them.
cp -r run moved; cp -r run "a moved 'one'"; grep -q -e "--out run/seed-3/G=4 " moved/seed-3/G=4.commands || report "a command line without the folder's place"
for place in moved "$PWD/moved" ./moved "a moved 'one'"; do
  expect "a moved folder, $place" 0 --table ./small.json --out "$place" --json; ! grep -q "training\|evaluation\|warning" "$work/err" || report "a row is made again"
  jq -e '[.rows[].seeds] == [2, 2, 2]' <"$work/out" >/dev/null || report "not all rows"
done
cp moved/results.csv before.csv
for seeds in 3 7; do
  expect "the folder spelt another way, seed $seeds" 0 --table ./small.json --out "$PWD/moved" --seeds $seeds --rows plain; ! grep -q "warning" "$work/err" || report "there is a warning"
  [ "$(grep -v '^plain,[^,]*,7,' moved/results.csv)" = "$(cat before.csv)" ] && grep -q "^G=2,5," moved/metrics.csv || report "rows of before have left the results"
done
# What is made with other settings is left out and told of.
experiment "" 5 >changed.json
expect "rows with other settings beside a new one" 0 --table ./changed.json --out moved --seeds 8 --rows plain; err "warning: 6 rows made with other settings, .* are left out of the results in moved"
[ "$(cut -d, -f1,3 moved/results.csv | xargs)" = "row,seed plain,8" ] || report "rows with other settings are in the results"
[ -e run/results.png ] && [ ! -e moved/results.png ] || report "a chart of rows that are not in the results"
# A model of another experiment moves with the folder beside which that is; of a third one, or of this one, it is another setting.
mkdir -p here/family gone; cp -r run here/family/other
cat >relatives.json <<'END'
{"title": "A model made beside", "figure": "mean.distortion", "evaluation": "astra-kmeans eval", "seeds": [3], "eval": {"dataset": "synthetic:32x32:4:256"},
 "rows": [{"name": "it", "model": "{run:other/G=4}", "x": 1}]}
END
expect "a model of another experiment" 0 --table ./relatives.json --out here/family/relatives; err "here/family/relatives: results.md, results.csv, metrics.csv$"
mv here/family gone/family
for place in gone/family/relatives "$PWD/gone/family/relatives"; do
  expect "both moved, $place" 0 --table ./relatives.json --out "$place" --json; ! grep -q "evaluation" "$work/err" || report "it is made again"
done
sed -i 's/other/another/' relatives.json
expect "a model of a third experiment" 1 --table ./relatives.json --out gone/family/relatives; err "run with other settings"
cp -r run gone/family/own
experiment ', {"name": "it", "model": "{run:other/G=4}", "eval": {"nodes": 2}}' >it.json
expect "a model made beside, again" 0 --table ./it.json --seeds 3 --out gone/family/own; err "it: evaluation"
experiment ', {"name": "it", "from": "G=4", "eval": {"nodes": 2}}' >it.json
expect "the same model made here" 1 --table ./it.json --seeds 3 --out gone/family/own; err "seed 3, it: .*run with other settings"

cp -r run misspelt; rm misspelt/seed-3/G=4.eval.json; touch misspelt/seed-3/G=4.eval.json.tmp-123
experiment ', {"name": "y", "of": "G=4", "figure": "nodes.x.bytes_sent"}' >misspelt.json
expect "no number of a list's element" 1 --table ./misspelt.json --out misspelt --seeds 3; err 'has no number "nodes.x.bytes_sent", .*; it has .* top1, .*nodes.0.bytes_sent, '
[ ! -e misspelt/seed-3/G=4.eval.json.tmp-123 ] || report "what a killed command left half written is still there"

# Seeds that are not chosen are not run, but stay in the results, as rows do; those of the command line come to the file's.
cp -r run one; rm -r one/seed-5
cp -r run narrow; rm narrow/seed-5/G=2.eval.json
expect "one of the seeds" 0 --table ./small.json --out narrow --seeds 3 --json; ! grep -q "seed 5" "$work/err" || report "a seed that is not chosen is run"
jq -e '[.rows[].seeds] == [2, 2, 1]' <"$work/out" >/dev/null && [ "$(wc -l <narrow/results.csv)" = 6 ] || report "seeds of earlier commands are left out"
grep -q "deviation over as many seeds as the last column says" narrow/results.md && grep -q "^plain,5," narrow/metrics.csv || report "seeds of earlier commands are left out of a file"
expect "a seed that the file does not have" 0 --table ./small.json --out narrow --seeds 7 --rows plain --json
jq -e '[.rows[].seeds] == [3, 2, 1]' <"$work/out" >/dev/null && [ "$(grep -oE '^plain,[^,]*,[0-9]+' narrow/results.csv | cut -d, -f3 | xargs)" = "3 5 7" ] || report "not the file's seeds and that one"
# What is wrong with those that are not run is told, and they are left out.
cp narrow/seed-5/G=4.eval.json whole.json; echo '{"loss": 1}' >narrow/seed-5/G=4.eval.json; rm narrow/seed-5/plain.samples.csv
expect "an evaluation of another seed without the figure" 0 --table ./small.json --out narrow --seeds 3 --json; err "warning: seed 5, G=4: .*has no number .top1.*; it has loss$"
jq -e '[.rows[].seeds] == [2, 1, 1]' <"$work/out" >/dev/null || report "it is not left out"
expect "the same of a seed that is run" 1 --table ./small.json --out narrow --seeds 5; err "error: seed 5, G=4: .*has no number .top1"
mv whole.json narrow/seed-5/G=4.eval.json
cp narrow/seed-5/G=4.train.json whole.json; echo '{' >narrow/seed-5/G=4.train.json
expect "half of a training's result of another seed" 0 --table ./small.json --out narrow --seeds 3 --json; err "warning: seed 5, G=4: .*G=4.train.json"
mv whole.json narrow/seed-5/G=4.train.json
expect "samples of another seed that are gone" 0 --table ./small.json --out narrow --seeds 3 --json
jq -e '.rows[1] | .seeds == 2 and .difference != null and .difference_low == null' <"$work/out" >/dev/null || report "an interval of samples that are not there"
expect "the seeds of a list" 0 --list --table ./small.json --out narrow --seeds 7,3; out "^plain  *7 3$"; out "^G=2  *3$"
experiment "" | sed 's/"rows"/"quick": {"train": {"max-steps": 2}}, "rows"/' >quick.json
expect "quick, with the file's first seed" 0 --table ./quick.json --quick --dry-run; out "^astra-train .*--max-steps 2 "; ! grep -q "seed-5" "$work/out" || report "quick takes more than a seed"

# The mean loss of images is a figure, too, and that at the best temperature: they tell models apart that top-1 does not.
column=4
for figure in loss tempered_loss; do
  experiment "" | sed 's/"figure": "top1", "scale": 100, "unit": "%"/"figure": "'$figure'"/' >loss.json
  expect "the $figure" 0 --table ./loss.json --out one --seeds 3 --json
  jq -e --argjson ours "$(jq .$figure one/seed-3/G=4.eval.json)" --argjson plain "$(jq .$figure one/seed-3/plain.eval.json)" --arg figure $figure '.figure == $figure and
    (.rows[1] | .mean == $ours and (.difference - ($ours - $plain) | fabs) < 1e-6 and .difference_low <= .difference and .difference <= .difference_high)' \
    <"$work/out" >/dev/null || report "another $figure than the evaluation's, or no interval"
  holds "($(awk -F, -v c=$column 'NR > 1 { n += $2; loss += $c } END { printf "%.9f", loss / n }' one/seed-3/plain.samples.csv) - $(jq .$figure one/seed-3/plain.eval.json)) ^ 2 < 1e-12"
  column=$((column + 1))
done
# Tables show four decimals of it, and percentages two; what rounds to nothing has no sign.
cp -r one decimals
for pair in plain:2.345678 G=4:2.3333 G=2:2.34567; do jq ".loss = ${pair#*:}" "decimals/seed-3/${pair%:*}.eval.json" >with && mv with "decimals/seed-3/${pair%:*}.eval.json"; done
experiment "" | sed 's/"figure": "top1", "scale": 100, "unit": "%"/"figure": "loss", "unit": " nats"/' >loss.json
expect "the decimals of losses" 0 --table ./loss.json --out decimals --seeds 3; out ": loss in nats, mean"
out "^| plain | - | 2.3457 | - | - | 90.0000 | - | 1 |$"; out "^| G=4 | 2 | 2.3333 | -0.0124 | [+-]\?[0-9]\.[0-9]\{4\} to [+-]\?[0-9]\.[0-9]\{4\} | 88.5000 | -1.5000 | 1 |$"
out "^| G=2 | 4 | 2.3457 | 0.0000 | "
jq '.loss = 0.0234567' decimals/seed-3/plain.eval.json >with && mv with decimals/seed-3/plain.eval.json
sed -i 's/"unit": " nats"/"scale": 100, "unit": "%"/' loss.json
expect "the decimals of percentages" 0 --table ./loss.json --out decimals --seeds 3; out ": loss in %, mean"; out "^| plain | - | 2.35 | - | - | 90.00 | - | 1 |$"
holds "$(jq .tempered_loss one/seed-3/plain.eval.json) <= $(jq .loss one/seed-3/plain.eval.json) && $(jq .temperature one/seed-3/plain.eval.json) >= 0.5"

own "" >own.json
expect "rows of the same models" 0 --table ./own.json --out one --seeds 3 --json
jq -e --argjson sent "$(jq '100 * .nodes[1].bytes_sent' one/seed-3/G=4.eval.json)" --argjson plain "$(jq '100 * .top1' one/seed-3/G=4.eval.json)" \
  --argjson raster "$(jq '100 * .top1' one/seed-3/G=4-raster.eval.json)" '(.rows[3] | .mean == $sent and .difference == null) and
  (.rows[4] | (.difference - ($raster - $plain) | fabs) < 1e-6 and .difference_low != null)' <"$work/out" >/dev/null || report "other figures"
grep -q "^| G=4-raster | - | [0-9.]* | G=4: [+-]\?[0-9.]* | " one/results.md || report "the baseline of a row is not named"
[ ! -e one/seed-3/bytes.eval.json ] || report "the same evaluation was made twice"

# Seeds share the test samples: two that answer alike say no more than one.
interval() { jq -c '.rows[1] | [.difference_low, .difference_high]' "$work/out"; }
samples() { awk "BEGIN { print \"sample,items,correct,loss\"; for (i = 0; i < 60; i++) print i \",1,\" ($1) \",1\" }"; } # WHETHER i IS RIGHT
for place in one/seed-3 run/seed-3 run/seed-5; do samples "i % 2" >$place/plain.samples.csv; samples "i % 3 == 0" >$place/G=4.samples.csv; done
expect "one seed" 0 --table ./small.json --out one --seeds 3 --json
one=$(interval)
jq -e '.rows[1] | .difference_low < .difference_high' "$work/out" >/dev/null || report "an interval of one number"
# Samples are paired by their numbers, whatever their order; others are no pairs.
sort -t, -k2,2 -k1,1nr one/seed-3/G=4.samples.csv >with && ! cmp -s with one/seed-3/G=4.samples.csv && mv with one/seed-3/G=4.samples.csv
expect "samples in another order" 0 --table ./small.json --out one --seeds 3 --json
[ "$(interval)" = "$one" ] || report "not the interval $one of the same samples"
awk -F, -v OFS=, '$1 == 7 { $1 = 60 } { print }' one/seed-3/G=4.samples.csv >with && mv with one/seed-3/G=4.samples.csv
expect "another sample" 0 --table ./small.json --out one --seeds 3 --json
jq -e '.rows[1] | .difference != null and .difference_low == null' "$work/out" >/dev/null || report "an interval of other samples"
samples "i % 3 == 0" >one/seed-3/G=4.samples.csv
expect "two alike" 0 --table ./small.json --out run --json
[ "$(interval)" = "$one" ] || report "not the interval $one of one seed"

# Perplexities are of what samples count, tokens, unless the evaluation divides by something else: then they tell nothing of its error.
cp -r one words; rm -r words/seed-3/G=2*
for part in plain G=4; do jq '.perplexity = 5' words/seed-3/$part.eval.json >with && mv with words/seed-3/$part.eval.json; done
experiment "" | sed 's/"figure": "top1"/"figure": "perplexity"/' >perplexity.json
expect "perplexities a token" 0 --table ./perplexity.json --out words --seeds 3 --rows G=4 --json
jq -e '.rows[1].difference_low != null' "$work/out" >/dev/null || report "perplexities a token without an interval"
sed 's/"eval": {"dataset"/"eval": {"perplexity": "word", "dataset"/' perplexity.json >word.json
for part in plain G=4; do
  jq '.eval |= sub(" --nodes (?<n>.)"; " --nodes \(.n) --perplexity word")' words/seed-3/$part.commands >with && mv with words/seed-3/$part.commands
done
expect "perplexities a word" 0 --table ./word.json --out words --seeds 3 --rows G=4 --json
jq -e '.rows[1] | .row == "G=4" and .difference != null and .difference_low == null' "$work/out" >/dev/null || report "an interval of something else"

# Chosen rows come with those that they need, and with what was made before.
expect "a row that is none" 2 --table ./own.json --out chosen --rows G=4,none; err '"none" is no row'
expect "the command of one row" 0 --table ./own.json --dry-run --rows plain --seeds 3
[ "$(wc -l <"$work/out")" = 2 ] || report "more than the commands of one row"
expect "one row" 0 --table ./own.json --out chosen --rows plain --seeds 3 --json
jq -e '[.rows[].row] == ["plain"]' <"$work/out" >/dev/null || report "other rows than that"
expect "rows that others need" 0 --table ./own.json --out chosen --rows G=4-raster --seeds 3 --json # bytes is of an evaluation that is there, then
jq -e '[.rows[].row] == ["plain", "G=4", "bytes", "G=4-raster"]' <"$work/out" >/dev/null || report "not the rows that it needs"
err "seed 3, G=4: training"; err "seed 3, G=4-raster: evaluation"
! grep -q "G=2" "$work/err" && [ ! -e chosen/seed-3/G=2.log ] || report "a row that is not chosen is run"
expect "what was made before" 0 --table ./own.json --out chosen --rows plain --seeds 3 --json
jq -e '[.rows[].row] == ["plain", "G=4", "bytes", "G=4-raster"]' <"$work/out" >/dev/null || report "not the rows that were made before"
[ "$(grep -c "^| " chosen/results.md)" = 5 ] && [ "$(wc -l <chosen/results.csv)" = 5 ] || report "rows without figures, or not all"

# What there is, and what of it is made: the row that reads another one's evaluation counts with that.
expect "all that come with the programs" 0 --list; out "^cifar100-groups  .* 0 of "; silent err
[ "$(tail -n +2 "$work/out" | wc -l)" = "$(ls "$root"/experiments/*.json | wc -l)" ] || report "not a line for each experiment"
# Those of the current directory come to them, and replace those of their names. A folder of this name may hold other things.
mkdir experiments; echo "not an experiment" >experiments/README
expect "a folder without experiments" 0 --list; silent err
[ "$(tail -n +2 "$work/out" | wc -l)" = "$(ls "$root"/experiments/*.json | wc -l)" ] || report "it hides those that come with the programs"
for name in mine cifar100-groups; do cp small.json experiments/$name.json; done
echo '{"learning_rate": 0.1}' >experiments/sweep.json; echo '{' >experiments/v1.2.json
expect "experiments of several folders" 0 --list; out "^mine  .*  A small one$"; out "^cifar100-groups  .*  A small one$"
err "warning: no experiment, left out: experiments/sweep.json: .*title"; err "warning: no experiment, left out: experiments/v1.2.json: names have"
[ "$(tail -n +2 "$work/out" | wc -l)" = $(($(ls "$root"/experiments/*.json | wc -l) + 1)) ] || report "not a line for each experiment"
rm -r experiments
expect "rows of a list" 2 --list --rows G=4 --table ./own.json; err "cannot be combined with --rows"
expect "the rows of a table" 0 --list --table ./own.json --out chosen; out "^G=4-raster  *3$"; out "^bytes  *3$"; out "^G=2 *$"
expect "the same as JSON" 0 --list --table ./own.json --out chosen --json
jq -e '.schema == 1 and .table == "./own.json" and ([.rows[] | .row] | index("plain") == 0) and (.rows[] | select(.row == "plain").made) == [3]' <"$work/out" >/dev/null || report "another list"

# The chart: the order of the rows does not change it; where the baseline has no figure of the paper it is another one.
chart() { expect "$1" 0 --table ./"$2" --out one --seeds 3 --json; cp one/results.png "$3.png"; } # NAME FILE TO
jq '.rows += [{"name": "again", "from": "G=4", "eval": {"nodes": 2, "layout": "raster"}, "x": 3}]' small.json >three.json; chart "three points" three.json first
for figure in G=4:0.3 again:0.9 G=2:0.5; do jq ".top1 = ${figure#*:}" "one/seed-3/${figure%:*}.eval.json" >figure && mv figure "one/seed-3/${figure%:*}.eval.json"; done
chart "three heights" three.json first
jq '.rows |= [.[0], .[1], .[3], .[2]]' three.json >swapped.json; chart "rows in another order" swapped.json second
cmp -s first.png second.png || report "the order of the rows changes the chart"
jq '.rows += [{"name": "loss", "of": "G=4", "figure": "loss", "x": 2.5}]' three.json >other.json; chart "another figure, which is no change" other.json fourth
cmp -s first.png fourth.png || report "the chart shows another figure's difference from the baseline"
jq 'del(.rows[0].paper)' three.json >alone.json; chart "a baseline without the paper's figure" alone.json third
! cmp -s first.png third.png || report "the chart does not show changes"

experiment "" | sed 's/"threads": 1/"threads": 2/' >threads.json
expect "another number of threads" 0 --table ./threads.json --out run --seeds 3 --json; ! grep -q "training;" "$work/err" || report "a row is run again for another number of threads"
expect "the number of the command line" 0 --table ./small.json --out run --seeds 3 -t 2 --json; ! grep -q "training;" "$work/err" || report "a row is run again for -t"
grep -q -e "--threads 1 " run/results.csv && ! grep -q -e "--threads 2 " run/results.csv || report "the CSV does not have the threads that a row was run with"

# How a row was run is not guessed.
cp -r run unknown; rm unknown/seed-3/G=2.commands
expect "a row without its command lines" 1 --table ./small.json --out unknown --seeds 3; err "G=2.commands, which says how this row was run, is missing; .* remove unknown/seed-3/G=2 and unknown/seed-3/G=2.\* to run it again"
expect "one that is not asked for" 0 --table ./small.json --out unknown --seeds 3 --rows plain; err "warning: .*G=2.commands, which says how this row was run, is missing"
echo '{' >unknown/seed-3/G=2.commands
expect "a row with damaged ones" 1 --table ./small.json --out unknown --seeds 3; err "G=2.commands, which says how this row was run, is damaged"

# A training whose end was lost goes on from its last checkpoint, and is evaluated anew.
cp -r run again; rm again/seed-3/G=2.train.json
jq '.top1 = 7' again/seed-3/G=2.eval.json >with && mv with again/seed-3/G=2.eval.json; echo "before" >again/seed-3/G=2.samples.csv
expect "a training without its end" 0 --table ./small.json --out again --seeds 3; err "seed 3, G=2: training"; err "seed 3, G=2: evaluation"
holds "$(jq .top1 again/seed-3/G=2.eval.json) <= 1"; ! grep -q before again/seed-3/G=2.samples.csv || report "samples of the model before"

# One that is evaluated anew has the same model, and what goes on from that stays in the results.
cp -r again evaluated; rm evaluated/seed-3/plain.eval.json
expect "a base that is evaluated again" 0 --table ./small.json --out evaluated --seeds 3 --rows plain --json
err "seed 3, plain: evaluation"; ! grep -q "training;\|G=" "$work/err" || report "more than that evaluation is made"
jq -e '[.rows[].seeds] == [2, 2, 2]' <"$work/out" >/dev/null && [ "$(wc -l <evaluated/results.csv)" = 7 ] || report "rows that go on from it have left the results"

# A base that is trained anew is another model: its rows are not taken for made, until their files go as the message says.
cp -r run renewed; rm -r renewed/seed-3/plain renewed/seed-3/plain.*
expect "a base alone, made again" 0 --table ./small.json --out renewed --seeds 3 --rows plain; err "warning: 2 rows made with other settings, or from a model that is another one now, are left out"
rm -r renewed
cp -r run renewed; rm -r renewed/seed-3/plain renewed/seed-3/plain.*
expect "a base that is made again" 1 --table ./small.json --out renewed --seeds 3; err "from a model that has been made again since"; err "remove renewed/seed-3/G=4 and renewed/seed-3/G=4\.\*"
grep -q '^plain,[^,]*,3,' renewed/results.csv && ! grep -q '^G=.,[^,]*,3,' renewed/results.csv || report "rows of the former base beside the new one"
rm renewed/seed-3/G=4.train.json renewed/seed-3/G=4.eval.json # killed in mid-training: nothing but its state says that it had begun
expect "a base that is made again under a training" 1 --table ./small.json --out renewed --seeds 3 --rows G=4; err "from a model that has been made again since"
rm -r renewed/seed-3/G=[24] renewed/seed-3/G=[24].*
expect "and its rows with it" 0 --table ./small.json --out renewed --seeds 3
# Nor is a directory that an interrupted training has left a model to begin with.
mkdir -p here/other/seed-7/plain
expect "a training that has not ended" 1 --table ./braces.json --seeds 7 --data-dir there --out here/braces/; err "here/other/seed-7/plain is not there, or not trained to its end"

# So is another model under the name of the one, installed or a directory, that a row begins with, evaluates or learns from.
mkdir -p "$ASTRA_HOME/checkpoints"; cp -r one/seed-3/plain "$ASTRA_HOME/checkpoints/installed"; cp -r one/seed-3/plain there; unseal there/model.safetensors
cat >models.json <<'END'
{"title": "Models that no row makes", "figure": "top1", "seeds": [3], "train": {"dataset": "synthetic:32x32:4:256", "max-steps": 2, "batch": 16, "threads": 1},
 "eval": {"dataset": "synthetic:32x32:4:256", "nodes": 1}, "rows": [{"name": "evaluated", "model": "installed"},
  {"name": "trained", "model": "installed", "train": {"distill": 0, "groups": 4, "codebook-size": 16, "kmeans-samples": 256}},
  {"name": "taught", "from": "evaluated", "train": {"distill": 0.5, "teacher": "there", "groups": 4, "codebook-size": 16, "kmeans-samples": 256}}]}
END
expect "models that no row makes" 0 --table ./models.json --out models
run "digests in one of them" 0 "$bin/astra-data" verify there --write
cp -r models sealed
expect "the same models" 0 --table ./models.json --out sealed; ! grep -q "training\|evaluation" "$work/err" || report "a row is made again"
cp run/seed-5/plain/model.safetensors there/
expect "another teacher" 1 --table ./models.json --out models; err "taught: .*run from a model that has been made again since, or replaced"
cp run/seed-5/plain/model.safetensors "$ASTRA_HOME/checkpoints/installed/"
for row in evaluated trained; do
  expect "another model for $row" 1 --table ./models.json --out models --rows $row; err "seed 3, $row: .*from a model that has been made again since, or replaced"
done
# What was made before models were noted is taken for made from them, and stays so.
for commands in models/seed-3/*.commands; do jq '{train, eval}' "$commands" >with && mv with "$commands"; done
for time in first second; do expect "made before models were noted, the $time time" 0 --table ./models.json --out models --json; jq -e '.rows | length == 3' <"$work/out" >/dev/null || report "not all rows"; done

experiment "" 5 >small.json
expect "other settings" 1 --table ./small.json --out run; err 'run with other settings, of which the first is "--max-steps 5" now, "--max-steps 4" then; give'; err "seed 3, plain"
sed 's/"nodes": 1}/"nodes": 1, "samples": 9}/; s/"max-steps": 5/"max-steps": 4/' small.json >sampled.json
expect "another setting" 1 --table ./sampled.json --out run; err 'of which the first is "--samples" now, "--per-sample" then; give'
# What can be known beforehand is told before anything is run: options and their values, and models that are not there.
while IFS='|' read -r members why; do
  experiment ", {\"name\": \"last\", \"from\": \"plain\", $members}" >later.json
  expect "a mistake in the last row: $members" 1 --table ./later.json --seeds 3 --out later; err "seed 3, last: $why"; silent out
  [ ! -e later ] || report "there are files of the first row"
done <<'END'
"train": {"no-such-option": 1}|astra-train: unknown option --no-such-option
"train": {"max-steps": "many"}|astra-train: --max-steps
"eval": {"node": 2}|astra-infer eval: unknown option --node; did you mean --nodes
"train": {"teacher": "{run:other/plain}"}|other/seed-3/plain is not there, or not trained to its end; make it first: astra-bench accuracy --table other
"train": {"teacher": "{run:cifar100-groups/G=9}"}|{run:cifar100-groups/G=9}: the experiment cifar100-groups has no row "G=9"; astra-bench accuracy --list
END
experiment ', {"name": "last", "from": "plain", "train": {"no-such-option": 1}}' >later.json
expect "the same of a dry run" 1 --table ./later.json --dry-run; err "seed 3, last: astra-train: unknown option --no-such-option"; silent out

experiment ', {"name": "bad", "from": "plain", "train": {"groups": 7}}' >bad.json # of 48 numbers
expect "a program that fails" 1 --table ./bad.json --seeds 3 --out failing; err "seed 3, bad: .*astra-train: exit code [12]: .*7"; err "bad.log"
[ "$(wc -l <failing/results.csv)" = 4 ] || report "finished rows are not in the CSV"
# What has failed at once has made nothing: it may be run with other settings, of which the training's are not changed under an evaluation.
experiment ', {"name": "bad", "from": "plain", "eval": {"nodes": 64}}' >sized.json
expect "another row, whose evaluation fails" 1 --table ./sized.json --seeds 3 --out failing; err "seed 3, bad: .*astra-infer: exit code"
experiment ', {"name": "bad", "from": "plain", "train": {"max-steps": 2}, "eval": {"nodes": 64}}' >sized.json
expect "a training in place of none, whose evaluation fails" 1 --table ./sized.json --seeds 3 --out failing; err "bad: training"; err "seed 3, bad: .*astra-infer: exit code"
[ -s failing/seed-3/bad.train.json ] && [ ! -e failing/seed-3/bad.part.json ] || report "no training, or its seconds are left behind"
sed -i 's/"nodes": 64/"nodes": 1/' sized.json
expect "another evaluation of the same training" 0 --table ./sized.json --seeds 3 --out failing; ! grep -q "bad: training" "$work/err" || report "trained again"
sed -i 's/"max-steps": 2/"max-steps": 3/' sized.json
expect "a training that there is, with other settings" 1 --table ./sized.json --seeds 3 --out failing; err "bad: .*run with other settings"
cp -r run remade; rm remade/seed-3/G=4.eval.json
expect "a row that fails behind one that is made again" 1 --table ./bad.json --out remade; err "seed 3, G=4: evaluation"; err "seed 3, bad: "
[ "$(wc -l <remade/results.csv)" = 7 ] && [ "$(grep -c '^| G=. .* 2 |$' remade/results.md)" = 2 ] || report "finished rows and seeds have left the results"

# Interrupted while it trains: the training is told, and goes on from its checkpoint.
experiment "" 400 | sed 's/"max-steps"/"checkpoint-every": 20, "max-steps"/' >long.json
"$program" accuracy --table ./long.json --seeds 3 --out long >"$work/out" 2>"$work/err" &
started=$! name="interrupted"
for ((i = 0; i < 600; i++)); do [ -e long/seed-3/plain/training/state.safetensors ] && break; sleep 0.05; done
kill -TERM $started
wait $started
[ $? = 1 ] || report "not exit code 1"
err "interrupted"; err "the same command goes on"
grep -q "interrupted after step" long/seed-3/plain.log || report "the training did not save its state"
[ ! -e long/seed-3/plain.train.json ] || report "the training had ended before"
# Killed, it cannot note what its training took: the seconds of all parts are not known, also where those of the first are.
cp -r long killed
"$program" accuracy --table ./long.json --seeds 3 --rows plain --out killed >"$work/out" 2>"$work/err" &
started=$! name="killed"
for ((i = 0; i < 600; i++)); do [ -e killed/seed-3/plain.part.json ] || break; sleep 0.05; done
kill -KILL $started; wait $started 2>/dev/null
flock -w 60 killed/seed-3/plain.lock true || report "the row is still locked"
expect "what was killed goes on" 0 --table ./long.json --seeds 3 --rows plain --out killed
[ "$(jq .bench_seconds killed/seed-3/plain.train.json)" = null ] || report "it took $(jq .bench_seconds killed/seed-3/plain.train.json) s"
grep -q "^plain,[^,]*,3,[^,]*,top1,[^,]*,,[0-9]" killed/results.csv || report "results.csv has seconds of a training: $(cat killed/results.csv)"
jq '.bench_seconds += 1000' long/seed-3/plain.part.json >part && mv part long/seed-3/plain.part.json # a part that is sure to be noticed
expect "goes on" 0 --table ./long.json --seeds 3 --out long -t 2
grep -q "step 400/400" long/seed-3/plain.log && [ "$(grep -c 'step 20/400' long/seed-3/plain.log)" = 1 ] || report "the training began anew"
holds "$(jq .bench_seconds long/seed-3/plain.train.json) > 1000"; holds "$(jq .bench_seconds long/seed-3/G=4.train.json) < 1000"
[ ! -e long/seed-3/plain.part.json ] || report "the seconds of a part are left behind a whole run"
# It has the number of threads that is given, which is the one that is noted; without one it keeps its own.
threads() { jq -r .train "long/seed-3/$1.commands" | grep -oE -e '--threads [0-9]+'; } # ROW
began=$(grep -A 1 -x -e --threads long/seed-3/plain/training/options.txt | tail -n 1)
[ "$(threads plain)" = "--threads 2" ] && [ "$began" = 2 ] || report "noted are $(threads plain), it went on with $began"
rm long/seed-3/G=2.train.json long/seed-3/G=2.eval.json
expect "goes on without a number" 0 --table ./long.json --seeds 3 --out long; err "G=2: training"
[ "$(threads G=2)" = "--threads 2" ] || report "noted are $(threads G=2), it went on with 2"
[ "$(tail -n +2 long/seed-3/plain/metrics.csv | awk -F, 'seen[$1 "," $2]++' | wc -l)" = 0 ] || report "steps stand twice in metrics.csv"

# Two at a time in one folder: a row is made by one of them. This program's training waits, whatever it is told, until there is a file `go`.
mkdir -p alone/bin; cp "$program" alone/bin/; ln -s "$bin/astra-infer" alone/bin/
cat >alone/bin/astra-train <<END
#!/bin/bash
trap "" TERM
touch started
for ((i = 0; i < 1500; i++)); do [ ! -e go ] || exec "$bin/astra-train" "\$@"; sleep 0.02; done
END
chmod +x alone/bin/astra-train
begin() { # OPTIONS: starts it and waits for its training
  rm -f started go
  alone/bin/astra-bench accuracy "$@" >started.out 2>started.err &
  started=$!
  for ((i = 0; i < 600; i++)); do [ ! -e started ] || return; sleep 0.05; done
  report "no training is started"
}
experiment "" >small.json
begin --table ./small.json --out together --seeds 3 --rows plain
expect "a row that another process makes" 1 --table ./small.json --out together --seeds 3
err "seed 3, plain: another process makes this row, .*together/seed-3/plain.lock; wait for its end"
# The other one's results of another seed, made meanwhile, stay in the files.
expect "another seed meanwhile" 0 --table ./small.json --out together --seeds 5 --rows plain
touch go; wait $started || report "the first one fails: $(cat started.err)"
[ "$(cut -d, -f1,3 together/results.csv | xargs)" = "row,seed plain,3 plain,5" ] && [ "$(cut -d, -f1,2 together/metrics.csv | uniq | xargs)" = "row,seed plain,3 plain,5" ] &&
  grep -q "^| plain .* 2 |$" together/results.md || report "results are not of both seeds: $(cat together/results.csv)"
[ "$(grep -c "step 4/4" together/seed-3/plain.log)" = 1 ] || report "it was trained twice"
# Killed, it leaves its training to end, which may take a moment, and still holds the row.
begin --table ./small.json --out together --seeds 3 --rows G=4
kill -KILL $started; wait $started 2>/dev/null
expect "a row whose training goes on without who started it" 1 --table ./small.json --out together --seeds 3; err "seed 3, G=4: another process makes this row"
touch go
flock -w 60 together/seed-3/G=4.lock true || report "the row is still locked"
expect "the same row when that has ended" 0 --table ./small.json --out together --seeds 3 --rows G=4

# All tables, of an installation that has two of its own: those of $ASTRA_HOME come to them. Each after the one whose model it starts from; one fails.
installed=("${called[@]}") called=("$work/alone/bin/astra-bench" accuracy)
ln -sf "$bin/astra-train" alone/bin/
mkdir -p experiments
for option in --list "--table all"; do
  # shellcheck disable=SC2086
  expect "no experiments at all, $option" 1 $option; err "there is no experiment in .*home/experiments, .*alone/share/astra/experiments"; silent out
done
rm -r experiments
mkdir -p "$ASTRA_HOME/experiments" alone/share/astra/experiments
experiment "" >alone/share/astra/experiments/second.json
for pair in first:second/G=4 third:none/plain; do
  cat >"$ASTRA_HOME/experiments/${pair%%:*}.json" <<END
{"title": "One row", "figure": "top1", "seeds": [3], "eval": {"dataset": "synthetic:32x32:4:256", "nodes": 2}, "rows": [{"name": "it", "model": "{run:${pair#*:}}"}]}
END
done
# What another one of its name hides is not run.
echo '{"title": "hidden"}' >alone/share/astra/experiments/first.json
# One whose name is the first waits for a teacher of another one; its second row learns from its first.
cat >"$ASTRA_HOME/experiments/alone.json" <<'END'
{"title": "Taught", "figure": "top1", "seeds": [3], "train": {"model": "tiny", "init": "random", "dataset": "synthetic:32x32:4:256", "max-steps": 2, "batch": 16,
  "threads": 1, "groups": 4, "codebook-size": 16, "kmeans-samples": 256, "distill": 0.5}, "eval": {"dataset": "synthetic:32x32:4:256", "nodes": 2},
 "rows": [{"name": "it", "train": {"teacher": "{run:second/plain}"}}, {"name": "again", "train": {"teacher": "{run:alone/it}"}}]}
END
expect "a teacher that is not there" 1 --table alone --out taught/alone
err "it: taught/second/seed-3/plain is not there, or not trained to its end; make it first: astra-bench accuracy --table second --rows plain --seeds 3 --out taught/second$"
expect "all, with rows" 2 --table all --rows it; err "cannot be combined with --rows"
expect "all, with seeds that are none" 2 --table all --seeds 3,x --out every; err '--seeds "3,x"'; [ ! -e every ] || report "a table is begun"
# Without --data-dir, those that need it fail alone.
sed 's/{run:second.G=4}/{data}\/G=4/' "$ASTRA_HOME/experiments/first.json" >"$ASTRA_HOME/experiments/data.json"
expect "all" 1 --table all --seeds 3 --out every; out "| it | - |"; err "table 1 of 5: data"; err "table 2 of 5: second"; err "table 3 of 5: alone"; err "table 4 of 5: first"
err "data: .*--data-dir DIR is missing"; err "third: .*every/none/seed-3/plain is not there"; err "2 of 5 tables failed, as said above: data, third"
for table in second alone first; do [ -s every/$table/results.csv ] || report "no results of $table"; done
expect "a table of {data}" 0 --table data --seeds 3 --data-dir every/second/seed-3 --out every/data; out '^`astra-bench accuracy --table data --data-dir DIR`: '
rm -r every/second "$ASTRA_HOME/experiments/data.json"
expect "a finished table whose base is gone" 0 --table first --seeds 3 --out every/first; out "| it | - |"
sed -i 's,none/plain,fourth/it,' "$ASTRA_HOME/experiments/third.json"
sed 's,fourth/it,third/it,' "$ASTRA_HOME/experiments/third.json" >"$ASTRA_HOME/experiments/fourth.json"
expect "a circle" 1 --table all --dry-run; err "fourth.json: it and other experiments start from each other's models"
rm -r "$ASTRA_HOME/experiments"
called=("${installed[@]}")

# What comes with the programs runs.
expect "cifar100-groups" 0 --table cifar100-groups --quick --out quick; out "^| G=8 | 76.8 |"; out "Made with --quick"

[ $failed = 0 ] && echo "astra-bench accuracy: runs, refuses and resumes"
exit $failed
