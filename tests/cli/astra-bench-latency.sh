#!/bin/bash
# astra-bench latency from outside, with a small model: every figure as CSV and PNG, both forms, what bandwidth and calibration must do to the
# numbers, and refusals. Says nothing about speed.
# Usage: tests/cli/astra-bench-latency.sh; programs in $BUILD/bin (build/bin). limit: 120
. tests/cli/helpers.sh astra-bench latency
# value of COLUMN in the first row of FILE whose line begins with FIGURE,FORM,LINKS,STRATEGY,GROUPS,NODES,TOKENS and has that rate
column() { # FILE COLUMN FORM STRATEGY GROUPS MBIT
  awk -F, -v column="$2" -v form="$3" -v strategy="$4" -v groups="$5" -v mbit="$6" '
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    $at["form"] == form && $at["strategy"] == strategy && $at["groups"] == groups && $at["mbit"] == mbit { print $at[column]; exit }' "$1"
}

small=(--width 64 --blocks 2 --heads 4 --codebook-size 64 --tokens 128 --quick)

expect "help" 0 --help; out "^usage: astra-bench latency"; out "--figure"; out "--calibrate"; out "--bandwidth"
expect "an unknown figure" 2 --figure pie; err "--figure"; err "baselines"
expect "a calibration without a unit" 2 "${small[@]}" --calibrate 99; err "--calibrate"
expect "a calibration to nothing" 2 "${small[@]}" --calibrate 0ms; err "above 0"
expect "heads that do not divide" 2 --width 64 --heads 5; err "--heads 5 does not divide"
expect "bursts that are too short" 2 --loss 80% --loss-model gilbert-elliott --loss-burst 2 --out none
err "--loss-model gilbert-elliott: .*in bursts of 4 or more"; ! grep -q measuring err && [ ! -e none ] || report "it begins all the same"
expect "more retained blocks than there are" 2 --blocks 2 --retained 3; err "--retained 3: the model has 2 blocks"
expect "more blocks that exchange codes than there are" 2 --blocks 2 --exchange-blocks 3; err "--exchange-blocks 3: the model has 2 blocks; 0 means all of them$"
expect "more than the one there is" 2 --blocks 1 --exchange-blocks 2; err "--exchange-blocks 2: the model has 1 block; 0 means all of them$"
for given in "--nodes 3" "--tokens 512" "--exchange-blocks 1" "--retained 1" "--bandwidth 50mbit" "--codebook-size 64" "--calibrate 1s" "--width 64" "--blocks 2" "--heads 4" \
  "--parts 2" "--table-memory 1M" "--repeats 2" "--measure-all"; do
  # shellcheck disable=SC2086
  expect "what Llama's figure would pass over: $given" 2 --figure llama $given; err "^astra-bench: error: ${given% *} changes nothing in --figure llama; it is for [a-z, ]*tokens"
done
expect "the rate of codebooks" 2 --figure codebook --bandwidth 50mbit; err "--bandwidth changes nothing in --figure codebook; it is for devices, tokens$"
expect "blocks that no codebook retains" 2 --figure codebook --retained 1; err "it is for bandwidth, devices, tokens, breakdown, baselines, trace$"
expect "the size of codebooks of which each has its own" 2 --figure codebook --codebook-size 64; err "it is for bandwidth, devices, tokens, breakdown, baselines, trace$"
expect "Llama's figure alone, for which no device is measured" 0 --figure llama --json
jq -e '.scale == null and .single == null and .devices_measured == 0 and (.rows | length > 0 and all(.latency_ms > 0))' out >/dev/null || report "it measures, or predicts nothing"
! grep -q measuring err || report "it says that it measures"
expect "an argument" 2 "${small[@]}" here; err "here"
expect "a folder that cannot be made" 1 "${small[@]}" --figure devices --out /dev/null/x; err "/dev/null"

