# Shared by the helpers.sh of tests/cli and tests/network, which set $work, where a script keeps its files. Sourced, not run.
# shellcheck shell=bash disable=SC2034,SC2154

# What sanitizers wrote, workers' and services' included: tests/run.sh knows a crash by it.
sanitizers() { grep -hsE 'Sanitizer|runtime error:' "$work/out" "$work/err" "$work"/*log | cut -c -400 | sed 's/^/    /'; }

# Takes the digests out of a safetensors file, in which numbers may then be changed: unseal FILE
unseal() { LC_ALL=C sed -i 's/astra\.xxh3/other.xxh3/g' "$1"; }
