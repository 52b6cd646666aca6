#!/bin/bash
# limit: 200
# Drafts of an idle device, between real processes: texts are the same with them and without, some drafts are right, and the drafter may hang or
# die in the middle of a text. A device without a copy to draft with is not asked.
. tests/network/helpers.sh
command -v curl >/dev/null || { echo "skipped: curl is not there"; exit 77; }
serve=$bin/astra-serve
model=checkpoints/gpt2-mini
workers=()
finish() {
  for pid in $server "${workers[@]}"; do { kill "$pid" && wait "$pid"; } 2>/dev/null; done
  rm -rf "$work"
}
trap finish EXIT
prompts=("The history of the city" "In 1990 the first" "A computer is a machine that" "The river flows")

# start OPTION...: a service behind $work/socket
start() { start_service --checkpoint gpt2="$model" --strategy single --threads 1 --cache-type float32 --listen "unix:$work/socket" --no-log "$@"; }

stop() {
  kill -TERM "$server"
  wait "$server" || report "exit code $? at the end"
  server=
}

# ask PROMPT NEW [STREAM]
ask() {
  jq -n --arg prompt "$1" --argjson max "$2" --argjson stream "${3:-false}" \
    '{model: "gpt2", prompt: $prompt, max_tokens: $max, temperature: 0, stream: $stream}' |
    curl -sSN -m 60 --unix-socket "$work/socket" -H 'Content-Type: application/json' -d @- http://localhost/v1/completions
}
metric() { curl -sS --unix-socket "$work/socket" http://localhost/metrics | awk -v name="$1" '$1 ~ "^" name "($|[{])" {sum += $2} END {print sum + 0}'; }

# compare NAME: all prompts
compare() {
  for p in 0 1 2 3; do
    ask "${prompts[p]}" 120 | jq -r '.choices[0].text' >"$work/text"
    cmp -s "$work/text" "$work/expected-$p" || report "$1: prompt $p: another text"
  done
}

start --nodes 1 --speculate off
for p in 0 1 2 3; do ask "${prompts[p]}" 120 | jq -r '.choices[0].text' >"$work/expected-$p"; done
ask "${prompts[0]}" 480 | jq -r '.choices[0].text' >"$work/long"
[ "$(wc -c <"$work/long")" -gt 500 ] || report "the text is too short to be interrupted"
stop

start --nodes 2 --speculate draft --on-failure rerun
for ((i = 0; i < 10; i++)); do # until the drafter was in time
  compare "two devices"
  right=$(metric astra_drafted_tokens_total)
  [ "$right" -lt 20 ] || break
done
[ "$right" -ge 20 ] || report "$right drafts were right, of $(metric astra_drafts_total)"

# The device that decodes is the last one; the other one drafts.
mapfile -t pids < <(pgrep -P "$server")
[ ${#pids[@]} -eq 2 ] || report "${#pids[@]} processes, expected 2"
interrupt() { # SIGNAL
  ask "${prompts[0]}" 480 true >"$work/stream" &
  local client=$!
  for ((i = 0; i < 1000; i++)); do
    [ "$(grep -c '^data: {' "$work/stream")" -lt 30 ] || break
    sleep 0.005
  done
  kill "-$1" "${pids[0]}"
  wait "$client" || report "$1: the stream has failed"
  sed -n 's/^data: {/{/p' "$work/stream" | jq -rj '.choices[0].text // ""' >"$work/text"
  echo >>"$work/text"
  cmp -s "$work/text" "$work/long" || report "$1 in the middle: another text"
}
interrupt STOP
kill -CONT "${pids[0]}"
compare "after a pause of the drafter"
interrupt KILL
compare "after the drafter's death"
no_more=$(metric astra_drafts_total)
ask "${prompts[1]}" 120 >/dev/null
[ "$(metric astra_drafts_total)" = "$no_more" ] || report "one device alone checks drafts"
stop
no_orphans

# Workers: one that can draft, and the one that decodes. Without --drafts nobody does.
for w in a b; do
  "$program" worker -c "$model" --cache-type float32 --listen "unix:$work/$w" --threads 1 $([ "$w" = b ] || echo --drafts) -q 2>"$work/worker-$w" &
  workers+=($!)
done
for ((i = 0; i < 100; i++)); do [ ! -S "$work/a" ] || [ ! -S "$work/b" ] || break; sleep 0.1; done
start --peers "unix:$work/a,unix:$work/b" --no-local --speculate draft
for ((i = 0; i < 10; i++)); do
  compare "two workers"
  right=$(metric astra_drafted_tokens_total)
  [ "$right" -lt 20 ] || break
done
[ "$right" -ge 20 ] || report "a worker: $right drafts were right, of $(metric astra_drafts_total)"
stop
start --peers "unix:$work/b,unix:$work/a" --no-local --speculate draft # b would draft for a
compare "a worker without a copy"
[ "$(metric astra_drafts_total)" = 0 ] || report "a worker without a copy has drafted"
stop

# What cannot be is refused.
"$serve" --checkpoint gpt2="$model" --nodes 1 --speculate draft --listen "unix:$work/socket" >"$work/out" 2>"$work/err"
[ $? -eq 2 ] || report "--speculate draft on one device: exit code"
grep -q "a device drafts for another one" "$work/err" || report "--speculate draft on one device: the reason"
"$serve" --checkpoint gpt2="$model" --nodes 2 --weights int4 --drafts --strategy single --listen "unix:$work/socket" >"$work/out" 2>"$work/err"
[ $? -eq 2 ] && grep -q "the matrices have few bits already" "$work/err" || report "a copy of 4 bits of 4 bits"
make_checkpoint "$work/eyes" tiny 4 50 2
timeout 60 "$program" worker -c "$work/eyes" --drafts --listen "unix:$work/door" >"$work/out" 2>"$work/err"
[ $? -eq 2 ] && grep -q "eyes is a model of images, of which nothing can be drafted" "$work/err" || report "a worker that drafts images"
timeout 60 "$serve" -c "$work/eyes" --nodes 2 --drafts --listen "unix:$work/socket" >"$work/out" 2>"$work/err"
[ $? -eq 2 ] && grep -q "eyes is a model of images, of which nothing can be drafted" "$work/err" || report "a service that drafts images"
exit $failed
