#!/bin/bash
# Training as a job of two ranks beside one process with as many threads and the same global batch: speed in turns, and the losses of the
# same steps. What docs/results/scaling.md reports; some 9 minutes on two quiet cores.
#   tools/results-ranks.sh [ROW...]            default: all; a row is MODEL:BATCH:GROUPS:PRECISION, as in vit-cifar:128:8:bf16
# TURNS (3) of STEPS (12; ViT-Base 9) steps for the speed, and one run of LOSS_STEPS (50; ViT-Base 6) for the losses. THREADS (all cores)
# are divided between the ranks. ARGUMENTS are given to all runs (--shard-optimizer). BUILD names the build folder. Prints a table; the last
# columns say whether the aims are met: at least 0.9 of the speed, losses within 1e-3. Exits with 1 where one is not.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C # numbers with points
program=$(realpath "${BUILD:-build}/bin/astra-train")
turns=${TURNS:-3} threads=${THREADS:-$(nproc)}
command -v mpirun >/dev/null || { echo "mpirun is missing: install openmpi-bin" >&2; exit 1; }
[ "$threads" -ge 2 ] && [ $((threads % 2)) = 0 ] || { echo "THREADS=$threads: an even number is needed, to be divided by two" >&2; exit 2; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

rows=("$@")
[ $# -gt 0 ] || rows=(vit-cifar:128:0:fp32 vit-cifar:128:0:bf16 vit-cifar:128:8:fp32 vit-base:8:0:fp32 vit-base:8:0:bf16)

# run SIDE STEPS EVERY: leaves $scratch/SIDE/metrics.csv, with a line for every EVERY steps
run() {
  local job=() each=$threads
  [ "$1" = one ] || { job=(mpirun -n 2 --bind-to none --oversubscribe --allow-run-as-root); each=$((threads / 2)); }
  "${job[@]}" "$program" --model "$model" --init random --dataset cifar100-sample --data-dir datasets --batch "$batch" --groups "$groups" \
    --precision "$precision" --kmeans-samples 2048 --kmeans-iterations 2 --max-steps "$2" --log-every "$3" --eval-every 1000 --eval-samples 8 \
    --threads "$each" ${ARGUMENTS:-} --overwrite --out "$scratch/$1" >"$scratch/out" 2>&1 </dev/null || { cat "$scratch/out" >&2; exit 1; }
}

# column NAME SIDE: its values in the lines of steps
column() {
  awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) c = i; next } $c != "" { print $c }' "$scratch/$2/metrics.csv"
}
median() { sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'; }
speed() { column images_per_second "$1" | tail -n +2 | median; } # the first line has the start in it

status=0
echo "two ranks of $((threads / 2)) thread(s) against one process of $threads, $turns turns; $(grep -m 1 'model name' /proc/cpuinfo | cut -d: -f2 | xargs)"
echo
echo "| model, global batch | groups | precision | images/s, one process | images/s, two ranks | ratio: median (min-max) | largest difference of a loss, steps | speed met | losses met |"
echo "|---|---|---|---|---|---|---|---|---|"
for row in "${rows[@]}"; do
  IFS=: read -r model batch groups precision <<<"$row"
  timed=${STEPS:-12} steps=${LOSS_STEPS:-50}
  [ "$model" != vit-base ] || { timed=${STEPS:-9}; steps=${LOSS_STEPS:-6}; }
  : >"$scratch/turns"
  for ((turn = 0; turn < turns; turn++)); do
    sides=(one two)
    [ $((turn % 2)) = 0 ] || sides=(two one)
    for side in "${sides[@]}"; do run "$side" "$timed" 3; done
    echo "$(speed one) $(speed two)" >>"$scratch/turns"
  done
  for side in one two; do run "$side" "$steps" 1; done
  difference=$(paste -d' ' <(column loss one) <(column loss two) |
    awk -v steps="$steps" '{ d = $1 - $2; if (d < 0) d = -d; if (d > worst) worst = d } END { if (NR != steps) { print NR " lines of loss, and not " steps " of each" >"/dev/stderr"; exit 1 } printf "%.2g", worst }')
  ratios=$(awk '{ print $2 / $1 }' "$scratch/turns")
  ratio=$(median <<<"$ratios")
  met=$(awk -v ratio="$ratio" -v d="$difference" 'BEGIN { print (ratio >= 0.9 ? "yes" : "no") " | " (d <= 1e-3 ? "yes" : "no") }')
  [ "$met" = "yes | yes" ] || status=1
  awk -v what="$model, $batch | $groups | $precision" -v one="$(cut -d' ' -f1 "$scratch/turns" | median)" \
    -v two="$(cut -d' ' -f2 "$scratch/turns" | median)" -v ratio="$ratio" -v low="$(sort -g <<<"$ratios" | head -n 1)" \
    -v high="$(sort -g <<<"$ratios" | tail -n 1)" -v d="$difference" -v steps="$steps" -v met="$met" \
    'BEGIN { printf "| %s | %.1f | %.1f | %.2f (%.2f-%.2f) | %s, %d | %s |\n", what, one, two, ratio, low, high, d, steps, met }'
done
exit $status
