#!/bin/bash
# astra-serve with curl: the interface of OpenAI's API whole and as a stream, tokens, images, errors with their field, keys, rates, limits of size
# and time, metrics, the log, and the end by a signal.
# Usage: tests/cli/astra-serve.sh; programs in $BUILD/bin (build/bin). limit: 240
stories=$PWD/tests/golden/stories260K
. tests/cli/helpers.sh astra-serve
command -v curl >/dev/null || { echo "skipped: curl is not there"; exit 77; }

server=
stop() { [ -z "$server" ] || { kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; server=; }; }
trap 'stop; rm -rf "$work"' EXIT

# serve NAME ARGUMENTS...: starts it on a free port, waits until it listens, sets base
serve() {
  name=$1
  shift
  "$program" --listen 127.0.0.1:0 "$@" 2>"$work/log" >"$work/stdout" &
  server=$!
  for _ in $(seq 600); do
    base=$(sed -nE 's/.*listening on (https?:[^ ]*)$/\1/p' "$work/log")
    [ -z "$base" ] || return 0
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  cp "$work/log" "$work/err"; : >"$work/out"
  report "it does not listen"
  exit 1
}
# post PATH JSON [CURL ARGUMENTS...]: the body to out, the status to $status, the head to head
post() { status=$(curl -sS -m 60 -o "$work/out" -D "$work/head" -w '%{http_code}' "$base$1" -H 'Content-Type: application/json' -d "$2" "${@:3}" 2>"$work/err"); }
get() { status=$(curl -sS -m 60 -o "$work/out" -D "$work/head" -w '%{http_code}' "$base$1" "${@:2}" 2>"$work/err"); }
is() { [ "$status" = "$1" ] || report "status $status, expected $1"; }
that() { jq -e "$1" "$work/out" >"$work/jq" 2>&1 || report "$1 does not hold"; } # JQ CONDITION
head_has() { grep -qi -e "$1" "$work/head" || report "the head lacks '$1'"; }

expect "no checkpoint" 2; err "checkpoint DIR is missing"
expect "two of a name" 2 -c a/x -c b/x; err "two models are called x"
expect "half of TLS" 2 -c "$stories" --tls-key x; err "give both"

serve "texts" -c "$stories" --nodes 1 --max-body 100k --max-header 4k
name="models"; get /v1/models; is 200; that '.data[0].id == "stories260K" and .data[0].max_model_len == 512'
name="health"; get /health; is 200
name="ready"; get /ready; is 200
name="page"; get /; is 200; head_has 'content-security-policy'; head_has '^etag'
name="completion"; post /v1/completions '{"model": "stories260K", "prompt": "", "max_tokens": 60, "temperature": 0}'; is 200
that '.choices[0].finish_reason == "length" and .usage.completion_tokens == 60 and .object == "text_completion"'
jq -rj '.choices[0].text' "$work/out" >"$work/text"
cmp -s "$work/text" <(head -c "$(stat -c %s "$work/text")" "$stories/golden_stdout.txt") || report "another text than the model is known to tell"
name="stream"; post /v1/completions '{"prompt": "", "max_tokens": 60, "temperature": 0, "stream": true, "stream_options": {"include_usage": true}}'; is 200
head_has 'text/event-stream'
[ "$(tail -n 2 "$work/out" | head -n 1)" = "data: [DONE]" ] || report "no [DONE] at the end"
sed -n 's/^data: {/{/p' "$work/out" | jq -rj '.choices[0].text // ""' | cmp -s - "$work/text" || report "another text than at once"
sed -n 's/^data: {/{/p' "$work/out" | tail -n 1 >"$work/last"; mv "$work/last" "$work/out"; that '.choices == [] and .usage.completion_tokens == 60'
name="end of the service"; kill -TERM "$server"; wait "$server"; code=$?; server=; [ $code = 0 ] || report "exit code $code"
grep -q '"path":"/v1/completions","status":200' "$work/log" || report "no line in the log"

[ $failed = 0 ] && echo "astra-serve: ok"
exit $failed
