#!/bin/bash
# limit: 200
# Texts that are classified on four nodes of which one is killed or stopped: with abort the error names it; with rerun all texts are answered
# by those that remain; with mask as well, some without its tokens; no process stays behind. And a worker that is killed.
. tests/network/helpers.sh
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
make_checkpoint "$work/model" tiny-llama:2 4 50 4
cp tests/golden/stories260K/tok512.bin "$work/model/"
{ # classes are called as the checkpoint calls them, so that no warning is due
  printf 'text\tlabel\n'
  for ((i = 0; i < 300; i++)); do printf 'Once upon a time %d there was a dog who had %d bones\tLABEL_%d\n' $i $((i * 7)) $((i % 2)); done
} >"$work/few.tsv"
rounds() { head -1 "$work/few.tsv"; for ((i = 0; i < $1; i++)); do tail -n +2 "$work/few.tsv"; done; }
rounds 10 >"$work/short.tsv"
rounds 100 >"$work/texts.tsv"
data="tsv:$work/few.tsv:test=$work/texts.tsv" # 30,000 texts, all of them: --samples would choose others from each of two sets

evaluate() { # ARGUMENTS...: texts are being classified
  rm -f "$work/out" "$work/err"
  "$program" eval --checkpoint "$work/model" --dataset "$data" --json --verbose "$@" >"$work/out" 2>"$work/err" &
  leader=$!
}

# 3,000 texts are ten rounds of the same 300, and random weights are far from sure: the loss tells how many devices there were. Answers
# of one half each would have 0.69.
declare -A whole
for nodes in 2 3 4; do
  data="tsv:$work/few.tsv:test=$work/short.tsv" evaluate --nodes $nodes
  wait_for_nodes $nodes
  wait "$leader" || report "undisturbed on $nodes: exit code"
  whole[$nodes]=$(field .loss)
done
jq -ne '$two > 0.75 and $three > $two + 0.05 and $four > $three + 0.01' --argjson two "${whole[2]}" --argjson three "${whole[3]}" --argjson four "${whole[4]}" >"$work/checked" ||
  report "undisturbed: losses ${whole[*]}: they would tell nothing"

for node in 0 3; do
  evaluate --nodes 4
  wait_for_nodes 4
  computes "${pids[$node]}" 10
  kill -KILL "${pids[$node]}"
  wait "$leader"
  [ $? -eq 1 ] || report "node $node killed: exit code"
  grep -q "node $node (pid ${pids[$node]}) died: signal 9" "$work/err" || report "node $node killed: it is not named"
  no_orphans
done
evaluate --nodes 4 --timeout 2
wait_for_nodes 4
computes "${pids[1]}" 10
kill -STOP "${pids[1]}"
wait "$leader"
[ $? -eq 1 ] || report "node 1 stopped: exit code"
grep -q "node 1.* did not answer within 2 s" "$work/err" || report "node 1 stopped: it is not named"
no_orphans

# The loss is that of NODES up to the kill, and that of one less from then on: loss_within WHAT NODES
loss_within() {
  local less=${whole[$(($2 - 1))]}
  jq -ne '$loss > $less - 0.005 and $loss < $all + 0.005' --argjson loss "$(field .loss)" --argjson less "$less" --argjson all "${whole[$2]}" >/dev/null ||
    report "$1: loss $(field .loss), undisturbed ${whole[$2]} and with one node less $less"
}
for case in "rerun 1" "rerun 3" "mask 1" "mask 3"; do
  read -r policy node <<<"$case"
  evaluate --nodes 4 --on-failure "$policy"
  wait_for_nodes 4
  computes "${pids[$node]}" 10
  kill -KILL "${pids[$node]}"
  wait "$leader" || report "$case: exit code"
  grep -q "node $node (pid ${pids[$node]}).*continuing without it" "$work/err" || report "$case: the device that was lost is not named"
  json_holds '.samples == 30000'
  loss_within "$case" 4
  [ "$(field .incomplete_answers)" = 0 ] || [ "$case" = "mask 1" ] || report "$case: incomplete answers"
  no_orphans
done

# A worker, session and listener at once: the leader and the other worker go on.
start_worker a 127.0.0.1:0 --key-file "$work/key" --checkpoint "$work/model"
start_worker b 127.0.0.1:0 --key-file "$work/key" --checkpoint "$work/model"
evaluate --peers "${address[a]},${address[b]}" --key-file "$work/key"
for ((i = 0; i < 300; i++)); do
  read -ra pids < <(sessions_of b)
  [ ${#pids[@]} -eq 0 ] || break
  sleep 0.05
done
computes "${pids[0]}" 20
kill -KILL "${pids[0]}" "${listener[b]}"
wait "${listener[b]}" 2>/dev/null
wait "$leader" || report "worker killed: exit code"
grep -q "worker ${address[b]}).*continuing without it" "$work/err" || report "worker killed: it is not named"
json_holds '.samples == 30000 and .reruns >= 1 and .nodes[2].tokens == 0'
loss_within "worker killed" 3
stop_worker a
exit $failed
