#!/bin/bash
# limit: 200
# astra-serve without requests: a process of its own that dies, and a worker that goes and comes back, show in /v1/cluster and /metrics, and
# without any device that could go on /ready says so. A service whose workers are all lost refuses requests for now, and serves again when
# one is back. Requests after that are answered.
. tests/network/helpers.sh
command -v jq >/dev/null && command -v curl >/dev/null || { echo "skipped: jq and curl are needed"; exit 77; }
service=(-c tests/golden/stories260K --threads 1 --strategy single --listen 127.0.0.1:0 --no-log)
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; kill "${listener[@]}" 2>/dev/null; wait; rm -rf "$work"' EXIT

end_service() { kill -TERM "$server"; wait "$server" || report "$1: exit code $? at the end"; server=; }
states() { curl -sS -m 10 "$base/v1/cluster" | jq -rc '[.models[0].devices[].state] | join(" ")'; }
# Generous beside the few seconds that it takes on an idle machine; the time is of the condition, not of the test.
become() { # STATES SECONDS WHAT
  local begun=$SECONDS now
  while now=$(states); [ "$now" != "$1" ]; do
    ((SECONDS - begun <= $2 * ${TIME_SCALE:-1})) || { report "$3: the devices are \"$now\", expected \"$1\""; return; }
    sleep 0.1
  done
  [ -z "${VERBOSE:-}" ] || echo "$3: after $((SECONDS - begun)) s"
}
answers() { # WHAT
  curl -sS -m 60 "$base/v1/completions" -H 'Content-Type: application/json' -d '{"prompt": "Once upon a time", "max_tokens": 5, "temperature": 0}' >"$work/answer"
  jq -e '.usage.completion_tokens == 5' "$work/answer" >/dev/null || report "$1: $(head -c 300 "$work/answer")"
}

start_service "${service[@]}" --nodes 3
[ "$(states)" = "here here here" ] || report "at the beginning: $(states)"
kill -KILL "$(pgrep -P "$server" | sed -n 2p)"
become "here gone here" 20 "a process that died"
curl -sS "$base/metrics" >"$work/metrics"
grep -q '^astra_device_up{.*device="1".*} 0$' "$work/metrics" || report "metrics: $(grep '^astra_device_up' "$work/metrics")"
answers "two of three"
end_service "processes"

start_worker w "unix:$work/w" --checkpoint tests/golden/stories260K
start_service "${service[@]}" --peers "unix:$work/w"
[ "$(states)" = "here here" ] || report "with a worker: $(states)"
kill -KILL "$(session_of w)"
kill -KILL "${listener[w]}"
become "here gone" 20 "a worker that died"
rm -f "$work/w"
start_worker w "unix:$work/w" --checkpoint tests/golden/stories260K
become "here here" 60 "a worker that came back"
answers "a worker is back"
end_service "workers"

# Lost while idle, and the second time while a text is under way.
stop_worker w
start_worker w "unix:$work/w" --checkpoint tests/golden/stories260K
start_service "${service[@]}" --peers "unix:$work/w" --no-local
refused() { # WHAT PATH [CURL-ARGUMENTS...]
  local what=$1 path=$2 status
  shift 2
  status=$(curl -sS -m 30 -D "$work/head" -o "$work/answer" -w '%{http_code}' "$@" "$base$path")
  [ "$status" = 503 ] || report "$what: status $status: $(head -c 300 "$work/answer")"
  grep -qi '^retry-after: [1-9]' "$work/head" || report "$what: no Retry-After"
}
for round in idle busy; do
  if [ $round = busy ]; then
    for ((attempt = 0; attempt < 5; attempt++)); do # a text that is over before its device stops shows nothing: another one
      curl -sS -N -m 60 "$base/v1/completions" -H 'Content-Type: application/json' -d '{"prompt": "Once upon a time", "max_tokens": 450, "stream": true}' >"$work/stream" &
      stream=$!
      for ((i = 0; i < 500; i++)); do grep -q text_completion "$work/stream" && break; sleep 0.02; done
      kill -STOP "$(session_of w)"
      sleep 0.2
      grep -q 'DONE' "$work/stream" || break
      kill -CONT "$(session_of w)"
      wait "$stream"
    done
  fi
  kill -KILL "$(session_of w)"
  kill -KILL "${listener[w]}"
  become "gone" 20 "$round: the only worker died"
  if [ $round = busy ]; then
    wait "$stream"
    grep -q '"code":"no_device"' "$work/stream" || report "busy: the text under way does not end with no_device: $(tail -c 300 "$work/stream")"
  fi
  refused "$round: /ready without devices" /ready
  jq -e '.status == "not ready" and (.reason | test("no device"))' "$work/answer" >/dev/null || report "$round: /ready: $(cat "$work/answer")"
  for stream in false true; do
    refused "$round: a request without devices" /v1/completions -H 'Content-Type: application/json' -d "{\"prompt\": \"Once\", \"max_tokens\": 5, \"stream\": $stream}"
  done
  curl -sS "$base/v1/cluster" | jq -e '.models[0] | .deserted and (.ready | not)' >/dev/null || report "$round: /v1/cluster does not say it"
  rm -f "$work/w"
  start_worker w "unix:$work/w" --checkpoint tests/golden/stories260K
  become "here" 60 "$round: the only worker came back"
  [ "$(curl -sS -o /dev/null -w '%{http_code}' "$base/ready")" = 200 ] || report "$round: not ready with a worker again"
  answers "$round: the only worker is back"
done
end_service "deserted"

start_service "${service[@]}" --nodes 2 --on-failure abort
kill -KILL "$(pgrep -P "$server" | tail -1)"
for ((i = 0; i < 200 * ${TIME_SCALE:-1}; i++)); do kill -0 "$server" 2>/dev/null || break; sleep 0.1; done
kill -0 "$server" 2>/dev/null && report "a cluster that has failed: the service goes on"
wait "$server" 2>/dev/null
code=$?
server=
[ $code = 1 ] || report "a cluster that has failed: exit code $code"
grep -q 'the cluster of .* has failed (.*); start the service again' "$server_log" || report "a cluster that has failed: the log does not say it"
exit $failed
