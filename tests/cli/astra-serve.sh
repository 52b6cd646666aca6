#!/bin/bash
# astra-serve with curl: the interface of OpenAI's API whole and as a stream, tokens, images, errors with their field, keys, rates, TLS, limits of size
# and time, clients that leave, metrics, the log, and the end by a signal.
# Usage: tests/cli/astra-serve.sh; programs in $BUILD/bin (build/bin). limit: 300
stories=$PWD/tests/golden/stories260K pictures=$PWD/datasets/pictures checkpoints=$PWD/checkpoints classifier=$PWD/checkpoints/vit-cifar-g8
. tests/cli/helpers.sh astra-serve
command -v curl >/dev/null || { echo "skipped: curl is not there"; exit 77; }

server=
stop() { [ -z "$server" ] || { kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; server=; }; }
trap 'stop; rm -rf "$work"' EXIT

# serve NAME ARGUMENTS...: starts it on a free port, waits until it listens, sets base and port
serve() {
  name=$1
  shift
  stop
  : >"$work/log" # what the service before has said is no sign of this one
  "$program" --listen 127.0.0.1:0 "$@" 2>"$work/log" >"$work/stdout" &
  server=$!
  for _ in $(seq 900); do
    base=$(sed -nE 's/.*listening on (https?:[^ ]*)$/\1/p' "$work/log") port=${base##*:}
    [ -z "$base" ] || return 0
    kill -0 "$server" 2>/dev/null || break
    sleep 0.1
  done
  cp "$work/log" "$work/err"; : >"$work/out"
  report "it does not listen"
  exit 1
}
# get PATH [CURL ARGUMENTS...]: the body to out, the head to head, the status to $status
get() { status=$(curl -sS -m 60 -o "$work/out" -D "$work/head" -w '%{http_code}' "$base$1" "${@:2}" 2>"$work/err"); }
post() { get "$1" -H 'Content-Type: application/json' -d "$2" "${@:3}"; } # PATH JSON [CURL ARGUMENTS...]
is() { [ "$status" = "$1" ] || report "status $status, expected $1"; }
that() { jq -e "$1" "$work/out" >"$work/jq" 2>&1 || report "$1 does not hold"; } # JQ CONDITION
head_has() { grep -qi -e "$1" "$work/head" || report "the head lacks '$1'"; }
events() { sed -n 's/^data: {/{/p' "$work/out"; }
# raw TEXT SECONDS: what comes back on a connection after these bytes (as printf has them), to out; sets took
raw() {
  local start=$EPOCHREALTIME
  exec 3<>"/dev/tcp/127.0.0.1/$port"
  (printf "$1" >&3) # in a process of its own: a server that has closed the connection ends it by SIGPIPE
  timeout "$2" cat <&3 >"$work/out" 2>/dev/null
  exec 3<&- 3>&-
  took=$(awk "BEGIN { print $EPOCHREALTIME - $start }")
}
# Waits until JQ holds of /v1/cluster
settles() {
  for _ in $(seq 100); do
    get /v1/cluster
    jq -e "$1" "$work/out" >/dev/null 2>&1 && return
    sleep 0.1
  done
  report "$1 does not come true"
}

# ---- the command line
expect "no checkpoint" 2; err "checkpoint DIR is missing"
expect "a name for nothing" 2 -c a=; err "checkpoint: '' is not accepted"
for time in header body stall; do expect "no time for $time" 2 -c "$stories" --$time-timeout 0s; err "$time-timeout 0: give a time above it"; done
expect "images of a language model" 2 -c "$stories" --layout raster; err "layout is for a model that classifies images; .* is a language model"
expect "tokens of images" 2 -c "$classifier" --max-context 8; err "max-context is for"
for option in "chat-template x" "sequences 4" "cache-memory 1G" "speculate lookup"; do
  # shellcheck disable=SC2086
  expect "--$option of images" 2 -c "$classifier" --nodes 1 --listen "unix:$work/none/socket" --$option
  err "--${option% *} is for a language model; .*vit-cifar-g8 is a model that classifies images"
done
expect "parts of a prompt" 2 -c "$stories" --nodes 1 --listen "unix:$work/none/socket" --parts 4; err "parts 4: the blocks of a prompt are not computed in parts"
expect "a context that the model does not have" 2 -c "$stories" --nodes 1 --listen "unix:$work/none/socket" --max-context 9999
err "stories260K: --max-context 9999: the model takes at most 512 tokens"
expect "a strategy that cannot decode" 2 -c "$stories" --nodes 2 --strategy sp; err "strategy sp .*cannot continue a prompt"
expect "two of a name" 2 -c a/x -c b/x; err "two models are called x"
for given in $'a/m\xffx' $'m\xff=a/x' "$(head -c 126 /dev/zero | tr '\0' m)é"; do expect "a name that is no UTF-8" 2 -c "$given"; err "is not UTF-8: rename the directory, or give another name"; done
expect "another name for it" 1 -c $'x=nowhere/m\xffx'; err 'nowhere/m.*x'
expect "half of TLS" 2 -c "$stories" --tls-key x; err "give both"
expect "peers and two models" 2 -c a/x -c b/y --peers unix:x; err "one --checkpoint"
expect "no such model" 1 -c nowhere/x; err "nowhere/x"
expect "an address that is none" 2 -c "$stories" --listen a:b:c; err "--listen"
expect "the place of workers" 2 -c "$stories" --listen local; err "listen local is where a worker"
expect "too large bodies" 2 -c "$stories" --max-body 5G; err "max-body: from 1k to 4G; 5368709120 bytes were given$"
expect "bodies of 32 bytes" 2 -c "$stories" --max-body 32; err "max-body: from 1k to 4G; 32 bytes were given: was a unit left out, as in 32M?$"
expect "small headers" 2 -c "$stories" --max-header 16; err "max-header: from 1k to 1M; 16 bytes were given: was a unit left out"
expect "the end of options for links" 2 --model x; err "unknown option --model; see --help"
expect "an address with a scheme" 2 -c "$stories" --listen http://127.0.0.1:8080; err "listen: .http://127.0.0.1:8080. is not an address: a scheme such as http:// is not part of one"
for origin in x example.org https://example.org/ https:// 'https://a b'; do expect "$origin as an origin" 2 -c "$stories" --cors "$origin"; err "cors .*: give an origin"; done
printf 'short\n' >"$work/keys"
expect "a short key" 1 -c "$stories" --api-key-file "$work/keys"; err "line 1: a key of 5 characters"
chmod 440 "$work/keys"
expect "keys of the group" 1 -c "$stories" --api-key-file "$work/keys"; err "keys can be read by other users: chmod 600"
CREDENTIALS_DIRECTORY=$work expect "a credential of systemd" 1 -c "$stories" --api-key-file "$work/keys"
! grep -q "other users" "$work/err" || report "it is called readable by others"
chmod 444 "$work/keys"
CREDENTIALS_DIRECTORY=$work expect "a credential that all can read" 1 -c "$stories" --api-key-file "$work/keys"; err "can be read by other users"
printf 'not pem' >"$work/pem"
expect "no certificate" 1 -c "$stories" --nodes 1 --listen 127.0.0.1:0 --tls-key "$work/pem" --tls-certificate "$work/pem"; err "PEM"

# ---- texts
serve "texts" -c "$stories" --nodes 1 --drain $((30 * ${TIME_SCALE:-1}))s --max-body 100k --max-header 4k --header-timeout 1s --body-timeout 1500ms --cors https://example.org
expect "a port in use" 1 -c "$stories" --nodes 1 --listen "127.0.0.1:$port"; err "in use; end the program that listens there, or choose another"
name="models"; get /v1/models; is 200; that '.data[0].id == "stories260K" and .data[0].max_model_len == 512'; jq -c '.data[0]' "$work/out" >"$work/listed"
for encoded in stories260K %73tories%32%360K 'stories260K?x=y'; do
  name="model $encoded"; get "/v1/models/$encoded"; is 200; cmp -s "$work/out" <(tr -d '\n' <"$work/listed") || report "another object than in the list"
done
for unknown in stories260 stories260K/ %00 %ff "$(printf '%%41%.0s' {1..400})" ''; do
  name="no model ${unknown:0:20}"; get "/v1/models/$unknown"; is 404; that '.error.code == "model_not_found" and (.error.message | startswith("there is no model"))'
done
name="a model, another method"; get /v1/models/stories260K -X DELETE; is 405; head_has '^allow: GET'
name="a model, preflight"; get /v1/models/stories260K -X OPTIONS -H 'Origin: https://example.org'; is 204
name="health"; get /health; is 200
name="ready"; get /ready; is 200
name="page"; get /; is 200; head_has 'content-security-policy'; tag=$(sed -nE 's/^ETag: (.*)\r$/\1/pI' "$work/head")
name="head alone"; get /v1/models -I -H 'X-Request-Id: head-alone'; is 200
name="page again"; get / -H "If-None-Match: $tag"; is 304
name="completion"; post /v1/completions '{"model": "stories260K", "prompt": "", "max_tokens": 60, "temperature": 0, "user": "me", "whatever": {}}'; is 200
that '.choices[0].finish_reason == "length" and .usage.completion_tokens == 60 and .object == "text_completion"'
jq -rj '.choices[0].text' "$work/out" >"$work/text"
[ "$(stat -c %s "$work/text")" -gt 100 ] || report "60 tokens of $(stat -c %s "$work/text") bytes"
cmp -s "$work/text" <(head -c "$(stat -c %s "$work/text")" "$stories/golden_stdout.txt") || report "another text than the model is known to tell"
name="a longer stream"; post /v1/completions '{"prompt": "", "max_tokens": 400, "temperature": 0, "stream": true}'; is 200
[ "$(events | wc -l)" -ge 10 ] || report "not as it comes" # a busy machine joins tokens: of 60 some 3 events may be left
name="stream"; post /v1/completions '{"prompt": "", "max_tokens": 60, "temperature": 0, "stream": true, "stream_options": {"include_usage": true}}'; is 200
head_has 'text/event-stream'
[ "$(tail -n 2 "$work/out" | head -n 1)" = "data: [DONE]" ] || report "no [DONE] at the end"
events | jq -rj '.choices[0].text // ""' | cmp -s - "$work/text" || report "another text than at once"
events | tail -n 1 >"$work/last"; cp "$work/last" "$work/out"; that '.choices == [] and .usage.completion_tokens == 60'
name="stop"; post /v1/completions '{"prompt": "", "max_tokens": 60, "temperature": 0, "stop": ["Lily", "never"]}'; is 200
that '.choices[0].finish_reason == "stop" and (.choices[0].text | endswith("girl named "))'
name="seed"; post /v1/completions '{"prompt": "The", "max_tokens": 20, "temperature": 1, "seed": 7, "n": 2}'; cp "$work/out" "$work/first"
that '.choices | length == 2 and .[0].text != .[1].text and .[1].index == 1'
post /v1/completions '{"prompt": "The", "max_tokens": 20, "temperature": 1, "seed": 7, "n": 2}'
cmp -s <(jq .choices "$work/out") <(jq .choices "$work/first") || report "the same seed, another text"
name="prompts"; post /v1/completions '{"prompt": ["Once", "The dog"], "max_tokens": 3, "temperature": 0}'; that '.choices | length == 2'
name="ids"; post /tokenize '{"prompt": "Once upon a time"}'; is 200; ids=$(jq -c .tokens "$work/out")
post /v1/completions "{\"prompt\": $ids, \"max_tokens\": 8, \"temperature\": 0}"; one=$(jq .choices[0].text "$work/out")
post /v1/completions '{"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}'; that ".choices[0].text == $one"
post /detokenize "{\"tokens\": $ids}"; that '.prompt == "Once upon a time"'
name="special tokens"; for special in false true; do
  post /v1/completions "{\"prompt\": \"a\\n<s>\\nb\", \"parse_special\": $special, \"max_tokens\": 1}"; is 200; cp "$work/out" "$work/special.$special"
done
[ "$(jq .usage.prompt_tokens "$work/special.true")" -lt "$(jq .usage.prompt_tokens "$work/special.false")" ] || report "a special token is plain text"
name="chat"; post /v1/chat/completions '{"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "max_completion_tokens": 4, "temperature": 0}'; is 200
that '.object == "chat.completion" and .choices[0].message.role == "assistant" and .choices[0].finish_reason == "length" and .usage.completion_tokens == 4'
name="chat, stream"; post /v1/chat/completions '{"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "temperature": 0, "stream": true}'
events | jq -s '{first: .[0].choices[0].delta.role, last: .[-1].choices[0].finish_reason}' >"$work/last"; cp "$work/last" "$work/out"
that '.first == "assistant" and .last == "length"'

# ---- what is refused, and which field is named
refused() { name="refused: $1"; post "$2" "$1"; is "$3"; that ".error.param == $4 and (.error.message | length) > 10"; } # JSON PATH STATUS PARAM
refused '{"prompt": "a", "temperature": "hot"}' /v1/completions 400 '"temperature"'
refused '{"prompt": "a", "max_tokens": -1}' /v1/completions 400 '"max_tokens"'
refused '{"prompt": "a", "n": 1.5}' /v1/completions 400 '"n"'
refused '{"prompt": "a", "best_of": 3}' /v1/completions 400 '"best_of"'
refused '{"prompt": "a", "logit_bias": {"x": 1}}' /v1/completions 400 '"logit_bias"'
refused '{"prompt": "a", "logit_bias": {"aéééééééééééééééééééé": 1}}' /v1/completions 400 '"logit_bias"'
that '.error.message | test("is no token id")' # which is quoted up to the middle of a character
refused '{"prompt": "a", "logit_bias": {"512": 1}}' /v1/completions 400 '"logit_bias"'
refused '{"prompt": "a", "logit_bias": {"999999999": 1}}' /v1/completions 400 '"logit_bias"'
refused '{"prompt": "a", "stop": 5}' /v1/completions 400 '"stop"'
refused '{"prompt": "a", "model": "other"}' /v1/completions 404 '"model"'
refused "{\"prompt\": \"a\", \"model\": \"$(printf '%.0s名' {1..50})\"}" /v1/completions 404 '"model"'
that '.error.message | startswith("there is no model 名名")' # it is cut, but inside of no character
for path in /v1/completions /tokenize /detokenize /v1/cluster/groups; do
  refused '{"prompt": "a", "content": "a", "tokens": [1], "groups": "auto", "model": 5}' $path 400 '"model"'; that '.error.message | startswith("model must be a string")'
done
refused '{"prompt": [1, 99999]}' /v1/completions 400 '"prompt"'
many='"prompt": "Once", "n": 48, "max_tokens": 400, "temperature": 1, "logprobs": 20' # 400,000 entries
refused "{$many}" /v1/completions 400 '"logprobs"'; that '.error.message | endswith("or a stream")'
name="the same as a stream"; curl -sN -m $((60 * ${TIME_SCALE:-1})) "$base/v1/completions" -H 'Content-Type: application/json' -d "{$many, \"stream\": true}" >"$work/out"
[ "$(tail -n 2 "$work/out" | head -n 1)" = "data: [DONE]" ] || report "it has no end"
[ "$(grep -c '"finish_reason":"' "$work/out")" = 48 ] && ! grep -q '"error"' "$work/out" || report "$(grep -m 1 error "$work/out")"
refused '{"max_tokens": 5}' /v1/completions 400 '"prompt"'
refused '{"messages": [{"role": "user", "content": 5}]}' /v1/chat/completions 400 '"messages[0].content"'
refused '{"messages": [{"role": "user", "content": "a"}], "tools": [{}]}' /v1/chat/completions 400 '"tools"'
refused '{"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}' /v1/chat/completions 400 '"top_logprobs"'
refused '{"prompt": ' /v1/completions 400 null
refused '{"prompt": "a\u0000b"}' /v1/completions 400 null; that '.error.message | contains("a NUL")'
refused "{\"prompt\": \"$(printf '\xff')\"}" /v1/completions 400 null
refused "$(printf '[%.0s' {1..5000})" /v1/completions 400 null
name="too long for the context"; post /v1/completions "{\"prompt\": [$(seq -s, 1 511),1]}"; is 400; that '.error.code == "context_length_exceeded"'
name="a path without /v1"; post /completions '{"prompt": "a"}'; is 404; that '.error.message | contains("/v1/chat/completions")'
name="nothing here"; get /../etc/passwd --path-as-is; is 404
name="method"; get /v1/completions; is 405; head_has '^allow: POST'
name="no JSON"; get /v1/completions -d '{}'; is 415
name="no length"; raw 'POST /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n' 5; out '^HTTP/1.1 411'
name="long body"; head -c 200000 /dev/zero | tr '\0' ' ' >"$work/long"; post /v1/completions @"$work/long" -H 'Origin: https://example.org'; is 413; head_has '^access-control-allow-origin: https://example.org'
name="long body in chunks"; post /v1/completions @"$work/long" -H 'Transfer-Encoding: chunked' -H 'Expect:'; [[ $status = 413 ]] || out '^.*too long\|longer than'
name="two lengths"; raw 'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n' 5; out '^HTTP/1.1 400'
name="two times a length"; raw 'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 30\r\n\r\n{}' 5; out '^HTTP/1.1 400'; out 'exclude each other'; holds "$took < 4"
name="long header"; get /health -H "X-Long: $(head -c 30000 /dev/zero | tr '\0' x)"; is 431
name="header beyond --max-header"; get /health -H "X-Long: $(head -c 5000 /dev/zero | tr '\0' x)" -H 'Origin: https://example.org'; is 431; that '.error.message | test("--max-header")'; head_has '^access-control-allow-origin: https://example.org'
name="slow header"; raw 'GET /health HTTP/1.1\r\nX: ' 10; out '^HTTP/1.1 408'; holds "$took < 5"
name="slow body"; raw 'POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{' 10; out '^HTTP/1.1 408'; holds "$took < 6"
name="idle connection"; raw '' 10; silent out; holds "$took < 5"
name="preflight"; get /v1/completions -X OPTIONS -H 'Origin: https://example.org'; is 204; head_has '^access-control-allow-headers: authorization, content-type, .*, \*.\?$' # the openai package asks for x-stainless-... fields
name="origin"; get /v1/models; head_has '^access-control-allow-origin: https://example.org'
name="request id"; get /health -H 'X-Request-Id: mine-1.0_x'; head_has '^x-request-id: mine-1.0_x'
name="request id that is none"; get /health -H 'X-Request-Id: a b"c'; ! grep -q 'a b"c' "$work/head" || report "an id that could be anything"

# ---- a client that leaves
# leaves BODY: a client that goes away while its texts are made
leaves() {
  curl -s -m 60 "$base/v1/completions" -H 'Content-Type: application/json' -d "$1" >/dev/null &
  local client=$!
  settles '.models[0].decoding > 0'
  kill $client; wait $client
}
name="a client that leaves"
leaves '{"prompt": "a", "n": 256, "max_tokens": 500, "temperature": 1}'
settles '.models[0] | .queued == 0 and .decoding == 0 and .cancelled > 0'
name="a stream that is left"; get /v1/cluster; cancelled=$(jq '.models[0].cancelled' "$work/out")
leaves '{"prompt": "a", "n": 256, "max_tokens": 500, "stream": true}'
settles ".models[0] | .queued == 0 and .decoding == 0 and .cancelled > $cancelled"

# ---- for those who operate it
name="cluster"; get /v1/cluster; that '.models[0] | .ready and (.devices | length) == 1 and .devices[0].state == "here" and .new_tokens > 100'
name="cluster, events"; curl -sN -m 1.4 "$base/v1/cluster/events" >"$work/out"; [ "$(events | wc -l)" -ge 2 ] || report "fewer than two events in 1.4 s"
name="metrics"; get /metrics; is 200
for line in 'astra_http_requests_total{path="/v1/completions",status="200"} [1-9]' 'astra_http_requests_total{path="/v1/completions",status="400"} [1-9]' \
  'astra_time_to_first_token_seconds_bucket{le="+Inf"} [1-9]' 'astra_new_tokens_total{model="stories260K"} [1-9]' \
  'astra_drafts_total{model="stories260K"} [1-9]' 'astra_drafted_tokens_total{model="stories260K"} [0-9]' \
  'astra_device_up{model="stories260K",device="0",address="here"} 1' 'astra_http_requests_total{path="/v1/completions",status="499"} [1-9]' \
  'astra_http_requests_total{path="/v1/completions",status="408"} 1' 'astra_http_requests_total{path="/",status="200"} 1' \
  'astra_http_requests_total{path="other",status="404"} [1-9]' 'astra_http_requests_total{path="/v1/completions",status="405"} 1' \
  'astra_http_requests_total{path="/v1/completions",status="204"} 1'; do out "^$line"; done
! grep 'path="/",status="404"\|path="other",status="[^4]\|path="other",status="405"' "$work/out" || report "paths of other requests"
name="names of metrics"
for metric in $(sed -n 's/^# HELP astra_\([a-z_]*\) .*/\1/p' "$work/out"); do grep -q "\`$metric\`" "$root/docs/FORMATS.md" || report "docs/FORMATS.md lacks $metric"; done
name="types of metrics"; [ -z "$(grep -v '^#' "$work/out" | sed -E 's/^([a-z_]+).*/\1/; s/_(bucket|sum|count)$//' | sort -u | while read -r metric; do
  grep -q "^# TYPE ${metric}\(_count\)\? " "$work/out" || echo "$metric"; done)" ] || report "a metric without a type"
name="end of the service"
curl -s -m 40 "$base/v1/completions" -H 'Content-Type: application/json' -d '{"prompt": "a", "n": 32, "max_tokens": 400, "temperature": 1}' >"$work/late" &
late=$!
settles '.models[0].decoding > 0'
# shellcheck disable=SC2046
kill -TERM "$server" $(pgrep -P "$server"); wait "$server"; code=$?; server=; wait $late # as where a supervisor ends the whole group
[ $code = 0 ] || report "exit code $code"
cp "$work/late" "$work/out"; that '.choices[0].finish_reason'
name="log"; jq -es 'map(select(.path)) | length > 40 and all(.id and .status and .time and (.ms >= 0))' <(grep '^{' "$work/log") >/dev/null || report "lines that are no JSON"
jq -es 'map(select(.id == "head-alone")) | length == 1 and .[0].bytes_out == 0 and .[0].complete' <(grep '^{' "$work/log") >/dev/null || report "HEAD sent a body"
jq -es 'map(select(.finish == "length" and .new_tokens == 60)) | length == 2' <(grep '^{' "$work/log") >/dev/null || report "no tokens in the log"
jq -es 'map(select(.path == "/v1/completions" and .complete == false and .model)) | length == 2 and all(.prompt_tokens > 0) and any(.new_tokens > 0)' \
  <(grep '^{' "$work/log") >/dev/null || report "no tokens in the log of those who left"

serve "two signals at once" -c "$root/checkpoints/gpt2-mini-g8" --nodes 2 --transport tcp --latency 8s --drain 60s
curl -s -m 70 -o "$work/late" "$base/v1/completions" -H 'Content-Type: application/json' -d '{"prompt": "The history of the city began", "max_tokens": 4}' &
late=$!
settles '.models[0] | .prefilling + .decoding > 0'
since=$SECONDS; kill -STOP "$server"; kill -TERM "$server"; kill -INT "$server"; kill -CONT "$server"; wait "$server"; server=; wait $late
[ $((SECONDS - since)) -lt 8 ] || report "it took $((SECONDS - since)) s"; grep -q "stopping: 1 cancelled" "$work/log" || report "nothing was cancelled"

# ---- keys, rates, TLS
printf '# keys\nfirst-key-of-two\n\nsecond-key-of-two\n' >"$work/keys"; chmod 600 "$work/keys"
openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/key.pem" -out "$work/cert.pem" -days 2 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 2>/dev/null
serve "keys and TLS" -c "a? 100%=$stories" --nodes 1 --api-key-file "$work/keys" --rate 2 --tls-certificate "$work/cert.pem" --tls-key "$work/key.pem"
[[ $base = https:* ]] || report "no https"
trust=(--cacert "$work/cert.pem")
name="no key"; get /v1/models "${trust[@]}"; is 401; that '.error.code == "invalid_api_key"'; head_has '^www-authenticate: Bearer'
name="another key"; get /v1/models "${trust[@]}" -H 'Authorization: Bearer first-key-of-twp'; is 401
name="health without a key"; get /health "${trust[@]}"; is 200
name="a key"; get /v1/models "${trust[@]}" -H 'Authorization: Bearer second-key-of-two'; is 200; that '.data[0].id == "a? 100%"'
name="a model without a key"; get /v1/models/a%3f%20100%25 "${trust[@]}"; is 401
name="a model with a key"; get /v1/models/a%3f%20100%25 "${trust[@]}" -H 'Authorization: Bearer second-key-of-two'; is 200; that '.id == "a? 100%"'
for n in 1 2; do name="request $n"; post /tokenize '{"prompt": "a"}' "${trust[@]}" -H 'Authorization: Bearer first-key-of-two'; is 200; done
name="one too many"; post /tokenize '{"prompt": "a"}' "${trust[@]}" -H 'Authorization: Bearer first-key-of-two'; is 429; head_has '^retry-after: [0-9]'
name="of the other key"; post /tokenize '{"prompt": "a"}' "${trust[@]}" -H 'Authorization: Bearer second-key-of-two'; is 200
# The client must want TLS 1.1 itself, for which OpenSSL needs this level: it has sent its hello and got nothing, or the alert protocol_version.
name="old TLS"; openssl s_client -tls1_1 -cipher DEFAULT@SECLEVEL=0 -connect "127.0.0.1:$port" </dev/null >"$work/out" 2>"$work/err"
cat "$work/err" >>"$work/out"; out 'has read 0 bytes and written [1-9]\|SSL alert number 70$'; out 'Cipher is (NONE)$'
stop

# ---- images
serve "images" -c "$classifier" --nodes 2 --request-timeout 0 --max-body 4G --http-threads 3 --verbose
name="three threads for connections"; [ "$(grep -l '^MHD-worker' /proc/$server/task/*/comm | wc -l)" = 3 ] || report "it has the threads $(cat /proc/$server/task/*/comm | xargs)"
name="what runs"; grep -q '^machine: kernels' "$work/log" && grep -q '^node 1 is pid [0-9]' "$work/log" || report "$(cat "$work/log")"
name="an image"; get /v1/images/classify -H 'Content-Type: image/png' --data-binary @"$pictures/apple_0614.png"; is 200
that '.results[0].classes | length == 5 and .[0].probability >= .[1].probability and (.[0].label | length) > 0'
"$bin/astra-infer" --checkpoint "$classifier" --nodes 2 --json "$pictures"/*.png >"$work/infer" 2>/dev/null
all=(); for picture in "$pictures"/*.png; do all+=(-F "image=@$picture"); done
name="several images"; get '/v1/images/classify?top=1' "${all[@]}"; is 200
cmp -s <(jq -c '[.results[].classes[0].label]' "$work/out") <(jq -c '[.images[].top[0].label]' "$work/infer") ||
  report "other classes than those of astra-infer"
name="seconds of the request, not of its last batch" one=1000 many=()
for _ in 1 2 3; do get /v1/images/classify -H 'Content-Type: image/png' --data-binary @"$pictures/apple_0614.png"; one=$(jq "[.seconds, $one] | min" "$work/out"); done
while [ ${#many[@]} -lt 130 ]; do many+=(-F "image=@$pictures/apple_0614.png"); done
get '/v1/images/classify?top=1' "${many[@]}"; is 200; that ".usage.images == 65 and .seconds > 4 * $one"
name="one that is none"; printf 'no image' >"$work/none.png"; get /v1/images/classify -F image=@"$work/none.png" -F image=@"$pictures/tiger_1409.png" -F top=2; is 200
that '(.results[0].error | length) > 5 and (.results[1].classes | length) == 2 and .usage.images == 1'
name="none at all"; get /v1/images/classify -H 'Content-Type: image/png' --data-binary 'no image'; is 422; that '.error.code == "invalid_image"'
name="a form without images"; get /v1/images/classify -F top=2; is 400; that '.error.param == "image"'
name="a top of none"; get '/v1/images/classify?top=0' "${all[@]}"; is 400; that '.error.param == "top"'
name="the same in a form"; get /v1/images/classify "${all[@]}" -F top=0; is 400; that '.error.param == "top"'
name="no image type"; get /v1/images/classify -d 'x'; is 415
name="a text for a model of images"; post /v1/completions '{"prompt": "a"}'; is 404; that '.error.param == "model"'
name="images in the metrics"; get /metrics; out '^astra_images_total{model="vit-cifar-g8"} 78'
stop

serve "an end before the answer" -c "$classifier" --nodes 2 --transport tcp --latency 8s --drain 1s
curl -s -m 60 "$base/v1/images/classify" -H 'Content-Type: image/png' --data-binary @"$pictures/apple_0614.png" >"$work/late" &
client=$!
settles '.models[0].submitted > 0'
kill -TERM "$server"; wait "$server"; code=$?; server=; wait $client
[ $code = 0 ] || report "exit code $code"
grep -q "stopping: 1 cancelled" "$work/log" || report "nothing was cancelled"
! grep "has failed" "$work/log" >&2 || report "that is taken for a failure"

# ---- two models on two devices each, behind a UNIX socket: many clients at once get what astra-infer gives one
name="several clients"
sentence="The history of the city begins with the first"
: >"$work/log"
"$program" -c text="$checkpoints/gpt2-mini-g8" -c "$classifier" --nodes 2 --listen "unix:$work/socket" 2>"$work/log" &
server=$!
await "$work/log" "listening on" $server || report "it does not listen"
ask() { curl -sS -m 100 --unix-socket "$work/socket" "http://unix$1" "${@:2}"; }
clients=()
for n in 1 2 3 4 5 6; do
  ask /v1/completions -H 'Content-Type: application/json' -d "{\"model\": \"text\", \"prompt\": \"$sentence\", \"max_tokens\": 12, \"temperature\": 0}" >"$work/text.$n" &
  clients+=($!)
  ask /v1/images/classify -F image=@"$pictures/tiger_1409.png" >"$work/image.$n" &
  clients+=($!)
done
wait "${clients[@]}"
wanted=$("$bin/astra-infer" generate -c "$checkpoints/gpt2-mini-g8" --nodes 2 -p "$sentence" -m 12 --json 2>/dev/null | jq '.prompts[0].text')
for n in 1 2 3 4 5 6; do
  [ "$(jq '.choices[0].text' "$work/text.$n")" = "$wanted" ] || report "client $n got another text than astra-infer writes: $(cut -c -200 "$work/text.$n")"
  cp "$work/image.$n" "$work/out"; that '.results[0].classes | length == 5'
  [ "$(jq -c '.results[0].classes' "$work/image.$n")" = "$(jq -c '.results[0].classes' "$work/image.1")" ] || report "client $n got other classes"
done
# GPT-2's end of text stands for an empty prompt: it is no text of the client's, but where they send it themselves.
name="the echo of nothing"
for asked in '""' '[4095]'; do
  ask /v1/completions -H 'Content-Type: application/json' -d "{\"prompt\": $asked, \"echo\": true, \"logprobs\": 0, \"max_tokens\": 4, \"temperature\": 0}" >"$work/out"
  that '.choices[0] | (.text == (.logprobs.tokens | join(""))) and .logprobs.text_offset[0] == 0 and (.logprobs.tokens | length) == 5'
  jq '.choices[0].logprobs.tokens[0]' "$work/out"
done >"$work/first"
[ "$(cat "$work/first")" = '""
"<|endoftext|>"' ] || report "it begins with $(cat "$work/first")"
name="a socket that goes"; kill "$server"; wait "$server"; server=; [ ! -e "$work/socket" ] || report "the socket is still there"

# ---- a signal while the start waits for a worker that serves another leader
name="a signal at the start"
"$bin/astra-infer" worker -c "$stories" --listen "unix:$work/worker" --threads 1 2>"$work/worker.log" &
worker=$!
await "$work/worker.log" "listening on" $worker || report "the worker does not listen"
serve "a worker" -c "$stories" --strategy single --peers "unix:$work/worker"
for signal in INT TERM; do
  rm -f "$work/err" # what the one before has said is no sign of this one
  "$program" -c "$stories" --strategy single --peers "unix:$work/worker" --wait 250 --listen 127.0.0.1:0 2>"$work/err" >"$work/out" &
  second=$!
  await "$work/err" "busy with another leader" $second || report "it does not wait for the worker"
  kill -$signal $second
  for _ in $(seq 100); do kill -0 $second 2>/dev/null || break; sleep 0.1; done
  kill -KILL $second 2>/dev/null && report "SIG$signal does not end it"
  wait $second; code=$?
  [ $code = 0 ] || report "exit code $code"
  err "stopped before it served"
done
stop
kill $worker; wait $worker

# ---- a signal while a model is loaded, after another one whose device runs already
name="a signal while a model is loaded"
slow_model heavy
for signal in INT TERM; do
  "$program" -c "$stories" -c heavy --weights int4 --nodes 1 --listen 127.0.0.1:0 2>"$work/err" >"$work/out" &
  second=$!
  loads $second heavy
  device=$(pgrep -P $second) since=$EPOCHREALTIME
  [[ $device =~ ^[0-9]+$ ]] || report "not one device of the first model: $device"
  kill -$signal $second; wait $second; code=$?
  holds "$EPOCHREALTIME - $since < ${TIME_SCALE:-1}"
  [ $code = 0 ] || report "exit code $code"
  err "stopped before it served"
  for _ in $(seq $((20 * ${TIME_SCALE:-1}))); do kill -0 "$device" 2>/dev/null || break; sleep 0.1; done
  kill -0 "$device" 2>/dev/null && report "the device of the first model is still there"
done

[ $failed = 0 ] && echo "astra-serve: ok"
exit $failed
