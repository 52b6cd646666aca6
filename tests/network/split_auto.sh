#!/bin/bash
# runs alone: measures speeds
# --split auto over workers: the one whose core is busy with something else gets fewer tokens, all tokens are given out, the answer is that of
# the same split asked for by number, prediction and measurement stand side by side; plan --peers measures the same devices; texts too.
. tests/network/helpers.sh
make_checkpoint "$work/model" vit-cifar 8 64 2 64 4
make_checkpoint "$work/text" tiny-llama 2 64 3
cp tests/golden/stories260K/tok512.bin "$work/text/"
make_checkpoint "$work/plain" vit-cifar 0 64 2 64 4
make_picture "$work/1.ppm" 64
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
key=(--key-file "$work/key")

tokens() { sed -n 's/.*"split":{"tokens":\[\([0-9,]*\)\].*/\1/p' "$work/out"; } # of the nodes, as 70,186

start_worker a 127.0.0.1:0 -c "$work/model" "${key[@]}"
start_worker b 127.0.0.1:0 -c "$work/model" "${key[@]}"
core=$(taskset -cp $$ | sed 's/.*: \([0-9]*\).*/\1/')
# Worker a shares one core with a loop that has the first right to it, worker b has what is left of the machine.
taskset -cp "$core" "${listener[a]}" >/dev/null
renice -n 6 -p "${listener[a]}" >/dev/null
taskset -c "$core" bash -c 'while :; do :; done' &
loop=$!
trap 'kill "$loop" 2>/dev/null; rm -rf "$work"' EXIT

