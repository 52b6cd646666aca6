#!/bin/bash
# runs alone: measures time
# limit: 400
# The three ways to a slow link agree within 10% on two nodes, one core each: virtual time (astra-infer plan --measure), real processes with
# netem in user space, and real processes in network namespaces with the kernel's token bucket; with 12 blocks of width 768 the plan's
# prediction as well. Compared is the time from the moment when the last node has its input to the answer.
# One measurement decides: ROUNDS rounds in which the ways take turns, of each way the least (what else runs only makes it slower); where they
# still differ then, up to three times as many. The machine is unfit, and nothing is known, where other programs had a twentieth of it
# meanwhile, where a way's rounds differ from each other by more than the ways may, or where what processes cost without a slow link is all that
# the ways differ by; then the test says so and is skipped.
. tests/network/helpers.sh
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
rounds=${ROUNDS:-3}
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


# A field of what was printed; of a plan that of the row of ASTRA, beside which there is always one of a single device.
field() {
  jq -r --arg name "$1" 'if .rows then first(.rows[] | select(.strategy == "astra")) else . end | .[$name]' "$work/out"
}

# The least and the most of a way's rounds, in milliseconds.
declare -A least most
note() { # WAY FIELD
  local now
  now=$(field "$2")
  [ -n "$now" ] && [ "$now" != null ] || { report "$1: no $2"; exit 1; }
  least[$1]=$(printf '%s\n' "$now" ${least[$1]:-} | sort -g | head -n 1)
  most[$1]=$(printf '%s\n' "$now" ${most[$1]:-} | sort -g | tail -n 1)
}
run() { # COMMAND...: on the first core
  $first taskset -c "${cores[0]}" "$@" >"$work/out" 2>"$work/err" </dev/null || { report "$*"; exit 1; }
}

# Seconds that the machine's cores have worked, whoever for (stolen ones too), or that they could have: machine busy|all.
machine() { awk -v what="$1" -v hz="$(getconf CLK_TCK)" '/^cpu / {all = $2+$3+$4+$5+$6+$7+$8+$9; print (what == "busy" ? all - $5 - $6 : all) / hz}' /proc/stat; }
# Sets own to the seconds that this script's processes took, the workers and their sessions among them. Not in a subshell, which has none.
own_time() {
  local pid total=0
  for pid in $near $worker_pid $(pgrep -P "$near") $(pgrep -P "$worker_pid"); do
    total=$(awk -v sum="$total" -v hz="$(getconf CLK_TCK)" '{sub(/.*\) /, ""); print sum + ($12 + $13 + $14 + $15) / hz}' "/proc/$pid/stat" 2>/dev/null || echo "$total")
  done
  times >"$work/times"
  own=$(tr 'ms' '  ' <"$work/times" | awk -v sum="$total" '{sum += 60 * $1 + $2 + 60 * $3 + $4} END {print sum}')
}

# Whether the least of each way differ by more than 10%: 1 or 0.
differ() { for way in "$@"; do echo "${least[$way]:-}"; done | sort -g | awk '{v[NR] = $1} END {print (v[NR] > 1.1 * v[1]) ? 1 : 0}'; }

# processes_cost WAYS...: what processes cost beyond computing (being woken up, system calls) is no link's time, and virtual time knows nothing
# of it. Measured over a link that takes no time; whether the ways agree once virtual times have it, too. Uses agree's arrays; sets cost, in ms.
processes_cost() {
  local round way
  local -A slow
  for way in "${!least[@]}"; do slow[$way]=${least[$way]}; done
  least=() most=()
  for round in 1 2 3; do
    run "${plan[@]}" --bandwidth 10gbit --parts "$parts"
    note virtual virtual_ms
    run "${request[@]}" --peers "${address[near]}" --key-file "$work/key" --bandwidth 10gbit --parts "$parts" "${pictures[@]}"
    note netem fastest_ms
  done
  cost=$(awk "BEGIN {print ${least[netem]} - ${least[virtual]}}")
  for way in "${!slow[@]}"; do least[$way]=${slow[$way]}; done
  for way in virtual predicted; do least[$way]=$(awk "BEGIN {print ${slow[$way]} + $cost}"); done
  [ "$(differ "$@")" = 0 ]
}

