#!/bin/bash
# What lost tokens and packets cost: evaluates an ASTRA checkpoint through four processes without loss, and with 5% of the tokens or packets
# lost on each link. What docs/results/loss.md reports.
#   tools/results-loss.sh OUT_DIR CHECKPOINT EVAL_ARGUMENTS...      e.g. runs/loss runs/g8 --dataset cifar100 --data-dir DATA
# OUT_DIR gets a JSON file for each case; those that are there are not measured again. CASES names the cases (default: all), SEEDS the links'
# seeds (default: 42; the file of another one ends in it). Prints a line for each: accuracy or perplexity, its change relative to no loss,
# lost packets, and masked tokens with their share of all that were to be heard (of each node, block, and window or picture).
set -euo pipefail
[ $# -ge 4 ] || { echo "usage: $0 OUT_DIR CHECKPOINT EVAL_ARGUMENTS..." >&2; exit 2; }
mkdir -p "$1"
out=$(realpath "$1") checkpoint=$(realpath "$2")
shift 2
bin=$(realpath "$(dirname "$0")/../${BUILD:-build}/bin")

options_of() { # CASE: how it differs from codes in datagrams of an Ethernet's size
  case $1 in
  none) ;;
  token) echo "--loss 5% --loss-unit token" ;;
  packet) echo "--loss 5%" ;;
  bursts) echo "--loss 5% --loss-model gilbert-elliott" ;;
  two) echo "--loss 5% --batch 1" ;; # a picture's codes in two packets
  four) echo "--loss 5% --batch 1 --datagrams 4" ;;
  *) echo "no such case: $1" >&2; exit 2 ;;
  esac
}

# Numbers of a result: the measure, packets lost, tokens masked, tokens to be heard.
numbers_of() { # JSON
  local blocks
  blocks=$(grep -oE '"(num_hidden_layers|n_layer)": *[0-9]+' "$checkpoint/config.json" | grep -oE '[0-9]+$')
  tr ',{' '\n\n' <"$1" | tr -d '"}]' | awk -F: -v blocks="$blocks" '
    $1 == "top1" { measure = $2 }
    $1 == "perplexity" { measure = $2; causal = 1 }
    $1 == "samples" || $1 == "windows" { inputs = $2 }
    $1 == "nodes" { inside = 1 }
    inside && $1 == "tokens" { tokens[nodes++] = $2; all += $2 }
    $1 == "lost" { lost += $2 }
    $1 == "masked" { masked += $2 }
    END {
      for (d = 0; d < nodes; d++) { heard += causal ? before : all - tokens[d]; before += tokens[d] }
      printf "%.10g %.0f %.0f %.0f\n", measure, lost, masked, heard * blocks * inputs
    }'
}

for seed in ${SEEDS:-42}; do
  for case in none ${CASES:-token packet bursts two four}; do
    file=$out/$case.json
    [ "$seed" = 42 ] || [ "$case" = none ] || file=$out/$case-$seed.json
    if [ ! -s "$file" ]; then
      # shellcheck disable=SC2046
      "$bin/astra-infer" eval --checkpoint "$checkpoint" --nodes 4 --transport udp --mtu 1500 --link-seed "$seed" $(options_of "$case") "$@" \
        --json | tail -n 1 >"$file.part"
      mv "$file.part" "$file"
    fi
    read -r measure lost masked heard < <(numbers_of "$file")
    [ "$case" != none ] || whole=$measure
    awk -v name="$case" -v seed="$seed" -v m="$measure" -v w="$whole" -v lost="$lost" -v masked="$masked" -v heard="$heard" 'BEGIN {
      printf "%-8s seed %s: %.6g, %+.2f%%, packets lost %d, tokens masked %d (%.2f%%)\n", name, seed, m, 100 * (m / w - 1), lost, masked,
        100 * masked / heard }'
  done
done
