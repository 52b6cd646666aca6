#!/bin/bash
# How many of 100 leaders reach a worker within 3 s, at a round trip of 200 ms, while callers without a key make 10,000 connections a second: from
# the leaders' own address, and from 200 others. Run on a quiet machine, after `make` and `make build/tests/infer/make_callers build/tests/infer/make_sample`.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${BUILD:-build}
work=$(mktemp -d) worker= way=
trap 'kill $worker $way 2>/dev/null; rm -rf "$work"' EXIT
callers=$build/tests/infer/make_callers
"$build/tests/infer/make_sample" "$work/model" tiny 4 16 2 && "$build/bin/astra-infer" keygen "$work/key" 2>/dev/null || exit 1
"$build/bin/astra-infer" worker --listen 127.0.0.1:0 -c "$work/model" --key-file "$work/key" --threads 1 --queue 64 2>"$work/log" &
worker=$!
address() { for _ in {1..100}; do sed -n 's/.*listening on //p' "$1" | grep . && return; sleep 0.1; done; } # FILE
near=$(address "$work/log")
"$callers" delay 127.0.0.1:0 "$near" 0.2 >"$work/way" &
way=$!
far=$(address "$work/way")
echo "no other callers: $("$callers" lead "$far" "$work/key" 100 3)"
for sources in 0 200; do
  "$callers" flood "$near" 10000 12 $sources >"$work/flood" &
  flood=$!
  sleep 2
  for round in 1 2 3; do echo "flood from ${sources/#0/one of the same} address(es), round $round: $("$callers" lead "$far" "$work/key" 100 3)"; done
  wait $flood
  echo "the flood: $(cat "$work/flood")"
done
sed -n 's/^VmHWM:[[:space:]]*/most memory of the worker: /p' "/proc/$worker/status"