# agree NAME CHECKPOINT RATE PICTURES WAYS...: one measurement, which passes, fails, or finds the machine unfit.
agree() {
  local name=$1 model=$2 rate=$3 count=$4 pictures=() busy all own before others round space way
  local plan=("$program" plan -c "$model" --nodes 2 --even --strategies astra --bandwidth "$rate" --measure --json)
  local request=("$program" -c "$model" --threads 1 --transport udp --reliability retransmit --mtu 1500 --batch 1 --json)
  shift 4
  least=() most=()
  while [ ${#pictures[@]} -lt "$count" ]; do pictures+=("$work/1.ppm"); done
  for space in "$space_a" "$space_b"; do # the smallest bucket that a packet fits into: what it holds passes at once after each pause
    tc -n "$space" qdisc change dev veth0 root tbf rate "$rate" burst 1600 latency 1s
  done
  run "${plan[@]}"
  parts=$(field parts)
  own_time
  before=$own busy=$(machine busy) all=$(machine all)
  for ((round = 1; round <= rounds || (round <= 3 * rounds && $(differ "$@")); round++)); do
    run "${plan[@]}" --parts "$parts"
    note virtual virtual_ms
    note predicted predicted_ms
    run "${request[@]}" --peers "${address[near]}" --key-file "$work/key" --bandwidth "$rate" --parts "$parts" "${pictures[@]}"
    note netem fastest_ms
    run ip netns exec "$space_a" "${request[@]}" --peers "$worker_address" --key-file "$work/key" --parts "$parts" "${pictures[@]}"
    note tbf fastest_ms
  done
  sleep 0.2 # sessions have been waited for by then, and count as their workers' time
  own_time
  others=$(awk "BEGIN {print 100 * ($(machine busy) - $busy - $own + $before) / ($(machine all) - $all)}")
  local line="$name, $rate, $parts parts:" unsteady=
  for way in "$@"; do
    line="$line $way ${least[$way]}"
    awk "BEGIN {exit !(${most[$way]} > 1.1 * ${least[$way]})}" && unsteady="$unsteady $way ${least[$way]}-${most[$way]} ms"
  done
  printf '%s ms; others had %.0f%% of the machine\n' "$line" "$others"
  [ "$(differ "$@")" = 0 ] && return
  if awk "BEGIN {exit !($others >= 5)}"; then
    unfit="$unfit; $name: other programs had $(printf %.0f "$others")% of this machine"
  elif [ -n "$unsteady" ]; then
    unfit="$unfit; $name: rounds of one way differ:$unsteady"
  elif processes_cost "$@"; then
    unfit="$unfit; $name: they differ by what processes cost without a slow link, too, $cost ms"
  else
    report "$name, $rate: they differ by more than 10%"
  fi
}
unfit=

# serve CHECKPOINT: a worker on the second core of each kind of link.
serve() {
  start_worker_in_b "$1" "$work/key" $first taskset -c "${cores[1]}"
  start_worker near 127.0.0.1:0 --key-file "$work/key" -c "$1"
  near=${listener[near]}
  taskset -cp "${cores[1]}" "$near" >/dev/null
  [ -z "$first" ] || renice -n -10 -p "$near" >/dev/null
}
dismiss() {
  stop_worker near
  near=
  kill -TERM "$worker_pid"
  wait "$worker_pid" || report "the worker: exit code $?"
  worker_pid=
}

# 1,024 tokens of 32 codes, in blocks small enough that computing and link take about as long.
make_picture "$work/1.ppm" 128
make_checkpoint "$work/model" vit-cifar 32 1024 2 128 4
serve "$work/model"
agree "6 x 192" "$work/model" 10mbit 5 virtual netem tbf
agree "6 x 192" "$work/model" 25mbit 5 virtual netem tbf
dismiss
rm -r "$work/model"

# The paper's size, where what the plan predicts counts as well.
make_checkpoint "$work/model" vit-base 32 1024 2 128 4
serve "$work/model"
rounds=$((rounds > 2 ? 2 : rounds))
agree "12 x 768" "$work/model" 10mbit 3 predicted virtual netem tbf
dismiss

[ $failed = 0 ] || exit 1
if [ -n "$unfit" ]; then
  echo "skipped: this machine is unfit to tell${unfit#;}"
  exit 77
fi
echo "links agree: ok"
