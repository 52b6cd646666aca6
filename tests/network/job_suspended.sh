#!/bin/bash
# mostly waits
# A run that is suspended for longer than --timeout (Ctrl-Z) goes on where it stopped: nobody was silent, nobody was there.
. tests/network/helpers.sh
set -m # a process group of its own, as a shell gives it
make_checkpoint "$work/model" vit-cifar 8 256 4
make_cifar "$work/data"

"$program" eval --checkpoint "$work/model" --dataset cifar100 --data-dir "$work/data" --nodes 4 --batch 8 --samples 64 --timeout 1 --verbose \
  >"$work/out" 2>"$work/err" &
leader=$!
wait_for_nodes 4
for ((i = 0; i < 2; i++)); do
  kill -STOP -- -$leader
  sleep 3.5
  kill -CONT -- -$leader
  sleep 0.3
done
wait $leader || report "exit code"
grep -q '^64 images on 4 nodes' "$work/out" || report "no result"
no_orphans
exit $failed
