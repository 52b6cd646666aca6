#!/bin/bash
# limit: 1800
# Requests in a row while devices are killed, stopped and restarted at random: sessions of workers, whole workers, the leader's own device;
# over streams and datagrams, by both policies that go on. Each answer is bit for bit the one that as many devices give undisturbed, or says
# that tokens are missing, or is an error with a message (make_requests compares them). Four fifths of the requests are answered, and the
# failures are felt: some are computed again, or lack tokens. Nothing grows between the first quarter and the end: memory and descriptors of
# the leader and of a worker; no process stays behind; nothing hangs.
# 64 requests in each of three runs; 200 with ASTRA_LONG=1. The random numbers' seed is in SEED.
. tests/network/helpers.sh
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
requests=64
[ -z "${ASTRA_LONG:-}" ] || requests=200
RANDOM=${SEED:-1}
scale=${TIME_SCALE:-1}
leads=$build/tests/infer/make_requests
make_checkpoint "$work/model" vit-cifar 8 256 4
names=(a b c)
# A sanitizer keeps what was freed for a while, and looks for leaks itself.
[ $scale -eq 1 ] && grown=4096 || grown=262144 # kB that a process may vary by; an image of each request would be four times as much in the long form

declare -A port
descriptors() { ls "/proc/$1/fd" 2>/dev/null | wc -l; }
memory() { # kB, or 0 where nobody knows
  local kilobytes
  kilobytes=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$1/status" 2>/dev/null)
  echo "${kilobytes:-0}"
}
pause() { sleep "$(printf '%d.%03d' $(($1 / 1000)) $(($1 % 1000)))"; } # MILLISECONDS
restart() { # NAME
  kill -KILL "${listener[$1]}"
  wait "${listener[$1]}" 2>/dev/null
  start_worker "$1" "127.0.0.1:${port[$1]}" --key-file "$work/key" -c "$work/model"
}
stop_and_go() { # NAME: sometimes for longer than the leader waits (two seconds, but under a sanitizer)
  local all=("${listener[$1]}")
  read -ra sessions < <(sessions_of "$1")
  all+=("${sessions[@]}")
  kill -STOP "${all[@]}" 2>/dev/null
  pause $((RANDOM % 3500))
  kill -CONT "${all[@]}" 2>/dev/null
}
# What happens to somebody now. Worker a itself is never killed, so that it can be watched.
strike() {
  local name=${names[$((RANDOM % 3))]}
  case $((RANDOM % 8)) in
  0 | 1 | 2) kill -KILL $(sessions_of $name) 2>/dev/null && kills=$((kills + 1)) ;;
  3 | 4 | 5) [ $name = a ] || { restart $name && kills=$((kills + 1)); } ;;
  6) stop_and_go $name && stops=$((stops + 1)) ;;
  7)
    local=$(sed -n 's/^node 0 is pid //p' "$work/requests" | tail -1)
    [ $done -lt $((requests / 2)) ] || [ -z "$local" ] || [ "$local" = "$struck" ] || { kill -KILL "$local" && struck=$local kills=$((kills + 1)); }
    ;;
  esac
}

# The largest figure of requests FIRST to LAST: most FIRST LAST kB|descriptors
most() { sed -n "s/^request \([0-9]*\): .* \([0-9]*\) $3.*/\1 \2/p" "$work/requests" | awk -v a=$1 -v b=$2 '$1 >= a && $1 <= b && $2 > m { m = $2 } END { print m + 0 }'; }

count() { grep -c "^request .*$1" "$work/requests"; } # requests whose line has such a PATTERN

