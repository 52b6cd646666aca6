#!/bin/bash
# limit: 240
# The nodes as processes of an MPI job: the answers of --nodes, exit codes, and nobody left behind.
. tests/network/helpers.sh

make_checkpoint "$work/model" vit-cifar 8 256 4
make_picture "$work/picture.ppm" 32
picture=$work/picture.ppm

"$program" --checkpoint "$work/model" --transport mpi "$picture" >"$work/out" 2>"$work/err"
code=$?
if grep -q 'built without MPI' "$work/err"; then
  [ $code -eq 1 ] && grep -q 'libopenmpi-dev' "$work/err" || report "without MPI: exit code $code"
  [ $failed -eq 0 ] || exit 1
  echo "skipped: the program was built without MPI"
  exit 77
fi
[ $code -eq 2 ] && grep -q 'mpirun -n' "$work/err" || report "outside of a job: exit code $code"
command -v mpirun >/dev/null || { echo "skipped: no mpirun"; exit $((failed ? failed : 77)); }

# Open MPI keeps at its end what it has taken, which the address sanitizer would count as leaks of ours.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

job() { # PROCESSES ARGUMENTS...
  local count=$1
  shift
  mpirun -n "$count" --oversubscribe --allow-run-as-root "$program" "$@" >"$work/out" 2>"$work/err" </dev/null
}
fails() { # NAME CODE WORDS ARGUMENTS...
  local name=$1 code=$2 words=$3 got
  shift 3
  timeout 60 mpirun -n 2 --oversubscribe --allow-run-as-root "$program" "$@" >"$work/out" 2>"$work/err" </dev/null
  got=$?
  [ $got -eq "$code" ] && grep -q -- "$words" "$work/err" || report "$name: exit code $got"
}
same() { # NAME PROCESSES ARGUMENTS...: as --nodes answers
  local name=$1 count=$2
  shift 2
  "$program" --nodes "$count" "$@" --json >"$work/out" 2>"$work/err" || report "$name with --nodes"
  answer_of "$work/out" >"$work/expected"
  [ -s "$work/expected" ] || report "$name with --nodes: no answer"
  job "$count" --transport mpi "$@" --json || report "$name: exit code"
  answer_of "$work/out" >"$work/got"
  cmp -s "$work/expected" "$work/got" || report "$name: another answer than --nodes $count"
}

# ---- answers
same "pictures" 4 --checkpoint "$work/model" --batch 1 "$picture" "$picture" "$picture"
same "three uneven processes" 3 --checkpoint "$work/model" --split 3,1,1 "$picture"
same "parts of blocks" 2 --checkpoint "$work/model" --parts 2 "$picture"
same "slow links" 2 --checkpoint "$work/model" --bandwidth 5mbit --latency 1ms "$picture"
make_checkpoint "$work/gpt2" tiny-gpt2 4 50 4
cp tests/golden/stories260K/tok512.bin "$work/gpt2/"
same "text" 4 --checkpoint "$work/gpt2" --prompt "Once upon a time there was a dog" -m 6
job 4 selftest --checkpoint "$work/model" --transport mpi || report "selftest: exit code"
grep -q '^passed$' "$work/out" || report "selftest: did not pass"

# ---- what cannot be
fails "selftest on others" 2 "among 4 nodes, and there are 2" selftest --transport mpi --checkpoint "$work/model"
fails "no such checkpoint" 1 "no such directory" --transport mpi --checkpoint "$work/nowhere/" "$picture"
fails "no such picture" 1 "nowhere.ppm" --transport mpi --checkpoint "$work/model" "$work/nowhere.ppm"
fails "with --nodes" 2 "processes of the job are the nodes" --transport mpi --checkpoint "$work/model" --nodes 2 "$picture"
fails "with --loss" 2 "needs --transport udp" --transport mpi --checkpoint "$work/model" --loss 5% "$picture"

# ---- a process that is killed ends the job
make_cifar "$work/data"
timeout 60 mpirun -n 3 --oversubscribe --allow-run-as-root "$program" eval --transport mpi --checkpoint "$work/model" --dataset cifar100 \
  --data-dir "$work/data" --batch 1 >"$work/out" 2>"$work/err" </dev/null &
run=$!
for ((i = 0; i < 100; i++)); do
  mapfile -t pids < <(pgrep -f "^$program eval --transport mpi --checkpoint $work/model")
  [ ${#pids[@]} -eq 4 ] && break
  sleep 0.1
done
sleep 2 # of the some eight seconds that the whole takes
[ ${#pids[@]} -eq 4 ] || report "a process that is killed: found ${#pids[@]} of 3 and the leader"
kill -KILL "${pids[2]}"
wait $run
code=$?
[ $code -ne 0 ] && [ $code -ne 124 ] || report "a process that is killed: the job went on, or never ended (exit code $code)"
no_orphans
exit $failed
