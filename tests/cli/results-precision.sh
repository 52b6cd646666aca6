#!/bin/bash
# tools/results-precision.sh over runs that are finished already: means of a hundred steps, the table with its differences and deviation, the page
# and the chart. Trains nothing.
# Usage: tests/cli/results-precision.sh; programs in $BUILD/bin (build/bin). limit: 60
. tests/cli/helpers.sh astra-train
mkdir data runs

# finished TASK PRECISION SEED LOSS: 200 steps, a row each tenth, whose loss is LOSS and then 1 less
finished() {
  mkdir "runs/$1-$2-s$3"
  echo '{}' >"runs/$1-$2-s$3/config.json"
  { echo step,loss,task_loss,test_accuracy
    for ((step = 10; step <= 200; step += 10)); do echo "$step,9,$(awk "BEGIN { print $4 - ($step > 100) }"),"; done
    echo "200,,,0.5"; } >"runs/$1-$2-s$3/metrics.csv"
}
finished cifar100 fp32 1 4.0; finished cifar100 bf16 1 4.2
finished cifar100 fp32 2 4.4; finished cifar100 bf16 2 4.3
finished enwiki fp32 1 6.0; finished enwiki bf16 1 6.25
printf '%s\n' "# Page" "<!-- begin: results-precision.sh -->" "an old table" "<!-- end: results-precision.sh -->" "its end" >losses.md

results() { run "$1" "$2" env STEPS=200 SEEDS="$3" TASKS="$4" bash "$root/tools/results-precision.sh" data runs losses.csv; }
results "two seeds" 0 "1 2" cifar100
out "^| cifar100 | 1-100 | 2 | 4.2000 | 4.2500 | +0.0500 | +0.2000 | 0.2828 |$"
out "^| cifar100 | 101-200 | 2 | 3.2000 | 3.2500 | "
out "^| enwiki | 1-100 | 1 | 6.0000 | 6.2500 | +0.2500 | +0.2500 | - |$"
grep -q "^cifar100,2,bf16,200,3.30000$" losses.csv || report "losses.csv has other means: $(cat losses.csv)"
grep -q "^| enwiki | 101-200 | 1 | 5.0000 " losses.md || report "the page lacks the table"
[ "$(grep -c "old table\|its end\|begin\|end: " losses.md)" = 3 ] || report "the page is $(cat losses.md)"
[ "$(head -c 4 losses.png | tail -c 3)" = PNG ] || report "no chart"
[ "$(ls losses.* | tr "\n" " ")" = "losses.csv losses.md losses.png " ] || report "files are left behind: $(ls)"
# A stub in place of the training: a run that was begun with fewer steps is resumed, and stays as it is.
mkdir -p stub/bin runs/cifar100-fp32-s1/training; touch runs/cifar100-fp32-s1/training/state.safetensors
printf '#!/bin/sh\necho "$@" >>"%s/called"\n' "$work" >stub/bin/astra-train; chmod +x stub/bin/astra-train
run "more steps than a run has" 1 env BUILD="$work/stub" STEPS=400 SEEDS=1 TASKS=cifar100 bash "$root/tools/results-precision.sh" data runs more.csv
err "runs/cifar100-fp32-s1 ends at step 200, not 400"; [ ! -e more.csv ] || report "it wrote results"
[ "$(cat called)" = "--resume $work/runs/cifar100-fp32-s1 --quiet" ] || report "it called astra-train $(cat called)"
run "arguments" 2 bash "$root/tools/results-precision.sh" data; err "^usage:"
[ $failed = 0 ] && echo "results-precision: means, table, page and chart"
exit $failed
