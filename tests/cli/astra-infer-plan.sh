#!/bin/bash
# astra-infer plan from outside: options, the table, JSON whose rows are sorted, a chart that is a picture, and the choice that a network forces.
# Usage: tests/cli/astra-infer-plan.sh; programs in $BUILD/bin (build/bin). limit: 120
set -u
program=$(realpath "${BUILD:-build}/bin/astra-infer")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failed=0

expect() { # NAME EXIT-CODE ARGUMENTS...
  name=$1 code=$2
  shift 2
  "$program" plan "$@" >"$work/out" 2>"$work/err" </dev/null
  got=$?
  [ "$got" = "$code" ] || report "exit code $got, expected $code"
}
report() { echo "FAILED: $name: $1"; sed 's/^/    /' "$work/out" "$work/err"; failed=1; }
out() { grep -q -e "$1" "$work/out" || report "stdout lacks '$1'"; }
err() { grep -q -e "$1" "$work/err" || report "stderr lacks '$1'"; }
json() { tail -n 1 "$work/out" | grep -q -E "$1" || report "the last line of stdout lacks '$1'"; }

mkdir model
cat >model/config.json <<'END'
{"model_type": "vit", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 256, "image_size": 64,
 "patch_size": 4, "num_channels": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
 "astra": {"groups": 4, "codebook_size": 64, "devices": 4, "site": "x", "class_token": "distributed"}}
END

expect "help" 0 --help; out "^usage: astra-infer plan"; out "--bandwidth"; out "--calibrate"
expect "nothing" 2; err "--checkpoint DIR or --model NAME"
expect "both" 2 --model vit-base --checkpoint model; err "--checkpoint DIR or --model NAME"
expect "no such model" 1 --checkpoint ./nowhere; err "nowhere"
expect "a rate without a unit" 2 --checkpoint model --bandwidth 20; err "--bandwidth"; err "20mbit"
expect "a negative time" 2 --checkpoint model --latency=-2ms; err "--latency"
expect "an unknown strategy" 2 --checkpoint model --strategies astra,pp; err "--strategies"; err '"pp" is no strategy'; err "bp-ag"
expect "more nodes than speeds" 2 --checkpoint model --speeds 1,1 --nodes 3; err "--speeds names 2"
expect "groups that do not divide" 1 --checkpoint model --groups 5; err "5 groups do not divide a width of 64"
expect "an argument" 2 --checkpoint model photo.png; err "photo.png"

# Computing so slow that any network is fast, and a network so slow that nothing is worth sending.
expect "a fast network" 0 --checkpoint model --nodes 2,4 --bandwidth 1gbit --calibrate 10s --strategies astra,single,sp
out "^single .*-  *1  *1 "; out "^astra  *4  *4 "; out "FPAR"; out "^use \(astra\|sp\).* on 4 devices"
expect "a slow network" 0 --checkpoint model --nodes 2,4 --bandwidth 9kbit --calibrate 1ms; out "^one device is faster"
expect "other groups" 0 --checkpoint model --nodes 2 --groups 1,4 --bandwidth 1gbit --calibrate 10s --strategies astra; out "needs training"
expect "uneven devices" 0 --checkpoint model --speeds 3,1 --bandwidth 1gbit --calibrate 10s --strategies astra --json
json '"tokens":\[(1[5-9]|2[0-9])[0-9],[0-9]+\]' # far more than half of 256 for the faster one
expect "as many tokens each" 0 --checkpoint model --speeds 3,1 --even --strategies astra --json; json '"tokens":\[128,128\]'
expect "loss" 0 --checkpoint model --nodes 2 --loss 5% --reliability retransmit --latency 1ms; out "loss 5%"

expect "JSON and a chart" 0 --checkpoint model --nodes 2,3 --link-model switch --latency 1ms --chart chart.png --json
json '^\{.*"link_model":"switch".*"rows":\[.*"verdict":".*\}$'
json '"bits_per_second":20000000'
tail -n 1 out | grep -oE '"predicted_ms":[0-9.e-]+' | sed '1d; s/.*://' >latencies # the first one is that of the best row, which comes again
[ "$(wc -l <latencies)" = 11 ] || report "$(wc -l <latencies) rows, expected 11"
sort -g -c latencies || report "the rows are not sorted"
[ "$(head -c 8 chart.png | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || report "chart.png is no PNG"
expect "a chart that cannot be written" 1 --checkpoint model --nodes 2 --chart no/such/chart.png; err "chart.png"

[ $failed = 0 ] && echo "astra-infer plan: ok"
exit $failed