expect "all figures" 0 "${small[@]}" --out figures
out "as measured"; out "calibrated: computation x"; out "devices measured one after another"; out "requests in ten seconds"
out "each device was measured once"; out "one device: .* before everything else, .* behind it.*each measured once"; out "whatever computation is scaled by"
for figure in bandwidth devices tokens breakdown codebook baselines trace llama; do
  csv=figures/latency-$figure.csv png=figures/latency-$figure.png
  [ "$(head -n 1 "$csv")" = "figure,form,link_model,strategy,groups,codewords,nodes,tokens,parts,mbit,second,latency_ms,compute_ms,wait_ms,hidden,kilobytes_sent,value,paper,single_ms,core_share,note,retained,sending_ms,paper_sending" ] \
    || report "$csv has other columns"
  [ "$(wc -l <"$csv")" -gt 2 ] || report "$csv has no rows"
  awk -F, 'NF != 24 { exit 1 }' "$csv" || report "$csv has a row that is not of 24 columns"
  [ "$(grep -c ",calibrated," "$csv")" = "$(grep -c ",measured," "$csv")" ] || report "$csv has not each row in both forms"
  [ "$(head -c 8 "$png" | od -An -tx1 | tr -d ' \n')" = 89504e470d0a1a0a ] || report "$png is no PNG"
  [ $figure = llama ] || [ -z "$(awk -F, 'NR > 1 && $18 != ""' "$csv")" ] || report "$csv has the paper's numbers beside another model"
done
name="rows of the figures"
awk -F, 'NR > 1 && ($19 <= 0 || $20 <= 0 || ($20 != 0.9 && ($20 < 0.9) != ($21 ~ /shared core/))) { exit 1 }' figures/latency-bandwidth.csv || report "no single device, or a core that others shared and no word of it"
[ "$(tail -n +2 figures/latency-codebook.csv | cut -d, -f6 | sort -nu | tr '\n' ' ')" = "256 1024 " ] || report "codebook: of 256 and 1024"
[ "$(tail -n +2 figures/latency-bandwidth.csv | wc -l)" = 84 ] || report "bandwidth: 7 strategies, 6 rates, 2 forms"
[ "$(tail -n +2 figures/latency-devices.csv | cut -d, -f7 | sort -u | tr '\n' ' ')" = "2 4 8 " ] || report "devices: 2, 4 and 8"
[ "$(tail -n +2 figures/latency-trace.csv | cut -d, -f11 | sort -u | wc -l)" = 60 ] || report "trace: 60 times ten seconds"
[ "$(tail -n +2 figures/latency-trace.csv | cut -d, -f4 | sort -u | tr '\n' ' ')" = "astra bp-ag bp-sp single sp tp " ] || report "trace: every strategy"
awk -F, '$4 == "sp" && $2 == "measured" { print $12 }' figures/latency-trace.csv | sort -u >latencies
[ "$(wc -l <latencies)" -gt 9 ] || report "trace: all ten seconds show one request's latency"
for png in figures/latency-devices-bandwidth.png figures/latency-tokens-bandwidth.png; do
  [ "$(head -c 4 "$png" | tail -c 3)" = PNG ] || report "no $png"
done
awk -F, 'FNR > 1 && $10 > 0 && $7 > 1 && ($23 + 1e-4 < $16 / ($7 - 1) * 8 / $10 || $23 > $12 + 1e-4) { exit 1 }' figures/latency-*.csv \
  || report "sending takes less than the bytes of a link do, or longer than the request"
l=figures/latency-llama.csv
[ "$(column $l paper calibrated astra 1 10)" = 1563 ] && [ "$(tail -n +2 $l | cut -d, -f22 | sort -nu | tr '\n' ' ')" = "0 4 8 " ] || report "llama: not the paper's rows"
holds "$(column $l latency_ms calibrated astra 32 10) < $(column $l latency_ms calibrated sp 0 10) / 10"
holds "$(column $l single_ms calibrated astra 1 10) == 4578"
for link in "--jitter 1ms" "--latency 1ms" "--link-model switch"; do
  # shellcheck disable=SC2086
  expect "llama, $link" 0 "${small[@]}" $link --out other
  [ -z "$(awk -F, 'NR > 1 && $18 != ""' other/latency-llama.csv)" ] || report "the paper's numbers beside other links"
done
b=figures/latency-bandwidth.csv
expect "codes of the first block alone" 0 "${small[@]}" --figure bandwidth --exchange-blocks 1 --out first
f=first/latency-bandwidth.csv
holds "2 * $(column $f kilobytes_sent measured astra 1 10) == $(column $b kilobytes_sent measured astra 1 10)"
holds "$(column $f kilobytes_sent measured sp 0 10) == $(column $b kilobytes_sent measured sp 0 10)"
for strategy in "astra 16" "tp 0" "sp 0" "bp-ag 0" "bp-sp 0"; do
  read -r which groups <<<"$strategy"
  slow=$(column $b latency_ms measured "$which" "$groups" 10) fast=$(column $b latency_ms measured "$which" "$groups" 500)
  holds "$slow > $fast"
