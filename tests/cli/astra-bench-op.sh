#!/bin/bash
# astra-bench op from outside: every operation with tiny sizes, forward and backward, and that rates belong to times and sizes. Says nothing about
# speed.
# Usage: tests/cli/astra-bench-op.sh; programs in $BUILD/bin (build/bin). limit: 60
. tests/cli/helpers.sh astra-bench op
tiny=(--rows 24 --width 16 --outputs 32 --tokens 6 --heads 2 --entries 8 --groups 4 --vocabulary 32 --repeats 3 --threads 2)
field() { jq -e "$1" <"$work/out" >/dev/null || report "JSON lacks $1"; }

expect "help" 0 --help; out "^usage: astra-bench op"; out "--rows"; out "--causal"; silent err
expect "unknown operation" 2 --op linear,convolution; err "convolution"; err "layer-norm"
expect "half a name" 2 --op line; err "--op line"
expect "an empty name" 2 --op linear,; err "--op"
expect "tokens that do not divide" 2 "${tiny[@]}" --tokens 5; err "--tokens 5"; err "--rows 24"
expect "heads that do not divide" 2 "${tiny[@]}" --heads 3; err "--heads 3"; err "--width 16"
expect "groups that do not divide" 1 "${tiny[@]}" --groups 5; err "5"; err "16"

# Defaults of other operations refuse nothing.
for sizes in "linear --rows 64" "attention --rows 100 --tokens 50 --heads 5 --width 100 --causal" "linear --width 100 --rows 197 --heads 4" "nearest --rows 10 --width 96"; do
  # shellcheck disable=SC2086
  expect "sizes of one operation: $sizes" 0 --outputs 32 --repeats 1 --warm-up 0 --threads 1 --op $sizes; silent err
done
expect "all of them" 0 "${tiny[@]}"; silent err
out "^machine: 2 threads"; out "^memory:  read"; out "^sizes:   24 rows of 16, 32 outputs"
for op in linear linear-gelu linear-columns mlp attention layer-norm rms-norm gelu swiglu rope add add-scaled scale drop-path gather-rows select-rows join \
  mean-replicas cross-entropy row-error vocab-loss token-embed patch-embed quantise; do
  out "^  $op  *forward  *[0-9]"; out "^  $op  *backward  *[0-9]"
done
for op in linear-row decode-attention softmax nearest lookup noise adamw; do
  out "^  $op  *forward  *[0-9]"
  ! grep -q "^  $op  *backward" "$work/out" || report "a backward pass of $op"
done

out "^  widen  *nothing to do in fp32"

# The manual page names all of them.
sed -n '/^The operations to time/,/^\.TP/p' "$root/docs/man/astra-bench.1" | tr -d '\\' | tr ',;: ' '\n\n\n\n' >"$work/named"
for op in $(sed -nE 's/^  ([a-z-]+)  +(forward|nothing).*/\1/p' "$work/out" | sort -u); do
  grep -qx -e "$op" "$work/named" || report "the manual page does not name $op"
done

expect "two of them as JSON" 0 "${tiny[@]}" --op linear,attention --causal --json; silent err
field '.schema == 1 and .causal and (.operations | map(.name + " " + .phase)) == ["linear forward", "linear backward", "attention forward", "attention backward"]'
field '.operations[0] | .milliseconds > 0 and (.gflop_per_second * .milliseconds / (2 * 24 * 16 * 32 / 1e6) - 1 | fabs) < 1e-6'
field '.operations[1] | (.gflop_per_second * .milliseconds / (4 * 24 * 16 * 32 / 1e6) - 1 | fabs) < 1e-6'

expect "two linear maps are as much work as twice one of theirs" 0 "${tiny[@]}" --op mlp --json; silent err
field '.operations[0] | (.gflop_per_second * .milliseconds / (4 * 24 * 16 * 32 / 1e6) - 1 | fabs) < 1e-6'
expect "sizes of one" 0 --rows 1 --width 2 --outputs 1 --tokens 1 --heads 1 --entries 2 --groups 1 --vocabulary 2 --repeats 1; silent err

expect "in bf16" 0 "${tiny[@]}" --precision bf16 --json; silent err
field '[.operations[] | select(.numbers == "bf16") | .name] | unique == ["attention", "gather-rows", "gelu", "linear", "linear-columns", "linear-gelu", "mlp", "rope", "select-rows", "swiglu", "widen"]'
field '.operations | length == 57'

[ $failed = 0 ] && echo "astra-bench op: every operation, forward and backward"
exit $failed
