#!/bin/bash
# limit: 200
# astra-serve on three processes, of which one is killed while many texts are decoded: all are answered, with the texts that one device makes,
# and what comes afterwards is answered by the two that are left.
. tests/network/helpers.sh
command -v curl >/dev/null || { echo "skipped: curl is not there"; exit 77; }
stories=tests/golden/stories260K
trap '[ -z "$server" ] || kill -KILL "$server" 2>/dev/null; rm -rf "$work"' EXIT
prompts=("Once upon a time" "The little dog" "One day, Tim" "She was very happy" "There was a big" "Lily and Ben" "Mom said" "In the park")
tokens=300

start_service --checkpoint "$stories" --nodes 3 --strategy single --on-failure rerun --sequences 16 --listen 127.0.0.1:0

ask() { # FILE PROMPT
  jq -n --arg prompt "$2" --argjson max "$tokens" '{model: "stories260K", prompt: $prompt, max_tokens: $max, temperature: 0}' |
    curl -sS -m 100 -o "$1" -w '%{http_code}' -H 'Content-Type: application/json' -d @- "$base/v1/completions" >"$1.status" 2>"$1.err"
}

mapfile -t pids < <(pgrep -P "$server")
[ ${#pids[@]} -eq 3 ] || report "${#pids[@]} processes, expected 3"
clients=()
for ((i = 0; i < 32; i++)); do
  ask "$work/answer-$i" "${prompts[i % 8]}" &
  clients+=($!)
done
for ((i = 0; i < 500; i++)); do
  grep -q . "$work"/answer-*.status 2>/dev/null && break # one is answered: the others are under way
  sleep 0.02
done
kill -KILL "${pids[1]}"
wait "${clients[@]}"
grep -q "died: signal 9" "$server_log" || report "nothing says that a process died"
for ((i = 0; i < 32; i++)); do
  [ "$(cat "$work/answer-$i.status")" = 200 ] || report "request $i: status $(cat "$work/answer-$i.status"): $(head -c 300 "$work/answer-$i")"
done
for ((p = 0; p < 8; p++)); do
  "$program" --checkpoint "$stories" --prompt "${prompts[p]}" --max-new-tokens "$tokens" --temperature 0 --nodes 1 --json -q >"$work/out" 2>"$work/single" ||
    report "astra-infer: $(cat "$work/single")"
  expected=$(tail -n 1 "$work/out" | jq -r ".prompts[0].text")
  for ((i = p; i < 32; i += 8)); do
    [ "$(jq -r '.choices[0].text' "$work/answer-$i")" = "$expected" ] || report "request $i: another text than one device makes"
  done
done
ask "$work/last" "Once upon a time"
[ "$(cat "$work/last.status")" = 200 ] || report "after that: status $(cat "$work/last.status")"
kill -TERM "$server"
wait "$server" || report "exit code $? at the end"
server=
no_orphans
exit $failed
