#!/bin/bash
# limit: 240
# The three ways to a slow link agree within 10% on two nodes, one core each: virtual time (astra-infer plan --measure), real processes with the
# shaper in user space, and real processes in network namespaces with the kernel's token bucket. Compared is the time from the moment when the
# last node has its input to the answer. What else runs makes them slower: the least of many requests counts, in two rounds one after the
# other, and rounds go on until they agree or ROUNDS are over. Where they never do, and other programs had a tenth of the machine meanwhile,
# nothing is known.
. tests/network/helpers.sh
rounds=${ROUNDS:-15}
[ "$(nproc)" -ge 2 ] || { echo "skipped: two nodes need a core each"; exit 77; }
make_namespaces 10mbit
mapfile -t cores < <(taskset -cp $$ | sed 's/.*: //; s/,/\n/g' | while IFS=- read -r from to; do seq "$from" "${to:-$from}"; done)

# Ahead of what else runs, where the system lets it; else rounds take care of it.
first=
nice -n -10 true 2>/dev/null && first="nice -n -10"
group=$(sed -n 's/.*nice //p' /proc/self/autogroup 2>/dev/null)
[ -z "$group" ] || echo -10 >/proc/self/autogroup 2>/dev/null || group=
restore() {
  [ -z "$group" ] || echo "$group" >/proc/self/autogroup
  [ -z "${near:-}" ] || kill "$near" 2>/dev/null
  remove_namespaces
}
trap restore EXIT

# 1,024 tokens of 32 codes in blocks small enough that computing and link take about as long.
make_checkpoint "$work/model" vit-cifar 32 1024 2 128 4
make_picture "$work/1.ppm" 128
pictures=()
for ((i = 0; i < 8; i++)); do pictures+=("$work/1.ppm"); done
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
start_worker_in_b "$work/model" "$work/key" $first taskset -c "${cores[1]}"
start_worker near 127.0.0.1:0 -c "$work/model"
near=${porter[near]}
taskset -cp "${cores[1]}" "$near" >/dev/null
[ -z "$first" ] || renice -n -10 -p "$near" >/dev/null

# A field of what was printed; of a plan that of the row of ASTRA, beside which there is always one of a single device.
field() {
  tail -n 1 "$work/out" | sed 's/.*"rows"://' | grep -o '"strategy":"astra"[^}]*\|"fastest_ms.*' | grep -o "\"$1\":[0-9.]*" | sed 's/.*://'
}

# Run as a command; the least of this round and the last goes to least[WAY]: note WAY FIELD COMMAND...
declare -A least last
note() {
  local way=$1 name=$2 now
  shift 2
  $first taskset -c "${cores[0]}" "$@" >"$work/out" 2>"$work/err" </dev/null || { report "$way: $*"; exit 1; }
  now=$(field "$name")
  [ -n "$now" ] || { report "$way: no $name"; exit 1; }
  least[$way]=$(printf '%s\n' "$now" ${last[$way]:-} | sort -g | head -n 1)
  last[$way]=$now
}
request=("$program" -c "$work/model" --threads 1 --transport udp --reliability retransmit --mtu 1500 --batch 1 --json)

agree() { # all three are within 10% of each other
  printf '%s\n' "${least[@]}" | sort -g | awk '
    {v[NR] = $1} END {exit !(NR == 3 && v[3] <= 1.1 * v[1])}'
}

# Seconds that the machine's cores have worked, whoever for (stolen ones too), or that they could have: machine busy|all.
machine() { awk -v what="$1" -v hz="$(getconf CLK_TCK)" '/^cpu / {all = $2+$3+$4+$5+$6+$7+$8+$9; print (what == "busy" ? all - $5 - $6 : all) / hz}' /proc/stat; }
busy=$(machine busy) all=$(machine all) differ=
for rate in 10mbit 25mbit; do
  end=$((SECONDS + 90 * ${TIME_SCALE:-1})) # of the rounds of one rate
  last=()
  tc -n "$space_a" qdisc change dev veth0 root tbf rate "$rate" burst 3000 latency 1s
  tc -n "$space_b" qdisc change dev veth0 root tbf rate "$rate" burst 3000 latency 1s
  plan=("$program" plan -c "$work/model" --nodes 2 --even --strategies astra --bandwidth "$rate" --measure --json)
  note virtual virtual_ms "${plan[@]}"
  parts=$(field parts)
  last=()
  for ((round = 1; round <= rounds; round++)); do
    note virtual virtual_ms "${plan[@]}" --parts "$parts"
    note shaped fastest_ms "${request[@]}" --peers "${address[near]}" --bandwidth "$rate" --parts "$parts" "${pictures[@]}"
    note kernel fastest_ms ip netns exec "$space_a" "${request[@]}" --peers "$worker_address" --key-file "$work/key" --parts "$parts" "${pictures[@]}"
    [ "$round" -lt 2 ] || { ! agree && [ $SECONDS -lt $end ]; } || break
  done
  echo "$rate, $parts parts: virtual ${least[virtual]} ms, shaper ${least[shaped]} ms, tbf ${least[kernel]} ms (round $((round > rounds ? rounds : round)))"
  agree || differ="$differ $rate"
done
busy=$(awk "BEGIN {print $(machine busy) - $busy}") all=$(awk "BEGIN {print $(machine all) - $all}")
stop_worker near
near=
kill -TERM "$worker_pid"
wait "$worker_pid" || report "the worker: exit code $?"
worker_pid=
# What this script's own processes took is known now that all have been waited for.
times >"$work/times"
others=$(tail -n 1 "$work/times" | sed 's/[ms]/ /g' | awk -v busy="$busy" -v all="$all" '{printf "%.0f", 100 * (busy - 60 * $1 - $2 - 60 * $3 - $4) / all}')
if [ -n "$differ" ] && [ "$others" -ge 10 ]; then
  echo "skipped: at$differ they differ by more than 10%, but other programs had $others% of this machine meanwhile"
  exit 77
fi
[ -z "$differ" ] || report "at$differ they differ by more than 10%"
echo "others had $others% of the machine"
[ $failed = 0 ] && echo "links agree: ok"
exit $failed
