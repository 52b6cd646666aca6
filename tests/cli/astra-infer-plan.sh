#!/bin/bash
# astra-infer plan from outside: options, the table, JSON whose rows are sorted, a chart that is an image, and the choice that a network forces.
# Usage: tests/cli/astra-infer-plan.sh; programs in $BUILD/bin (build/bin). limit: 120
. tests/cli/helpers.sh astra-infer plan

mkdir model
cat >model/config.json <<'END'
{"model_type": "vit", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 256, "image_size": 64,
 "patch_size": 4, "num_channels": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
 "astra": {"groups": 4, "codebook_size": 64, "devices": 4, "site": "x", "class_token": "distributed"}}
END

expect "help" 0 --help; out "^usage: astra-infer plan"; out "--bandwidth"; out "--calibrate"
expect "no time for workers" 2 --checkpoint model --peers 127.0.0.1:1 --timeout 0; err "^astra-infer: error: --timeout"; err "0.1"
expect "nothing" 2; err "--checkpoint DIR or --model NAME"
expect "both" 2 --model vit-base --checkpoint model; err "--checkpoint DIR or --model NAME"
expect "no such model" 1 --checkpoint ./nowhere; err "nowhere"
expect "no such preset" 2 --model nowhere; err "--model nowhere: known are vit-base"
expect "bursts of losses one by one" 2 --checkpoint model --loss 5% --loss-burst 2; err "--loss-burst 2 is for --loss-model gilbert-elliott"
expect "bursts of nothing" 2 --checkpoint model --loss-model gilbert-elliott --loss-burst 2; err "--loss-model gilbert-elliott is for --loss SHARE"
expect "bursts that are too short" 2 --checkpoint model --loss 80% --loss-model gilbert-elliott --loss-burst 2
err "--loss-model gilbert-elliott: .*in bursts of 2 packets.*in bursts of 4 or more"
expect "more retained blocks than there are" 2 --checkpoint model --retained 5; err "--retained 5: the model has 4 blocks"
expect "a rate without a unit" 2 --checkpoint model --bandwidth 20; err "--bandwidth"; err "20mbit"
expect "a negative time" 2 --checkpoint model --latency=-2ms; err "--latency"
expect "an unknown strategy" 2 --checkpoint model --strategies astra,pp; err "--strategies"; err 'unknown strategy "pp"'; err "bp-ag"
for list in ,astra astra, astra,,sp; do
  expect "strategies '$list'" 2 --checkpoint model --strategies "$list"; err "--strategies"; err 'unknown strategy ""'
