#!/bin/bash
# Speed beside PyTorch and scikit-learn: runs every row of docs/results/speed.md in turns and writes its table there.
#   tools/results-speed.sh [COMPARE_ARGUMENTS...]      e.g. --only vit-base, --turns 5
# Raw numbers go to docs/results/speed.csv (CSV names another file); those that are there are not measured again, so that an interrupted run goes
# on and a file that is removed starts anew. Needs a quiet machine for some 25 minutes, python3-torch, python3-sklearn and libopenblas0-openmp.
set -euo pipefail
cd "$(dirname "$0")/.."
csv=${CSV:-docs/results/speed.csv} document=docs/results/speed.md
tests/bench/peers/compare.py all --csv "$csv" "$@"
table=$(mktemp)
trap 'rm -f "$table"' EXIT
{
  echo "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1), $(nproc) cores; $(date +%F)."
  echo
  build/bin/astra-bench peak --threads 2 | sed 's/^/    /'
  echo
  tests/bench/peers/compare.py table "$csv"
} >"$table"
awk -v table="$table" '
  /^<!-- end: compare.py table -->/ { on = 0 }
  !on { print }
  /^<!-- begin: compare.py table -->/ { on = 1; while ((getline line <table) > 0) print line }' "$document" >"$table.new"
mv "$table.new" "$document"
echo "results-speed: the table is in $document"
