#!/bin/bash
# One request on two devices of one core each, which a slow link joins, against the whole request on one core. What docs/results/latency.md
# reports under "Two devices and a real link".
#   tools/results-namespaces.sh [OUT_DIR]
# Needs the right to make network namespaces, two cores, and `make`. The link is the kernel's: a pair of veth with a token bucket (tbf) of RATE
# on either side. Worker and leader live in a namespace and on a core of their own; the leader's device computes too. A request is an image
# of 1,024 patches (512 x 512 pixels in patches of 16, and 128 x 128 in patches of 4), its patches travel to the worker over the link as
# 8-bit levels, encrypted like all else; its time ends with the answer. Starting programs is left out, and so is the first request of each.
# The two ways take turns, ROUNDS times, of REQUESTS requests; OUT_DIR (default: a temporary one) gets the JSON of each run and the logs.
#   RATE=10mbit ROUNDS=3 REQUESTS=4 GROUPS_TRIED="1 32" TRANSPORT=tcp; TABLE_MEMORY=512M
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C # numbers with points
out=$(realpath -m "${1:-$(mktemp -d)}")
rate=${RATE:-10mbit} rounds=${ROUNDS:-3} requests=${REQUESTS:-4} transport=${TRANSPORT:-tcp} tables=${TABLE_MEMORY:-512M}
build=${BUILD:-build}
program=$(realpath "$build/bin/astra-infer")
make --no-print-directory "$build/tests/infer/make_sample" >/dev/null
mkdir -p "$out"
. tools/network-helpers.sh
worker=

finish() {
  [ -z "$worker" ] || { kill "$worker" && wait "$worker"; } 2>/dev/null || true
  remove_network
}
trap finish EXIT

# Noise of SIDE x SIDE pixels: its values do not change the time.
make_pictures() { # SIDE
  for ((i = 0; i <= requests; i++)); do
    { printf 'P6\n%d %d\n255\n' "$1" "$1"; head -c $(($1 * $1 * 3)) /dev/urandom; } >"$out/$1-$i.ppm"
  done
}

start_worker() { # CHECKPOINT
  : >"$out/worker.log"
  ip netns exec "$b" taskset -c 1 "$program" worker -c "$1" --listen 10.77.0.2:0 --key-file "$out/key" --threads 1 --table-memory "$tables" 2>"$out/worker.log" &
  worker=$!
  address=
  while [ -z "$address" ]; do
    sleep 0.2
    kill -0 "$worker" || { cat "$out/worker.log" >&2; exit 1; }
    address=$(sed -n 's/.*listening on //p' "$out/worker.log")
  done
}

stop_worker() {
  kill "$worker"
  wait "$worker" || true
  worker=
}

# The parts of a block that the planner chooses for this device and link, and the milliseconds that it predicts, input left out.
plan_for() { # CHECKPOINT
  "$program" plan -c "$1" --nodes 2 --even --strategies astra --bandwidth "$rate" --table-memory "$tables" --json |
    tail -n 1 | sed 's/.*"rows"://' | grep -o '"strategy":"astra"[^}]*' | sed -n '1s/.*"parts":\([0-9]*\),.*"predicted_ms":\([0-9.]*\),.*/\1 \2/p'
}

times() { sed -n 's/.*"image_milliseconds":\[[^,]*,\([^]]*\)\].*/\1/p' "$1" | tr ',' '\n'; } # FILE: all but the first

median_and_range() { sort -n | awk '{v[NR] = $1} END {m = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2; printf "%.0f %.0f %.0f\n", m, v[1], v[NR]}'; }

compare() { # SIDE PATCH GROUPS
  local model=$out/model-$1-g$3
  [ -f "$model/model.safetensors" ] || "$build/tests/infer/make_sample" "$model" vit-base "$3" 1024 2 "$1" "$2" || exit 1
  local parts predicted tag=$1-g$3
  read -r parts predicted < <(plan_for "$model") || { echo "astra-infer plan says nothing of $model that this script knows" >&2; exit 1; }
  rm -f "$out/one-$tag" "$out/two-$tag"
  start_worker "$model"
  for ((round = 1; round <= rounds; round++)); do
    taskset -c $((round % 2)) "$program" -c "$model" --nodes 1 --threads 1 --batch 1 --json "$out/$1"-*.ppm >"$out/one-$tag-$round.json"
    ip netns exec "$a" taskset -c 0 "$program" -c "$model" --peers "$address" --key-file "$out/key" --threads 1 --batch 1 \
      --transport "$transport" --parts "$parts" --table-memory "$tables" --json "$out/$1"-*.ppm >"$out/two-$tag-$round.json" 2>"$out/leader.log"
    times "$out/one-$tag-$round.json" >>"$out/one-$tag"
    times "$out/two-$tag-$round.json" >>"$out/two-$tag"
  done
  stop_worker
  local one two
  read -r -a one < <(median_and_range <"$out/one-$tag")
  read -r -a two < <(median_and_range <"$out/two-$tag")
  printf '| %s x %s, patch %s | %s | %s | %s (%s-%s) | %s (%s-%s) | %s | %.0f |\n' "$1" "$1" "$2" "$3" "$parts" "${one[0]}" "${one[1]}" "${one[2]}" \
    "${two[0]}" "${two[1]}" "${two[2]}" "$(awk "BEGIN {printf \"%.2f\", ${one[0]} / ${two[0]}}")" "$predicted"
}

make_network
[ -f "$out/key" ] || "$program" keygen "$out/key" 2>/dev/null
echo "| image | G | parts | one core, ms (range) | two devices, ms (range) | speedup | planned, without input |"
echo "|---|---|---|---|---|---|---|"
for picture in "512 16" "128 4"; do
  read -r side patch <<<"$picture"
  make_pictures "$side"
  for groups in ${GROUPS_TRIED:-1 32}; do compare "$side" "$patch" "$groups"; done
done