done
# Bytes: two blocks of 32 tokens of 6 bits to 3 peers, in 2 packets or one for each of the parts that were the fastest; sums move four times
# what rows do.
parts=$(column $b parts measured astra 1 10)
holds "$(column $b kilobytes_sent measured astra 1 10) == $(awk -v packets=$((parts > 2 ? parts : 2)) 'BEGIN { printf "%.3f", 2 * 3 * (packets * 12 + 24) / 1e3 }')"
holds "$(column $b kilobytes_sent measured tp 0 10) > 3.9 * $(column $b kilobytes_sent measured sp 0 10)"
holds "$(column figures/latency-baselines.csv value measured tp 0 10) > $(column figures/latency-baselines.csv value measured tp 0 500)"

whole=(--width 64 --blocks 6 --heads 4 --codebook-size 64 --tokens 64 --repeats 1 --parts 1)
expect "all rates, few and many retained blocks" 0 "${whole[@]}" --figure devices --bandwidth 30mbit --out rates
[ "$(tail -n +2 rates/latency-devices.csv | cut -d, -f10 | sort -nu | tr '\n' ' ')" = "10 20 30 50 100 200 500 " ] || report "devices: not at all rates"
[ "$(grep -E ',bp-(ag|sp),' rates/latency-devices.csv | cut -d, -f22 | sort -nu | tr '\n' ' ')" = "1 4 " ] || report "devices: not 1 and 4 retained blocks"
out "^  bp-ag, 4, 30 Mbit/s  *2 "; ! grep -q ", 50 Mbit/s" "$work/out" || report "rows of all rates are printed"
expect "so many retained blocks" 0 "${whole[@]}" --figure baselines --retained 2 --out retained
[ "$(tail -n +2 retained/latency-baselines.csv | cut -d, -f22 | sort -nu | tr '\n' ' ')" = "0 2 " ] || report "baselines: 2 retained blocks"
expect "one figure, switch" 0 "${small[@]}" --figure bandwidth --link-model switch --out switched
[ ! -e switched/latency-trace.png ] || report "another figure was drawn too"
holds "$(column switched/latency-bandwidth.csv latency_ms measured sp 0 10) > $(column $b latency_ms measured sp 0 10)"
expect "JSON" 0 "${small[@]}" --figure devices --parts 1 --measure-all --json
json '^\{"schema":1,"scale":.*"link_model":"mesh".*"devices_measured":16,.*"rows":\[.*\]\}$' # one, twice, and 2, 4 and 8 of G = 1
expect "calibrated" 0 "${small[@]}" --figure bandwidth --calibrate 10s --parts 1 --json
json '"calibrated":true,"strategy":"astra","groups":1,[^}]*"hidden":1\.0' # computing so slow that all is hidden
expect "loss" 0 "${small[@]}" --figure baselines --loss 5% --latency 1ms --reliability retransmit --out lossy; out "loss not modelled"
awk -F, 'NR > 1 && !($21 ~ /loss not modelled/) { exit 1 }' lossy/latency-baselines.csv || report "rows over streams do not say that loss is not modelled"

# More devices than heads, more parts than some device has tokens: what cannot be is left out, the rest is measured.
expect "more devices than heads" 0 "${small[@]}" --figure bandwidth --nodes 6 --out many
[ "$(tail -n +2 many/latency-bandwidth.csv | cut -d, -f4 | sort -u | tr '\n' ' ')" = "astra sp " ] || report "only astra and sp divide tokens"
# What a request of the runner cannot number: sums over 17 devices, or 256 of them.
for case in "--nodes 17 --blocks 2" "--nodes 2 --blocks 128"; do
  # shellcheck disable=SC2086
  expect "sums that no cluster runs: $case" 0 --width 64 --heads 32 --codebook-size 64 --tokens 64 --quick --figure baselines $case --out sums
  rows=$(tail -n +2 sums/latency-baselines.csv | cut -d, -f4 | sort -u | tr '\n' ' ')
  case $case in
  *17*) [ "$rows" = "sp " ] || report "17 devices run $rows" ;;
  *) [ "$rows" = "bp-ag bp-sp sp " ] || report "two devices run $rows" ;;
  esac
done
expect "few tokens in many parts" 0 "${small[@]}" --figure tokens --tokens 68 --parts 8; out "^  G = 1, 20 Mbit/s  *17 "
expect "too many devices" 2 "${small[@]}" --nodes 65; err "--nodes"
expect "medians" 0 --width 64 --blocks 2 --heads 4 --tokens 128 --figure codebook --repeats 2; out "runs of a device differed by [0-9.]*% at most"

[ $failed = 0 ] && echo "astra-bench latency: ok"
exit $failed
