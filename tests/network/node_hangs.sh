#!/bin/bash
# mostly waits
# A node that is stopped in the middle of an evaluation: the error names it after --timeout, exit code 1, and no process stays behind.
. tests/network/helpers.sh
make_checkpoint "$work/model" vit-cifar 8 256 4
make_cifar "$work/data"

for node in 1 3; do
  rm -f "$work/out" "$work/err"
  "$program" eval --checkpoint "$work/model" --dataset cifar100 --data-dir "$work/data" --nodes 4 --batch 16 --timeout 2 --verbose \
    >"$work/out" 2>"$work/err" &
  leader=$!
  wait_for_nodes 4
  kill -STOP "${pids[$node]}"
  begin=$SECONDS
  wait "$leader"
  code=$?
  [ $code -eq 1 ] || report "exit code $code, expected 1"
  [ $((SECONDS - begin)) -le $((10 * ${TIME_SCALE:-1})) ] || report "took $((SECONDS - begin)) s with a deadline of 2 s"
  grep -q "node $node.* did not answer within 2 s" "$work/err" || report "the error does not name node $node"
  grep -q "pid ${pids[$node]}" "$work/err" || report "the error does not name its process"
  no_orphans
done
exit $failed