endure() { # WHAT LOCAL TRANSPORT POLICY
  local what=$1 kills=0 stops=0 done=0 next=1 before=0 struck= begin=$SECONDS heard=$SECONDS early= code list=
  for name in "${names[@]}"; do
    start_worker $name 127.0.0.1:0 --key-file "$work/key" -c "$work/model"
    port[$name]=${address[$name]##*:}
    list+=${list:+,}${address[$name]}
  done
  local first=$(descriptors "${listener[a]}")
  "$leads" "$work/model" "$list" "$work/key" $2 $3 $4 $requests $((2 * scale)) >"$work/requests" 2>"$work/messages" &
  local leader=$!
  while running $leader; do
    pause 50
    done=$(grep -c '^request' "$work/requests")
    # Every few requests, and now and then while the last blow is still felt.
    [ $done -ge $next ] || { [ $done -gt 0 ] && [ $((RANDOM % 20)) -eq 0 ]; } && strike && next=$((done + 2 + RANDOM % 10))
    [ -n "$early" ] || [ $done -lt $((requests / 4)) ] || early=$(memory "${listener[a]}")
    [ $done -eq $before ] || heard=$SECONDS before=$done
    [ $((SECONDS - heard)) -lt $((60 * scale)) ] || { kill -KILL $leader; report "$what: nothing for $((60 * scale)) s"; break; }
  done
  wait $leader
  code=$?
  [ $code -eq 0 ] && [ "$(grep -c '^request' "$work/requests")" -eq $requests ] || report "$what: exit code $code"
  ! grep -q WRONG "$work/requests" || report "$what: wrong answers"
  [ "$(grep -c ', error' "$work/requests" || true)" -eq 0 ] || grep -q 'error: ' "$work/messages" || report "$what: an error without a message"
  local answered=$(count ': right,')
  if [ $4 = mask ]; then
    [ "$(count ': masked,')" -gt 0 ] || report "$what: no answer lacks tokens"
    answered=$((answered + $(count ': masked,')))
  else
    [ "$(count ', [1-9][0-9]* reruns,')" -gt 0 ] || report "$what: no request was computed again"
  fi
  [ $((5 * answered)) -ge $((4 * requests)) ] || report "$what: $answered of $requests requests were answered"
  [ $((kills + stops)) -ge 3 ] || report "$what: only $kills kills: the requests were over too soon"
  local quarter=$((requests / 4)) kb descriptors_then
  kb=$(most 1 $quarter kB) descriptors_then=$(most 1 $quarter descriptors)
  [ "$kb" -gt 0 ] && [ "$descriptors_then" -gt 0 ] || report "$what: nothing is known of the leader's memory or descriptors"
  [ "$(most $((3 * quarter)) $requests kB)" -le $((kb + grown)) ] || report "$what: the leader grew from $kb kB"
  [ "$(most $((3 * quarter)) $requests descriptors)" -le $((descriptors_then + 4)) ] || report "$what: the leader had $descriptors_then descriptors at first"

  # What remains: listeners, no sessions, no more descriptors or memory than before.
  for name in "${names[@]}"; do
    for ((i = 0; i < 100 * scale; i++)); do [ -n "$(sessions_of $name)" ] || break; sleep 0.1; done
    [ -z "$(sessions_of $name)" ] || report "$what: worker $name still has sessions"
    [ "$(descriptors "${listener[$name]}")" -le "$first" ] || report "$what: worker $name has $(descriptors "${listener[$name]}") descriptors, $first at first"
  done
  local late=$(memory "${listener[a]}")
  [ "$late" -gt 0 ] && [ "$late" -le $((${early:-$late} + grown)) ] || report "$what: worker a takes $late kB, $early after a quarter"
  [ $failed -eq 0 ] || tail -n 20 "$work/requests" "$work/messages"
  echo "$what: $(tail -1 "$work/requests"); $kills kills, $stops stops, $((SECONDS - begin)) s"
  echo "    answers by devices: $(sed -n 's/^request.* \([0-9]*\) of .*/\1/p' "$work/requests" | sort | uniq -c | awk '{ printf "%s%d of %d", sep, $1, $2; sep = ", " }')"
  sed -n 's/.*error: /    error: /p' "$work/messages"
  echo "    leader: $(most 1 $quarter kB) kB and $(most 1 $quarter descriptors) descriptors at most in the first quarter," \
    "$(most $((3 * quarter)) $requests kB) kB and $(most $((3 * quarter)) $requests descriptors) in the last"
  echo "    worker a: $early kB after a quarter, $late kB at the end; $first descriptors before, $(descriptors "${listener[a]}") after"
  for name in "${names[@]}"; do stop_worker $name; done
  ! pgrep -f "$work/model" >/dev/null || report "$what: processes are left: $(pgrep -fa "$work/model")"
}

endure "streams, rerun" 1 tcp rerun
endure "datagrams, rerun, no device of the leader's" 0 udp rerun
endure "datagrams, mask" 1 udp mask
exit $failed