# What else this machine has to do may slow worker b as well for a while: it is asked again.
for ((round = 0; round < 5; round++)); do
  lead "a busy device" 0 --peers "${address[a]},${address[b]}" --no-local "${key[@]}" -c "$work/model" --split all --json "$work/1.ppm"
  counts=$(tokens)
  slow=${counts%,*} fast=${counts#*,}
  [ "$slow" -ge "$fast" ] || break
done
[ $((slow + fast)) = 256 ] || report "$name: $counts are not 256 tokens"
[ "$slow" -lt "$fast" ] || report "$name: $slow tokens for the busy one, $fast for the other"
out '"predicted_ms":[0-9.]\+,"measured_ms":[0-9.]\+'
answer_of "$work/out" >"$work/answer"
parts=$(jq .split.parts "$work/out") # of which rounding depends
lead "the same split by number" 0 --peers "${address[a]},${address[b]}" --no-local "${key[@]}" -c "$work/model" --split "$counts" --parts "$parts" --json "$work/1.ppm"
answer_of "$work/out" >"$work/expected"
[ -s "$work/answer" ] && cmp -s "$work/answer" "$work/expected" || report "another answer than with --split $counts"

for ((round = 0; round < 5; round++)); do
  lead "plan --peers" 0 plan --peers "${address[a]},${address[b]}" --no-local "${key[@]}" -c "$work/model" --strategies astra,single --json
  fastest=$(tail -n 1 "$work/out" | jq -r '.peers[0].device')
  [ "$fastest" != "${address[b]}" ] || break
done
[ "$fastest" = "${address[b]}" ] || report "$name: the busy one counts as the faster one"
lead "plan --peers as a table" 0 plan --peers "${address[a]}" "${key[@]}" -c "$work/model" --strategies astra --bandwidth 10mbit
out '^peers: .*this device'; out '^network: mesh, 10 Mbit/s'
lead "plan --peers in too short a time" 1 plan --peers "${address[a]}" --no-local "${key[@]}" -c "$work/model" --timeout 0.1
err "could not be measured within 0.1 s; --timeout gives it longer" # it takes about half a second
lead "plan for the links that there are" 0 plan --peers "${address[a]}" "${key[@]}" -c "$work/model" --strategies astra
out '^peers: .*Mbit/s to it, .* from it'; out '^network: switch, links of their own$'
lead "computation is scaled, not the input's way" 0 plan --peers "${address[a]},${address[b]}" --no-local "${key[@]}" -c "$work/model" --strategies single --bandwidth 1mbit --with-input \
  --calibrate 100ms --json
json_holds '[.rows[] | select(.strategy == "single")][0].input_ms as $input | $input > 10 and (.single_ms - $input - 100 | fabs) < 1'
lead "plan for a shared medium" 0 plan --peers "${address[a]}" "${key[@]}" -c "$work/model" --strategies astra --link-model shared-air --json
json_holds '.link_model == "shared-medium" and .links == null and .bits_per_second > 1e6'
kill "$loop"
wait "$loop" 2>/dev/null

# Over a link that takes far longer than computing, one device is let to answer alone, unless it is told otherwise; the answer is its own.
slow=(--peers "${address[a]},${address[b]}" "${key[@]}" -c "$work/model" --bandwidth 20kbit)
lead "one is faster" 0 "${slow[@]}" --split auto --json "$work/1.ppm"
json_holds '.split | .asked == 3 and .predicted_ms < .predicted_all_ms'; json_holds '.nodes | length == 1'; json_holds '.nodes[0].tokens == 256'
err 'alone: .* ms predicted, .* with all 3 devices (--split all takes every device)'
answer_of "$work/out" >"$work/answer"
lead "one" 0 --nodes 1 -c "$work/model" --json "$work/1.ppm"
answer_of "$work/out" >"$work/expected"
[ -s "$work/answer" ] && cmp -s "$work/answer" "$work/expected" || report "one device of three answers otherwise than one"
lead "all are asked for" 0 "${slow[@]}" --split all --json "$work/1.ppm"
json_holds '.nodes | length == 3'; json_holds '.split.asked == 3'; json_holds '.split.tokens | min > 0'
lead "two are asked for" 0 --nodes 2 -c "$work/model" --bandwidth 20kbit --split auto --json "$work/1.ppm"
json_holds '.nodes | length == 2'

for links in 50mbit,50mbit 50mbit,1mbit; do
  lead "plan --links $links --measure" 0 plan -c "$work/model" --links $links --even --strategies astra --measure --json
  jq '.rows[] | select(.nodes == 2) | .virtual_ms' "$work/out" >>"$work/virtual"
done
awk '{v[NR] = $1} END {exit !(NR == 2 && v[1] > 0 && v[2] > 1.5 * v[1])}' "$work/virtual" || report "virtual time knows nothing of links: $(tr '\n' ' ' <"$work/virtual")"
start_worker plain 127.0.0.1:0 -c "$work/plain" "${key[@]}"
lead "plan of a plain model" 0 plan --peers "${address[plain]}" "${key[@]}" -c "$work/plain" --groups 4,8 --json
[ "$(jq '[.rows[] | select(.strategy == "astra" and .nodes == 2) | .groups] | sort | tostring' "$work/out")" = '"[4,8]"' ] || report "$name: $(cat "$work/out")"
stop_worker plain
start_worker few 127.0.0.1:0 -c "$work/plain" "${key[@]}" --weights int8 --precision bf16
lead "plan for other weights than the worker's" 1 plan --peers "${address[few]}" "${key[@]}" -c "$work/plain"; err "give fp32 or bf16"
lead "plan for the worker's weights" 0 plan --peers "${address[few]}" "${key[@]}" -c "$work/plain" --weights int8 --precision bf16 --strategies single
stop_worker few

lead "plan for more devices than are called" 2 plan --peers 127.0.0.1:1 "${key[@]}" -c "$work/model" --nodes 1,3; err "nodes 3: there are 2 devices with those of --peers"
lead "plan: a chart that cannot be written" 1 plan -c "$work/model" --chart "$work/nowhere/plan.png"; err "nowhere/plan.png"; ! grep -q "measuring" "$work/err" && [ ! -s "$work/out" ] || report "it measures first"
lead "plan: weights of no worker" 2 plan -c "$work/model" --weights int8; err "--weights goes with --peers"
lead "plan: --speeds and --peers" 2 plan --peers "${address[a]}" --speeds 1,1 -c "$work/model"; err "speeds of peers are measured"
lead "plan: a preset and --peers" 2 plan --peers "${address[a]}" --model vit-base; err "workers have a checkpoint"
lead "plan: more nodes than there are" 2 plan --peers "${address[a]}" "${key[@]}" -c "$work/model" --nodes 3; err "there are 2 devices"
"$program" keygen "$work/another" 2>/dev/null || report "keygen"
lead "plan: no key" 2 plan --peers "${address[a]}" -c "$work/model"; err "needs --key-file"
lead "plan: a key that is another" 1 plan --peers "${address[a]}" --key-file "$work/another" --wait 1 -c "$work/model"; err "the other device refuses this one's key"

lead "the table" 0 --nodes 2 -c "$work/model" --split auto "$work/1.ppm"
out '^measured at the start: .*GFLOP/s'; out '^predicted [0-9.]* ms per sample, measured [0-9.]* ms'
lead "links as they are told" 0 --nodes 2 -c "$work/model" --split auto --bandwidth 50mbit --transport udp "$work/1.ppm"; out 'links of 50 Mbit/s'
# Where computing and link take about as long, blocks are cut: on some of these links, whatever the speed of this machine.
for rate in 2mbit 4mbit 8mbit 1mbit 16mbit 3mbit 6mbit 32mbit; do
  lead "parts are chosen" 0 --nodes 2 -c "$work/model" --split auto --bandwidth $rate --json "$work/1.ppm"
  parts=$(jq .split.parts "$work/out")
  [ "$parts" = 1 ] || break
done
[ "$parts" -gt 1 ] && [ "$(jq '.nodes[0].parts' "$work/out")" -ge $((5 * parts)) ] || report "$name: blocks were not cut"
lead "parts are asked for" 0 --nodes 2 -c "$work/model" --split auto --parts 1 --bandwidth 1mbit --json "$work/1.ppm"
[ "$(jq .split.parts "$work/out")" = 1 ] || report "$name: blocks were cut"
# A request waits for a link once, however many images it holds: with 10 ms an image one node would get all tokens but one.
lead "a request of many images" 0 eval --nodes 2 -c vit-cifar-g8 --dataset cifar100-sample --samples 64 --batch 64 --latency 10ms --split auto --json
json_holds '.split | (.tokens | min >= 4) and .latency_ms == 10'
lead "a text" 0 --nodes 2 -c "$work/text" --split auto -p "Once upon a time there was a" -m 4
err '^measured at the start: .*GFLOP/s'
lead "one node" 0 --nodes 1 -c "$work/model" --split auto --json "$work/1.ppm"
! grep -q '"split"' "$work/out" || report "$name: nothing is to be divided"

stop_worker a
stop_worker b
[ $failed = 0 ] && echo "split auto: ok"
exit $failed
