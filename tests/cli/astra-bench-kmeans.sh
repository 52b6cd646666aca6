#!/bin/bash
# astra-bench kmeans from outside: iterations of tiny fits, samples from a file, refusals. Says nothing about speed.
# Usage: tests/cli/astra-bench-kmeans.sh; programs in $BUILD/bin (build/bin). limit: 60
. tests/cli/helpers.sh astra-bench kmeans
field() { jq -e "$1" <"$work/out" >/dev/null || report "JSON lacks $1"; }
small=(--samples 600 --width 8 --entries 16 --iterations 3 --threads 2)

expect "help" 0 --help; out "^usage: astra-bench kmeans"; out "--samples"; out "--entries"; silent err
expect "groups that do not divide" 2 "${small[@]}" --groups 3; err "3"; err "8"
expect "fewer samples than centres" 2 "${small[@]}" --samples 10; err "10"; err "16"
expect "no iterations" 2 "${small[@]}" --iterations 0; err "--iterations"
expect "unknown option" 2 --model vit-base; err "--model"

expect "a table" 0 "${small[@]}"; silent err
out "^machine: 2 threads"; out "^memory:  read"; out "600 samples of width 8, 1 group of 16 codewords, 3 iterations"
out "^  iteration  *[0-9]"; out "^  search alone  *[0-9]"
expect "JSON" 0 "${small[@]}" --groups 2 --json; silent err
field '.schema == 1 and .groups == 2 and .iterations == 3 and .distortion > 0 and .iteration.milliseconds > 0 and .search.milliseconds > 0'
drawn=$(jq .distortion <"$work/out")
expect "the same again" 0 "${small[@]}" --groups 2 --json; field ".distortion == $drawn"

# 600 samples at the 16 corners of a cube of 4 dimensions, 37 or 38 at each: the centres find most of them, and those that share one are 1 apart.
awk 'BEGIN { for (i = 0; i < 600; i++) for (d = 0; d < 8; d++) printf "%s", d < 4 && int(i / 2 ^ d) % 2 ? "\\x00\\x00\\x80\\x3f" : "\\x00\\x00\\x00\\x00" }' >text
printf '%b' "$(cat text)" >samples.f32
expect "samples from a file" 0 "${small[@]}" --data samples.f32 --json
field ".distortion < 300"
expect "a file of another size" 1 "${small[@]}" --samples 500 --data samples.f32; err "samples.f32"; err "500 x 8"
expect "no such file" 1 "${small[@]}" --data nothing.f32; err "nothing.f32"

[ $failed = 0 ] && echo "astra-bench kmeans: iterations, files, refusals"
exit $failed
