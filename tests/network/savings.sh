#!/bin/bash
# What devices save: keys and values from tables, and entropy coding, between workers. The answers are those of processes of one machine without
# either; a worker may have no tables; one whose frequencies are others, or none, has another codebook.
. tests/network/helpers.sh
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
kmeans=$(realpath "$build/bin/astra-kmeans")
data="synthetic:16x16:7:200"
make_checkpoint "$work/model" tiny 4 50 4
cp -r "$work/model" "$work/plain"
"$kmeans" frequencies --checkpoint "$work/model" --dataset "$data" --threads 1 -q >"$work/out" 2>"$work/err" || report "frequencies"
make_picture "$work/1.ppm" 16

# Classes and their probabilities, in the order of the JSON in out
answer() { grep -oE '"(class|probability)":[0-9.e-]+' "$work/out" | cut -d: -f2 | tr '\n' ' '; }
# Whether the answer is `want` but for rounding.
as_wanted() { echo "$want : $(answer)" | awk -F ' : ' '{ n = split($1, a, " "); bad = n < 10 || n != split($2, b, " ")
  for (i in a) bad += (a[i] - b[i]) ^ 2 > 1e-10; exit bad > 0 }'; }
sum_of() { grep -oE "\"$1\":[0-9]+" "$work/out" | awk -F : '{ sum += $2 } END { print sum }'; }
run() { # WHAT ARGUMENTS...
  local what=$1
  shift
  timeout 60 "$program" "$@" "$work/1.ppm" --threads 1 --json >"$work/out" 2>"$work/err" || report "$what: exit code $?"
}

run "processes" -c "$work/model" --nodes 3 --entropy off --table-memory 0
want=$(answer)
[ "$(sum_of coded_bits)" = "$(sum_of packed_bits)" ] || report "processes: something was coded"
grep -q '"tables":{' "$work/out" && report "processes: tables were made"

start_worker a 127.0.0.1:0 --key-file "$work/key" -c "$work/model"
start_worker b 127.0.0.1:0 --key-file "$work/key" -c "$work/model" --table-memory 0
start_worker c 127.0.0.1:0 --key-file "$work/key" -c "$work/plain" --table-memory 2M
grep -q "keys and values of other nodes' tokens" "$work/a.log" || report "worker a does not tell of its tables"
grep -q "keys and values of other nodes' tokens" "$work/b.log" && report "worker b tells of tables"
for transport in tcp "udp --datagrams 1"; do
  # shellcheck disable=SC2086
  run "peers over $transport" -c "$work/model" --peers "${address[a]},${address[b]}" --key-file "$work/key" --entropy on --transport $transport
  as_wanted || report "peers over $transport: $(answer), processes had $want"
  [ "$(sum_of coded_bits)" -lt "$(sum_of packed_bits)" ] || report "peers over $transport: $(sum_of coded_bits) bits, packed $(sum_of packed_bits)"
done

run "workers alone" -c "$work/model" --peers "${address[a]},${address[b]}" --key-file "$work/key" --no-local --entropy on
grep -q '"tables":{' "$work/out" && report "a leader that computes nothing made tables"

timeout 60 "$program" -c "$work/model" --peers "${address[c]}" --key-file "$work/key" "$work/1.ppm" >"$work/out" 2>"$work/err" && report "no frequencies at one of two"
grep -qE "worker ${address[c]}: another codebook: [0-9a-f]{16} there, [0-9a-f]{16} here" "$work/err" || report "both values are not named"
run "without frequencies" -c "$work/plain" --peers "${address[c]}" --key-file "$work/key" --entropy auto
[ "$(sum_of coded_bits)" = "$(sum_of packed_bits)" ] || report "without frequencies: something was coded"
for name in a b c; do stop_worker $name; done
exit $failed
