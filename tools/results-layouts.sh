#!/bin/bash
# Where an image's tokens should be: top-1 and top-5 accuracy on the CIFAR-100 test set, through four processes, for each layout. What
# docs/results/cifar100-former.md reports under "Layouts of tokens".
#   tools/results-layouts.sh DATA_DIR RUNS_DIR OUT.csv [RUN...]
# DATA_DIR holds cifar100/; RUNS_DIR holds checkpoints RUN, named gGROUPS-sSEED (default: all of them), trained with permuted maps.
# OUT.csv gets a row for each run and layout; those that are there are not measured again. LAYOUTS names the layouts (default: raster strided
# checkerboard random:1), SAMPLES how many test pictures (default: all). Prints, for each number of groups, the mean over the seeds, the
# standard deviation, and the same of the difference from raster on the same weights.
set -euo pipefail
[ $# -ge 3 ] || { echo "usage: $0 DATA_DIR RUNS_DIR OUT.csv [RUN...]" >&2; exit 2; }
data=$(realpath "$1") runs=$(realpath "$2") out=$3
shift 3
bin=$(realpath "$(dirname "$0")/../${BUILD:-build}/bin")
if [ $# -eq 0 ]; then
  for run in "$runs"/g[1-9]*-s*/; do set -- "$@" "$(basename "$run")"; done
fi

[ -s "$out" ] || echo groups,seed,layout,top1,top5,count >"$out"
for run in "$@"; do
  [[ $run =~ ^g([1-9][0-9]*)-s([0-9]+)$ ]] || { echo "$0: $run: runs are named gGROUPS-sSEED" >&2; exit 2; }
  groups=${BASH_REMATCH[1]} seed=${BASH_REMATCH[2]}
  for layout in ${LAYOUTS:-raster strided checkerboard random:1}; do
    grep -q "^$groups,$seed,$layout," "$out" && continue
    row=$("$bin/astra-infer" eval --checkpoint "$runs/$run" --dataset cifar100 --data-dir "$data" --nodes 4 --layout "$layout" \
      --samples "${SAMPLES:-0}" --quiet --json | tail -n 1 | jq -r '"\(.top1),\(.top5),\(.samples)"')
    echo "$groups,$seed,$layout,$row" >>"$out"
  done
done

awk -F, '
  function deviation(n, sum, squares) { return n > 1 ? sprintf("%.2f", sqrt((squares - sum * sum / n) / (n - 1) + 1e-15)) : "-" }
  NR == 1 { next }
  { top1[$1, $2, $3] = 100 * $4; top5[$1, $2, $3] = 100 * $5 }
  !(($1) in groups) { groups[$1]; g[++gs] = $1 + 0 }
  !(($2) in seeds) { seeds[$2]; s[++ss] = $2 }
  !(($3) in layouts) { layouts[$3]; l[++ls] = $3 }
  END {
    for (i = 1; i <= gs; i++) for (j = i + 1; j <= gs; j++) if (g[j] < g[i]) { t = g[i]; g[i] = g[j]; g[j] = t }
    print "| groups | layout | seeds | top-1 | deviation | top-5 | against raster | deviation |"
    print "|---|---|---|---|---|---|---|---|"
    for (i = 1; i <= gs; i++) for (j = 1; j <= ls; j++) {
      n = sum = squares = five = pairs = more = mores = 0
      for (k = 1; k <= ss; k++) {
        if (!((g[i], s[k], l[j]) in top1)) continue
        x = top1[g[i], s[k], l[j]]; n++; sum += x; squares += x * x; five += top5[g[i], s[k], l[j]]
        if (!((g[i], s[k], "raster") in top1)) continue
        x -= top1[g[i], s[k], "raster"]; pairs++; more += x; mores += x * x
      }
      if (n == 0) continue
      printf "| %d | %s | %d | %.2f%% | %s | %.2f%% | %s | %s |\n", g[i], l[j], n, sum / n, deviation(n, sum, squares), five / n,
        pairs && l[j] != "raster" ? sprintf("%+.2f", more / pairs) : "", l[j] != "raster" ? deviation(pairs, more, mores) : ""
    }
  }' "$out"
