#!/bin/bash
# limit: 240
# astra-serve and what no honest client sends: bodies of gigabytes, heads without end, lengths that are none or two, chunks that are none, bad JSON and
# UTF-8, paths that lead out, requests one behind another, ten thousand connections. Each is refused with a status of its own, memory stays what it was,
# and others are answered meanwhile. 2,000 connections here; 10,000 and longer with ASTRA_LONG=1.
. tests/network/helpers.sh
command -v jq >/dev/null && command -v curl >/dev/null || { echo "skipped: jq and curl are needed"; exit 77; }
crowd=$build/tests/serve/make_crowd crowded=2000 crowd_seconds=4
[ -z "${ASTRA_LONG:-}" ] || crowded=10000 crowd_seconds=30
scale=${TIME_SCALE:-1}
ulimit -n "$(ulimit -Hn)"
trap '' PIPE # of connections that are closed while we write
trap '[ -z "$server" ] || kill $server 2>/dev/null; wait; rm -rf "$work"' EXIT
start_service -c tests/golden/stories260K --nodes 1 --listen 127.0.0.1:0 --max-connections-per-address 0 --max-connections 500 \
  --header-timeout $((3 * scale))s --body-timeout $((4 * scale))s
port=${base##*:}

memory() { sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' /proc/$server/status; }
# raw NAME STATUS TEXT: what comes on a connection after these bytes (as printf has them) begins with this status, "closed" for nothing at all
raw() {
  exec 3<>"/dev/tcp/127.0.0.1/$port" || { report "$1: no connection"; return; }
  { printf "$3" >&3; } 2>/dev/null
  timeout $((10 * scale)) cat <&3 >"$work/out" 2>/dev/null
  [ $? != 124 ] || report "$1: neither answered to its end nor closed"
  exec 3<&- 3>&-
  local got
  got=$(sed -n '1s/^HTTP\/1.[01] \([0-9]*\) .*/\1/p' "$work/out")
  [[ ${got:-closed} =~ ^($2)$ ]] || report "$1: ${got:-closed}, expected $2"
}
json() { # NAME STATUS PATH FILE
  local got
  got=$(curl -sS -m 30 -o "$work/out" -w '%{http_code}' -H 'Content-Type: application/json' --data-binary @"$4" "$base$3" 2>"$work/err")
  [[ $got =~ ^($2)$ ]] || report "$1: $got, expected $2"
  jq -e '.error.message | length > 5' "$work/out" >/dev/null 2>&1 || report "$1: no message"
}
alive() { # WHAT: others are answered
  for ((i = 0; i < 50 * scale; i++)); do
    [ "$(curl -s -m 5 -o "$work/out" -w '%{http_code}' "$base/v1/completions" -H 'Content-Type: application/json' -d '{"prompt": "Once", "max_tokens": 2}')" = 200 ] && return
    sleep 0.2
  done
  report "$1: nobody is answered"
}
alive "at first"
alive "at second"
before=$(memory)

# ---- heads
post='POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n'
get='GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n'
raw "no HTTP" '400|closed' 'hello there\r\n\r\n'
raw "another protocol" '400|closed' '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n'
raw "HTTP/9.9" '400|505' 'GET /health HTTP/9.9\r\nHost: x\r\n\r\n'
raw "HTTP/1.0" 200 'GET /health HTTP/1.0\r\n\r\n'
raw "HTTP/1.1 without a host" 400 'GET /health HTTP/1.1\r\n\r\n'
raw "a method of noise" '400|404|405|501' '\x01\x02\xff /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'
raw "a NUL in a field" '400|200' "${get}X: a\\0b\r\n\r\n"
raw "a field without a name" '400|200'  "${get}: b\r\n\r\n"
raw "a space before the colon" '400|200' "${get}X : b\r\n\r\n"
raw "a long path" '414|431' "GET /$(head -c 40000 /dev/zero | tr '\0' a) HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
raw "many fields" '431|413|400' "$get$(for i in {1..4000}; do printf 'X-%d: y\\r\\n' $i; done)\r\n"
raw "a field of 200 KB" '431|413' "${get}X: $(head -c 200000 /dev/zero | tr '\0' a)\r\n\r\n"
raw "three requests at once" 200 "GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n$get\r\n"
[ "$(grep -ao 'HTTP/1.1 [0-9]*' "$work/out" | xargs)" = "HTTP/1.1 200 HTTP/1.1 404 HTTP/1.1 200" ] || report "three requests at once: not three answers in order"

# ---- paths
for path in '/../../etc/passwd' '/%2e%2e/%2e%2e/etc/passwd' '/v1/../v1/models' '//health' '/health/' '/%00' '/v1/models%00.json' '/\\..\\etc' '/%ff%fe' '/page/..' '/.git/config'; do
  raw "$path" '400|404' "GET ${path//%/%%} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
done
raw "a whole URL" 200 'GET http://elsewhere/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'
raw "a star" '400|404|405' 'OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'
raw "CONNECT" '400|404|405|501' 'CONNECT elsewhere:80 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'

# ---- lengths and chunks
for length in -1 abc 5x '' 0x10 +5 '5 5' '5, 5' 99999999999999999999999999 18446744073709551617; do
  raw "Content-Length: $length" '400|413|411' "${post}Content-Length: $length\r\n\r\n{}   "
done
raw "two lengths" 400 "${post}Content-Length: 2\r\nContent-Length: 30\r\n\r\n{}"
raw "a length and chunks" 400 "${post}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
raw "another coding" '400|501|415' "${post}Transfer-Encoding: gzip\r\n\r\n{}"
raw "two codings" '400|501|415' "${post}Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
for chunk in 'zz\r\n{}\r\n0\r\n\r\n' '-2\r\n{}\r\n0\r\n\r\n' 'ffffffffffffffffff\r\n{}' '2\r\n{}xx0\r\n\r\n'; do raw "chunk ${chunk:0:6}" '400|413|closed' "${post}Transfer-Encoding: chunked\r\n\r\n$chunk"; done
raw "compressed" '400|415' "${post}Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00"
raw "gigabytes announced" 413 "${post}Content-Length: 5000000000\r\n\r\n"
raw "gigabytes, if it may" 413 "${post}Expect: 100-continue\r\nContent-Length: 5000000000\r\n\r\n"
! grep -aq '100 Continue' "$work/out" || report "it asks for gigabytes"
sent=$(head -c 3000000000 /dev/zero 2>/dev/null | timeout $((60 * scale)) curl -sS -m 60 -T - -X POST -H 'Content-Type: application/json' -H 'Expect:' -o "$work/out" -w '%{http_code} %{size_upload}' "$base/v1/completions" 2>/dev/null)
[[ ${sent%% *} =~ ^(413|000)$ ]] && [ "${sent##* }" -lt 200000000 ] || report "gigabytes in chunks: $sent"
alive "after gigabytes"
[ "$(memory)" -lt $((before + 100000)) ] || report "memory after gigabytes: $before kB grew to $(memory) kB"

# ---- JSON
make() { printf "$2" >"$work/body"; json "$1" "$3" "${4:-/v1/completions}" "$work/body"; } # NAME TEXT STATUS [PATH]
make "half of JSON" '{"prompt": "a", ' 400
make "an array" '[1, 2]' 400
make "nothing" ' ' 400
make "no UTF-8" '{"prompt": "\xff\xfe"}' 400
make "a lone surrogate" '{"prompt": "\\ud800"}' 400
make "overlong UTF-8" '{"prompt": "\xc0\xaf"}' 400
make "a NUL" '{"prompt": "a\\u0000b"}' 400
make "a NUL in a chat" '{"messages": [{"role": "user", "content": "a\\u0000b"}]}' 400 /v1/chat/completions
make "a name twice" '{"prompt": "a", "prompt": "b"}' 400
make "a number without end" "{\"prompt\": \"a\", \"temperature\": 1e999}" 400
make "a whole number without end" "{\"prompt\": \"a\", \"max_tokens\": 999999999999999999999999}" 400
make "no utf-8 in a role" '{"messages": [{"role": "\xed\xa0\x80", "content": ""}]}' 400 /v1/chat/completions
make "tokens that are none" '{"tokens": [-1]}' 400 /detokenize
make "tokens beyond the vocabulary" '{"tokens": [99999999]}' 400 /detokenize
head -c 3000000 /dev/zero | tr '\0' '[' >"$work/deep"
json "brackets alone" 400 /v1/completions "$work/deep"
{ printf '{"prompt": ['; yes '1,' 2>/dev/null | head -c 4000000 | tr -d '\n'; printf '1]}'; } >"$work/wide"
json "millions of ids" 400 /v1/completions "$work/wide"
printf '{"tokens": [%s]}' "$(yes 400 2>/dev/null | head -n 513 | paste -sd ,)" >"$work/wide"
json "an id more than the context has, as text" 400 /detokenize "$work/wide"
jq -e '.error.code == "context_length_exceeded"' "$work/out" >/dev/null || report "an id more than the context has: $(cat "$work/out")"
{ printf '{"prompt": "'; head -c 20000000 /dev/zero | tr '\0' a; printf '"}'; } >"$work/wide"
json "a prompt of 20 MB" 400 /v1/completions "$work/wide"
{ printf '{"messages": [{"role": "user", "content": "'; head -c 20000000 /dev/zero | tr '\0' a; printf '"}]}'; } >"$work/wide"
json "a message of 20 MB" 400 /v1/chat/completions "$work/wide"
alive "after long prompts"
[ "$(memory)" -lt $((before + 100000)) ] || report "memory after long prompts: $before kB grew to $(memory) kB"

# ---- too many, too slow
for manner in silent heads; do
  "$crowd" "$port" $crowded $crowd_seconds $manner >"$work/crowd" 2>"$work/err" &
  pid=$!
  sleep 2
  running $pid || report "the crowd is gone: $(cat "$work/crowd" "$work/err")"
  : >"$work/times"
  most=0
  while running $pid; do
    curl -s -m 10 -o /dev/null -w '%{http_code} %{time_total}\n' "$base/health" >>"$work/times"
    now=$(memory)
    [ "$now" -le "$most" ] || most=$now
    sleep 0.1
  done
  wait $pid || report "crowd: $(cat "$work/crowd")"
  right=$(grep -c '^200' "$work/times") asked=$(wc -l <"$work/times")
  echo "$crowded connections, $manner: $(cat "$work/crowd"); $right of $asked others were answered, in $(sort -k2 -n "$work/times" | awk '{ t[NR] = $2 } END { printf "%s s at most", t[NR] }'); memory $before kB before, $most kB at most"
  [ "$most" -lt $((before + 150000)) ] || report "memory with $crowded connections: $most kB, $before kB before"
  [ "$right" -ge 1 ] || report "nobody is answered beside $crowded connections: $(sort "$work/times" | cut -c 1-3 | uniq -c)"
  alive "after $crowded connections"
done
running $server || report "the service is gone"
kill -TERM $server; wait $server; code=$?
[ $code = 0 ] || report "exit code $code"
exit $failed
