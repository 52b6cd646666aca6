#!/bin/bash
# mostly waits
# A run that is suspended for longer than --timeout (Ctrl-Z) goes on where it stopped: nobody was silent, nobody was there.
. tests/network/helpers.sh
set -m # a process group of its own, as a shell gives it, which nobody else ends
leader=
trap '[ -z "$leader" ] || kill -KILL -- -"$leader" 2>/dev/null; rm -rf "$work"' EXIT
make_checkpoint "$work/model" vit-cifar 8 256 4
make_cifar "$work/data" 100

# What takes this machine two seconds, or less if it was busy with other work at first: so that it is at work when it is suspended.
images=(eval --checkpoint "$work/model" --dataset cifar100 --data-dir "$work/data" --nodes 4 --batch 8)
"$program" "${images[@]}" --samples 64 --json >"$work/out" 2>"$work/err" || report "undisturbed"
many=$(($(field '.images_per_second | floor') * 2 + 300))
[ $many -le 10000 ] || many=10000

"$program" "${images[@]}" --samples $many --timeout 1 --verbose \
  >"$work/out" 2>"$work/err" &
leader=$!
wait_for_nodes 4
for ticks in 8 16; do # of the processor: it is at work, and goes on between
  computes "${pids[0]}" $ticks || report "no work to suspend"
  kill -STOP -- -$leader || report "it has ended before it was suspended"
  sleep 3.5
  kill -CONT -- -$leader
done
wait $leader || report "exit code"
leader=
grep -q "^$many images on 4 nodes" "$work/out" || report "no result"
no_orphans

# A service whose devices decode
command -v curl >/dev/null && command -v jq >/dev/null || { echo "skipped: a service: jq and curl are needed"; exit $failed; }
"${program%infer}serve" -c checkpoints/gpt2-mini-g8 --nodes 2 --listen "unix:$work/socket" --timeout 1 >"$work/out" 2>"$work/err" &
leader=$!
for ((i = 0; i < 300; i++)); do [ -S "$work/socket" ] && break; sleep 0.1; done
mapfile -t pids < <(pgrep -P $leader)
[ ${#pids[@]} = 2 ] || report "service: ${#pids[@]} devices"
curl -sS -m 100 --unix-socket "$work/socket" http://unix/v1/completions -H 'Content-Type: application/json' \
  -d '{"prompt": "a", "n": 64, "max_tokens": 100, "temperature": 1}' >"$work/answer" &
client=$!
decodes() { curl -sS --unix-socket "$work/socket" http://unix/metrics | grep -q '^astra_decoding{.*} [1-9]'; }
for ((i = 0; i < 300; i++)); do decodes && break; sleep 0.02; done
decodes || report "service: no text to suspend"
kill -STOP -- -$leader || report "service: it has ended"
sleep 3.5
kill -CONT -- -$leader
wait $client || report "the client has no answer"
kill $leader
wait $leader || report "service: exit code"
leader=
jq -e '.usage.completion_tokens > 1000' "$work/answer" >"$work/checked" || report "service: no answer"
! grep -q 'sent no token' "$work/err" || report "service: its own absence is a device's silence"
no_orphans
exit $failed
