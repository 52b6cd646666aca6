#!/bin/bash
# A node that is killed in the middle of an evaluation: the error names it, exit code 1, soon, and no process stays behind. Likewise when
# the leader itself is killed or interrupted.
. tests/network/helpers.sh
make_checkpoint "$work/model" vit-cifar 8 256 4
make_cifar "$work/data"

start() {
  rm -f "$work/out" "$work/err"
  "$program" eval --checkpoint "$work/model" --dataset cifar100 --data-dir "$work/data" --nodes 4 --batch 16 --verbose "$@" \
    >"$work/out" 2>"$work/err" &
  leader=$!
  wait_for_nodes 4
}

for node in 2 0; do
  start
  kill -KILL "${pids[$node]}"
  begin=$SECONDS
  wait "$leader"
  code=$?
  [ $code -eq 1 ] || report "exit code $code after node $node was killed, expected 1"
  [ $((SECONDS - begin)) -le $((10 * ${TIME_SCALE:-1})) ] || report "took $((SECONDS - begin)) s"
  grep -q "node $node (pid ${pids[$node]}) died: signal 9" "$work/err" || report "the error does not name node $node and its end"
  no_orphans
done

start
kill -KILL "$leader"
wait "$leader" 2>/dev/null
no_orphans # nobody told them: they notice by themselves

for signal in INT TERM; do
  start
  kill -$signal "$leader"
  wait "$leader"
  code=$?
  [ $code -eq 1 ] || report "exit code $code after SIG$signal, expected 1"
  grep -q interrupted "$work/err" || report "SIG$signal is not mentioned"
  no_orphans
done
exit $failed
