#!/bin/bash
# limit: 300
# Workers that are killed, stopped or restarted in the middle of an evaluation, by each policy: the run goes on over those that remain, or
# ends with an error that names the worker, soon; one that is back takes part again.
. tests/network/helpers.sh
make_checkpoint "$work/model" vit-cifar 8 256 4
make_cifar "$work/data"
scale=${TIME_SCALE:-1}

workers() { # ARGUMENTS...
  for name in a b; do start_worker $name "127.0.0.1:${port[$name]:-0}" -c "$work/model"; done
}
declare -A port
workers
for name in a b; do port[$name]=${address[$name]##*:}; done

start() { # ARGUMENTS...: an evaluation over the caller and two workers is under way
  rm -f "$work/out" "$work/err"
  "$program" eval -c "$work/model" -d cifar100 --data-dir "$work/data" --peers "${address[a]},${address[b]}" --batch 8 --threads 1 --json "$@" \
    >"$work/out" 2>"$work/err" &
  leader=$!
  for ((i = 0; i < 200; i++)); do grep -q "serving" "$work/a.log" && grep -q "serving" "$work/b.log" && break; sleep 0.05; done
  sleep $((scale / 2)).5
}
finish() { # WHAT CODE SECONDS
  local begin=$SECONDS code
  timeout $(($3 * scale)) tail --pid=$leader -f /dev/null || { kill -KILL $leader; report "$1: no end after $(($3 * scale)) s"; }
  wait $leader
  code=$?
  [ $code -eq "$2" ] || report "$1: exit code $code, expected $2"
}
says() { grep -q -e "$2" "$work/err" || report "$1: stderr lacks '$2'"; } # WHAT PATTERN
gives() { tail -1 "$work/out" | grep -q -e "$2" || report "$1: the answer lacks '$2'"; } # WHAT PATTERN
restart() { # NAME
  kill -KILL "${porter[$1]}" 2>/dev/null
  wait "${porter[$1]}" 2>/dev/null
  start_worker $1 "127.0.0.1:${port[$1]}" -c "$work/model"
}
both_anew() { for name in a b; do restart $name; done; }

for policy in rerun mask; do
  start --samples 300 --on-failure $policy
  kill -KILL "${porter[b]}"
  finish "$policy, killed" 0 60
  says "$policy, killed" "node 2 (worker ${address[b]}).*left behind"
  gives "$policy, killed" '"samples":300'
  [ $policy = mask ] || gives "$policy, killed" '"incomplete_answers":0'
  both_anew
done

start --samples 200 --on-failure abort
kill -KILL "${porter[a]}"
finish "abort, killed" 1 20
says "abort, killed" "node 1 (worker ${address[a]})"
both_anew

# One that is stopped says nothing: others wait for --timeout.
for policy in rerun mask; do
  start --samples 120 --on-failure $policy --timeout 2
  kill -STOP $(sessions_of a) "${porter[a]}"
  finish "$policy, stopped" 0 60
  says "$policy, stopped" "left behind"
  gives "$policy, stopped" '"samples":120'
  kill -CONT "${porter[a]}"
  both_anew
done

# Killed, and back: it takes part again, as the share of its tokens in the last request shows.
start --samples 400
kill -KILL "${porter[b]}"
sleep 0.5
restart b
finish "back again" 0 120
says "back again" "left behind"
says "back again" "3 of 3 devices"
gives "back again" '"samples":400'
both_anew

# Nobody is left.
"$program" eval -c "$work/model" -d cifar100 --data-dir "$work/data" --peers "${address[a]},${address[b]}" --no-local --batch 8 >"$work/out" 2>"$work/err" &
leader=$!
for ((i = 0; i < 200; i++)); do grep -q "serving" "$work/a.log" && grep -q "serving" "$work/b.log" && break; sleep 0.05; done
kill -KILL "${porter[a]}" "${porter[b]}"
finish "nobody left" 1 30
says "nobody left" "no device is left"
wait 2>/dev/null

# Processes of this machine, by the same policies.
start_local() { # ARGUMENTS...
  rm -f "$work/out" "$work/err"
  "$program" eval -c "$work/model" -d cifar100 --data-dir "$work/data" --nodes 3 --batch 8 --verbose --json --samples 200 "$@" >"$work/out" 2>"$work/err" &
  leader=$!
  wait_for_nodes 3
}
for policy in rerun mask; do
  start_local --on-failure $policy
  sleep 0.3
  kill -KILL "${pids[1]}"
  finish "--nodes, $policy" 0 60
  says "--nodes, $policy" "node 1 (pid ${pids[1]}).*left behind"
  gives "--nodes, $policy" '"samples":200'
  no_orphans
done
exit $failed
