#!/bin/bash
# astra-bench peak from outside: a row for each number of threads, and the same figures as JSON. Says nothing about speed.
# Usage: tests/cli/astra-bench-peak.sh; programs in $BUILD/bin (build/bin). limit: 60
. tests/cli/helpers.sh astra-bench peak
unset ASTRA_PEAK # here it is what is measured

expect "help" 0 --help; out "^usage: astra-bench peak"; out "--threads"; silent err
expect "unknown option" 2 --model vit-base; err "--model"
expect "too many threads" 2 --threads 100000; err "--threads"
expect "an argument" 2 here; err "here"
expect "an unknown library" 2 --backend mkl; err "--backend"; err "openblas"

expect "three threads" 0 --threads 3; silent err
out "^machine: 3 threads, kernels [a-z0-9]*, .*products at best fp32 [1-9][0-9.]* GFLOP/s on one thread, [1-9]"
out "^memory:  read [1-9][0-9.]* GB/s on one thread"
[ "$(awk '/^ threads/ { on = 1; next } on { print $1 }' "$work/out" | tr '\n' ' ')" = "1 2 3 " ] || report "rows of 1, 2 and 3 threads"
awk '/^ threads/ { on = 1; columns = (NF - 5) / 2 + 3; next } on { if (NF != columns) exit 1; for (i = 2; i <= NF; i++) if ($i <= 0) exit 1 }' "$work/out" ||
  report "a rate that is missing or not above 0"

expect "JSON" 0 --threads 2 --json; silent err
jq -e '.schema == 1 and .threads == 2 and (.rates | map(.threads)) == [1, 2] and all(.rates[]; .fp32 > 0 and .read > 0 and .copy > 0)
  and .peak_gflops > 0 and .memory_read >= .memory_read_one_thread and .memory_copy >= .memory_copy_one_thread' <"$work/out" >/dev/null ||
  report "not the figures of two rows"

expect "OpenBLAS" 0 --threads 1 --backend openblas --json; json '"backend":"openblas"'
jq -e '.rates | length == 1 and (.[0] | has("bf16") | not)' <"$work/out" >/dev/null || report "bf16 without a library that has it"

ASTRA_PEAK=quick expect "small products" 0 --threads 1 --json
jq -e '.peak_gflops > 0 and .memory_read > 0' <"$work/out" >/dev/null || report "no rates"

[ $failed = 0 ] && echo "astra-bench peak: a row for each number of threads"
exit $failed
