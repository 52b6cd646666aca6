#!/bin/bash
# Whether bf16 learns as fp32 does: 1,000 steps of vit-cifar with 8 groups on CIFAR-100 and of gpt2-mini with 8 groups on English Wikipedia, both
# from scratch, in both precisions, with three seeds. What docs/results/precision.md reports.
#   tools/results-precision.sh DATA_DIR OUT_DIR OUT.csv
# DATA_DIR holds cifar100/ and enwiki/ (train.txt.gz, valid.txt). OUT_DIR gets a folder for each run; started again, it goes on where it was stopped.
# OUT.csv gets the mean loss of every hundred steps of each run, OUT.png its curves, and OUT.md, where it exists, the table between its markers.
# SEEDS (1 2 3), STEPS (1000), THREADS (all cores), TASKS (cifar100 enwiki).
set -euo pipefail
[ $# -eq 3 ] || { echo "usage: $0 DATA_DIR OUT_DIR OUT.csv" >&2; exit 2; }
export LC_ALL=C # numbers with points
data=$(realpath "$1") out=$(realpath -m "$2") csv=$(realpath -m "$3")
build=$(cd "$(dirname "$0")/.." && realpath "${BUILD:-build}")
bin=$build/bin
steps=${STEPS:-1000}

last_step() { tail -n 1 "$1/metrics.csv" | cut -d, -f1; }

train() { # TASK SEED PRECISION
  local run=$out/$1-$3-s$2 what
  case $1 in
    cifar100) what=(--model vit-cifar --init mimetic --dataset cifar100 --data-dir "$data" --batch 32) ;;
    enwiki) what=(--model gpt2-mini --init random --tokenizer checkpoints/gpt2-mini --dataset "text:$data/enwiki" --context 128 --batch 8) ;;
  esac
  [ ! -f "$run/config.json" ] || [ "$(last_step "$run")" -lt "$steps" ] || return 0
  if [ -f "$run/training/state.safetensors" ]; then
    "$bin/astra-train" --resume "$run" --quiet
  else
    "$bin/astra-train" "${what[@]}" --groups 8 --devices 4 --kmeans-samples 8192 --max-steps "$steps" --learning-rate 1e-3 --warmup 100 \
      --log-every 10 --checkpoint-every 250 --eval-samples 500 --precision "$3" --seed "$2" --threads "${THREADS:-0}" --quiet --overwrite --out "$run"
  fi
  # A run goes on to the steps that it was begun with, which its learning rates follow from.
  [ "$(last_step "$run")" -ge "$steps" ] || { echo "$0: $run ends at step $(last_step "$run"), not $steps; remove it, or choose its STEPS" >&2; exit 1; }
}

cd "$(dirname "$0")/.."
for task in ${TASKS:-cifar100 enwiki}; do
  for seed in ${SEEDS:-1 2 3}; do
    for precision in fp32 bf16; do train "$task" "$seed" "$precision"; done
  done
done

echo task,seed,precision,step,loss >"$csv"
for run in "$out"/*-s*/; do
  [[ $(basename "$run") =~ ^([a-z0-9]+)-([a-z0-9]+)-s([0-9]+)$ ]] || continue
  awk -F, -v task="${BASH_REMATCH[1]}" -v precision="${BASH_REMATCH[2]}" -v seed="${BASH_REMATCH[3]}" '
    NR == 1 { for (i = 1; i <= NF; i++) if ($i == "task_loss") at = i; next }
    $at != "" { sum += $at; n++ }
    $1 % 100 == 0 && n { printf "%s,%s,%s,%d,%.5f\n", task, seed, precision, $1, sum / n; sum = n = 0 }' "$run/metrics.csv" >>"$csv"
done

table=$(mktemp)
trap 'rm -f "$table"' EXIT
awk -F, '
  NR == 1 { next }
  { loss[$1, $2, $3, $4] = $5; if (!($1 in tasks)) { tasks[$1]; task[++count] = $1 } seeds[$2]; if ($4 > last) last = $4 }
  END {
    print "| task | steps | seeds | fp32, mean | bf16, mean | bf16 - fp32 of the same seed: mean | largest | deviation between seeds, fp32 |"
    print "|---|---|---|---|---|---|---|---|"
    for (i = 1; i <= count; i++) for (s = 100; s <= last; s += (s < 200 ? 100 : 200)) {
      t = task[i]; n = a = b = d = largest = squares = 0
      for (k in seeds) if ((t, k, "fp32", s) in loss && (t, k, "bf16", s) in loss) {
        x = loss[t, k, "fp32", s]; y = loss[t, k, "bf16", s]; n++; a += x; squares += x * x; b += y; d += y - x
        if ((y - x) ^ 2 > largest ^ 2) largest = y - x
      }
      if (n == 0) continue
      deviation = "-"
      if (n > 1) { variance = (squares - a * a / n) / (n - 1); deviation = sprintf("%.4f", sqrt(variance < 0 ? 0 : variance)) }
      printf "| %s | %d-%d | %d | %.4f | %.4f | %+.4f | %+.4f | %s |\n", t, s - 99, s, n, a / n, b / n, d / n, largest, deviation
    }
  }' "$csv" | tee "$table"

document=${csv%.csv}.md
if [ -f "$document" ]; then
  awk -v table="$table" '
    /^<!-- end: results-precision.sh -->/ { on = 0 }
    !on { print }
    /^<!-- begin: results-precision.sh -->/ { on = 1; while ((getline line <table) > 0) print line }' "$document" >"$document.new"
  mv "$document.new" "$document"
fi
make --no-print-directory -s BUILD="$(realpath --relative-to=. "$build")" "$(realpath --relative-to=. "$build")/tests/bench/plot_losses" >&2
"$build/tests/bench/plot_losses" "$csv" "${csv%.csv}.png"