done
expect "more nodes than speeds" 2 --checkpoint model --speeds 1,1 --nodes 3; err "there are 2 devices in --speeds"
expect "more speeds than links" 2 --checkpoint model --speeds 1,1,1 --links 1mbit,2mbit; err "--speeds names 3 devices, --links 2"
expect "links and a rate for all" 2 --checkpoint model --links 1mbit,2mbit --bandwidth 1mbit; err "leave out --bandwidth"
expect "links over a shared medium" 2 --checkpoint model --links 1mbit,2mbit --link-model shared-air; err "one rate for all, --bandwidth"
expect "a link without a unit" 2 --checkpoint model --links 1mbit,2; err "--links"; err "20mbit"
expect "a link with more behind it" 2 --checkpoint model --links 00000000000000000000000020mbit/s,1mbit; err "20mbit/s"
expect "groups named twice" 2 --checkpoint model --groups 4,1,4 --chart twice.png; err '^astra-infer: error: --groups "4,1,4": .*different'
expect "groups that do not divide" 2 --checkpoint model --groups 5; err "--groups: 5 groups do not divide a width of 64"
expect "more tokens than can be measured" 2 --checkpoint model --measure --tokens 257; err "^astra-infer: error: --tokens 257: model takes at most 256"
mkdir language
cat >language/config.json <<'END'
{"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 96}
END
expect "a language model to measure" 2 --checkpoint language --measure; err "^astra-infer: error: --measure is for models that classify images"
expect "an argument" 2 --checkpoint model photo.png; err "photo.png"

# Computing so slow that any network is fast, and a network so slow that nothing is worth sending.
expect "a fast network" 0 --checkpoint model --nodes 2,4 --bandwidth 1gbit --calibrate 10s --strategies astra,single,sp
out "^single .*-  *1  *1 "; out "^astra  *4  *4 "; out "FPAR"; out "^use \(astra\|sp\).* on 4 devices"
expect "a slow network" 0 --checkpoint model --nodes 2,4 --bandwidth 9kbit --calibrate 1ms; out "^one device is faster"
expect "other groups" 0 --checkpoint model --nodes 2 --groups 1,4 --bandwidth 1gbit --calibrate 10s --strategies astra; out "needs training"
expect "uneven devices" 0 --checkpoint model --speeds 3,1 --bandwidth 1gbit --calibrate 10s --strategies astra --json
json '"tokens":\[(1[5-9]|2[0-9])[0-9],[0-9]+\]' # far more than half of 256 for the faster one
expect "a slow link" 0 --checkpoint model --links 1gbit,1gbit,200kbit --nodes 3 --calibrate 100ms --strategies astra --groups 4 --json
json '"tokens":\[[0-9]+,[0-9]+,([1-7]?[0-9]|8[0-5])\]'; json '"link_model":"switch"'; json '"links":\[\{"to_bits_per_second":(1e9|1000000000)' # less than an even share behind the slow link
expect "links in the table" 0 --checkpoint model --links 20mbit,1mbit,50mbit --strategies astra,single; out "^network: switch, links of their own: 20, 50, 1 Mbit/s, latency 0 ms"
expect "as many tokens each" 0 --checkpoint model --speeds 3,1 --even --strategies astra --json; json '"tokens":\[128,128\]'
expect "more tokens than the model takes" 0 --checkpoint model --nodes 2 --tokens 512; out "^model: .* 512 tokens"; out "takes 256 tokens: these are predictions for a model like it that takes 512"
expect "as many as it takes" 0 --checkpoint model --nodes 2 --tokens 256; ! grep -q "a model like it" out || report "says that 256 tokens are not its own"
expect "loss" 0 --checkpoint model --nodes 2 --loss 5% --reliability retransmit --latency 1ms; out "loss 5%"
out "^sp .*loss not modelled"; out "^tp .*loss not modelled"
grep -q "^astra.*loss not modelled" out && report "codes go in datagrams, whose loss is modelled"

# What a preset would need to learn is no reason against any number of groups, a checkpoint's is; the input's way counts where it is asked for.
expect "a preset" 0 --model vit-base --nodes 4 --groups 1,4 --bandwidth 1gbit --calibrate 10s --strategies astra,single; out "^use astra"
grep -q "needs training" out && report "a preset has not been trained for any number of groups"
expect "another number of groups" 0 --checkpoint model --nodes 2 --groups 1 --bandwidth 1gbit --calibrate 10s --strategies astra,single --json
json '"trained":\{"strategy":"astra","groups":1,'
expect "the best needs nothing" 0 --checkpoint model --nodes 2 --bandwidth 1gbit --calibrate 10s --strategies astra,single --json
json '"trained":null'; json '"table_blocks":4,'
for flag in --no-with-input --with-input; do
  expect "$flag" 0 --checkpoint model --nodes 2 --even --bandwidth 100kbit --calibrate 1ms --strategies sp,single $flag --json
  tail -n 1 out | grep -oE '"strategy":"sp"[^}]*"predicted_ms":[0-9.e-]+[^}]*"input_ms":[0-9.e-]+' | tail -n 1 | sed -E 's/.*"predicted_ms":([0-9.e-]+).*"input_ms":([0-9.e-]+).*/\1 \2/' >"way$flag"
done
read -r without way <way--no-with-input; read -r with same <way--with-input
holds "$way > 100 && $way == $same && $with > $without + 0.99 * $way"

# The input, 12 KB, goes from this device, the first of speed 1, to the fastest one: over its link of 1 Mbit/s; where no device is this one, its link is not counted.
for speeds in 4,1 4,2 1,1; do
  expect "input beside speeds $speeds" 0 --checkpoint model --speeds $speeds --links 1gbit,1mbit --nodes 2 --strategies astra,single --json
  tail -n 1 out | grep -oE '"strategy":"single"[^}]*"input_ms":[0-9.e-]+' | tail -n 1 | sed 's/.*://' >"way$speeds"
done
holds "$(cat way4,1) > 95 && $(cat way4,1) < 130 && $(cat way4,2) > 0 && $(cat way4,2) < 1 && $(cat way1,1) == 0"

# 2.2 TFLOP, of which nobody waits for the end.
name="a long measurement"
"$program" plan --checkpoint model --tokens 65536 >out 2>err &
for ((i = 0; i < 100; i++)); do ! grep -q TFLOP err || break; sleep 0.1; done
kill $!; wait $!
err "^astra-infer: measuring takes 2.2 TFLOP at least, 22 s at 100 GFLOP/s$"; silent out
expect "a short measurement" 0 --checkpoint model --nodes 2; ! grep -q measuring err || report "it is told of"

expect "JSON and a chart" 0 --checkpoint model --nodes 2,3 --link-model switch --latency 1ms --chart chart.png --json
json '^\{.*"link_model":"switch".*"rows":\[.*"decision":".*\}$'
json '"bits_per_second":20000000'
tail -n 1 out | grep -oE '"predicted_ms":[0-9.e-]+' | sed '1d; s/.*://' >latencies # the first one is that of the best row, which comes again; nothing needs training
[ "$(wc -l <latencies)" = 11 ] || report "$(wc -l <latencies) rows, expected 11"
sort -g -c latencies || report "the rows are not sorted"
[ "$(head -c 8 chart.png | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || report "chart.png is no PNG"
expect "a chart in place of a directory" 1 --checkpoint model --nodes 2 --chart model; err "error: cannot write model: it is a directory; give the name of a file"; silent out
expect "times of no workers" 2 --checkpoint model --timeout 9; err "--wait and --timeout go with --peers"
expect "no checkpoint" 1 --checkpoint ./nowhere; err "checkpoint ./nowhere: there is no such directory or GGUF file"
expect "a chart that cannot be written" 1 --checkpoint model --nodes 2 --chart no/such/chart.png; err "chart.png"

[ $failed = 0 ] && echo "astra-infer plan: ok"
exit $failed
