#!/bin/bash
# limit: 600
# Workers that are killed, stopped or restarted in the middle of an evaluation, by each policy, over streams and datagrams: the run goes on
# over those that remain, which share its tokens, or ends with an error that names the worker, soon; one that is back takes part again.
. tests/network/helpers.sh
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
make_checkpoint "$work/model" vit-cifar 8 256 4
make_cifar "$work/data" 100
scale=${TIME_SCALE:-1}

declare -A port
for name in a b; do
  start_worker $name 127.0.0.1:0 --key-file "$work/key" -c "$work/model"
  port[$name]=${address[$name]##*:}
done

# What takes this machine three seconds, or one if it was busy with other work at first: so that a blow falls in the middle.
"$program" eval -c "$work/model" -d cifar100 --data-dir "$work/data" --peers "${address[a]},${address[b]}" --key-file "$work/key" --batch 8 --threads 1 --samples 64 --json \
  >"$work/out" 2>"$work/err" || report "undisturbed"
rate=$(tail -1 "$work/out" | sed 's/.*"images_per_second":\([0-9]*\).*/\1/')
many=$((rate * 3 + 50))
[ $many -le 10000 ] || many=10000

start() { # ARGUMENTS...: an evaluation over the caller and two workers is under way
  rm -f "$work/out" "$work/err"
  until_free a b
  "$program" eval -c "$work/model" -d cifar100 --data-dir "$work/data" --peers "${address[a]},${address[b]}" --key-file "$work/key" --batch 8 --threads 1 --json "$@" \
    >"$work/out" 2>"$work/err" &
  leader=$!
  for name in a b; do
    for ((i = 0; i < 600; i++)); do [ -z "$(sessions_of $name)" ] || break; sleep 0.05; done
    computes "$(session_of $name)" 15
  done
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
  kill -KILL "${listener[$1]}" 2>/dev/null
  wait "${listener[$1]}" 2>/dev/null
  start_worker $1 "127.0.0.1:${port[$1]}" --key-file "$work/key" -c "$work/model"
}
both_anew() { for name in a b; do restart $name; done; }
# The tokens that each node had in the last answer, of 64.
shares() { [ "$(tail -1 "$work/out" | grep -o '"tokens":[0-9]*' | sed 's/.*://' | xargs)" = "$2" ] || report "$1: not the tokens $2"; } # WHAT COUNTS

for policy in rerun mask; do
  for transport in "--transport tcp" "--transport udp" "--transport udp --reliability retransmit"; do
    # shellcheck disable=SC2086
    start --samples $many --on-failure $policy $transport
    kill -KILL "${listener[b]}"
    finish "$policy $transport, killed" 0 60
    says "$policy $transport, killed" "node 2 (worker ${address[b]}).*continuing without it"
    gives "$policy $transport, killed" "\"samples\":$many,"
    shares "$policy $transport, killed" "32 32 0"
    [ $policy = mask ] || gives "$policy $transport, killed" '"incomplete_answers":0'
    restart b
  done
done

start --samples $many --on-failure abort
kill -KILL "${listener[a]}"
finish "abort, killed" 1 20
says "abort, killed" "node 1 (worker ${address[a]})"
both_anew

# One that is stopped says nothing: others wait for --timeout.
for policy in rerun mask; do
  for transport in tcp udp; do
    start --samples $many --on-failure $policy --timeout 2 --transport $transport
    kill -STOP $(sessions_of a) "${listener[a]}"
    finish "$policy over $transport, stopped" 0 60
    says "$policy over $transport, stopped" "node 1 (worker ${address[a]}).*continuing without it"
    gives "$policy over $transport, stopped" "\"samples\":$many,"
    shares "$policy over $transport, stopped" "32 0 32"
    kill -CONT "${listener[a]}"
    both_anew
  done
done

# One that is stopped for less than the leader's idle timeout, and for longer than the others': its answer comes, and theirs lacks its tokens.
start --samples $many --on-failure mask --timeout 2
stopped=$(sessions_of a)
kill -STOP $stopped
sleep 2.6
kill -CONT $stopped
finish "mask, stopped for a while" 0 60
says "mask, stopped for a while" "node 1 (worker ${address[a]}).*\(went on without\|continuing without it\)"
json_holds '.incomplete_answers > 0 and .incomplete_answers < 5'
shares "mask, stopped for a while" "22 21 21"

# A request's own time is over before the silence is: an error in time, though a rerun was allowed.
start --samples $many --timeout 60 --request-timeout 2
kill -STOP $(sessions_of a) "${listener[a]}"
finish "a request's time" 1 20
says "a request's time" "longer than --request-timeout 2"
kill -CONT "${listener[a]}"
both_anew

# Killed and started again, or stopped and let go on: it takes part and computes again.
for how in killed stopped; do
  start --timeout 2
  if [ $how = killed ]; then
    restart b
  else
    kill -STOP $(sessions_of b) "${listener[b]}"
    for ((i = 0; i < 200 * scale; i++)); do ! grep -q "continuing without it" "$work/err" || break; sleep 0.1; done
    kill -CONT $(sessions_of b) "${listener[b]}"
  fi
  for ((i = 0; i < 300 * scale; i++)); do ! grep -q "3 of 3 devices" "$work/err" || break; sleep 0.1; done
  says "$how, back again" "node 2 (worker ${address[b]}).*continuing without it"
  says "$how, back again" "now using 3 of 3 devices"
  computes "$(session_of b)" 10 || report "$how, back again: it does nothing"
  kill -INT $leader
  finish "$how, back again" 1 20
  says "$how, back again" "interrupted"
  both_anew
done

# Tokens of a text go to those that are there, which are not the first ones.
make_checkpoint "$work/text" tiny-llama 2 64 3
cp tests/golden/stories260K/tok512.bin "$work/text/"
start_worker text 127.0.0.1:0 --key-file "$work/key" -c "$work/text"
"$program" -c "$work/text" --threads 1 --peers "127.0.0.1:1,${address[text]}" --key-file "$work/key" --prompt "Once upon a time" -m 3 --json >"$work/out" 2>"$work/err" || report "a text without node 1"
json_holds '.prompts[0] | .nodes_used == 2 and .decoder == 2'
stop_worker text

# Nobody is left.
"$program" eval -c "$work/model" -d cifar100 --data-dir "$work/data" --peers "${address[a]},${address[b]}" --key-file "$work/key" --no-local --batch 8 >"$work/out" 2>"$work/err" &
leader=$!
for ((i = 0; i < 600; i++)); do grep -q "serving" "$work/a.log" && grep -q "serving" "$work/b.log" && break; sleep 0.05; done
kill -KILL "${listener[a]}" "${listener[b]}"
finish "nobody left" 1 30
says "nobody left" "no device is left"
wait 2>/dev/null

# Processes of this machine, by the same policies.
start_local() { # ARGUMENTS...
  rm -f "$work/out" "$work/err"
  "$program" eval -c "$work/model" -d cifar100 --data-dir "$work/data" --nodes 3 --batch 8 --verbose --json --samples $many "$@" >"$work/out" 2>"$work/err" &
  leader=$!
  wait_for_nodes 3
}
for policy in rerun mask; do
  start_local --on-failure $policy
  computes "${pids[1]}" 10
  kill -KILL "${pids[1]}"
  finish "--nodes, $policy" 0 60
  says "--nodes, $policy" "node 1 (pid ${pids[1]}).*continuing without it"
  gives "--nodes, $policy" "\"samples\":$many,"
  shares "--nodes, $policy" "32 0 32"
  no_orphans
done
start_local --on-failure mask --timeout 2
computes "${pids[1]}" 10
kill -STOP "${pids[1]}"
finish "--nodes, mask, stopped" 0 60
says "--nodes, mask, stopped" "node 1 (pid ${pids[1]}).*continuing without it"
! grep -q -e "pid 0" -e "was silent for too long: others went on" "$work/err" || report "--nodes, mask, stopped: a warning about a process that it has left behind"
no_orphans
exit $failed
