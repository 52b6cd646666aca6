#!/bin/bash
# mostly waits
# limit: 120
# A worker leaves a leader that gives no sign of life for --idle-timeout, and serves the next one; a leader that has nothing to ask gives
# signs, however long it takes. The default worker listens where this user alone can reach it. A leader gives up a worker that hangs.
. tests/network/helpers.sh
make_checkpoint "$work/model" tiny-llama 2 64 3
cp tests/golden/stories260K/tok512.bin "$work/model/"
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
key=(--key-file "$work/key")
start_worker w 127.0.0.1:0 -c "$work/model" "${key[@]}" --idle-timeout 6
export XDG_RUNTIME_DIR=$work/run
mkdir -m 700 "$work/run"
start_worker l local -c "$work/model" --idle-timeout 6
[ "${address[l]}" = "unix:$work/run/astra/worker" ] || report "the default worker listens on ${address[l]}"
[ "$(stat -c %a "$work/run/astra")" = 700 ] || report "its folder has mode $(stat -c %a "$work/run/astra")"
[ "$(stat -c %a "$work/run/astra/worker")" = 600 ] || report "its socket has mode $(stat -c %a "$work/run/astra/worker")"

hold() { # NAME ARGUMENTS...: a leader that has its worker and waits for its prompt
  local name=$1
  shift
  mkfifo "$work/$name.pipe"
  "$program" -c "$work/model" --threads 1 --prompt-file - -m 2 -v "$@" <"$work/$name.pipe" >"$work/$name.out" 2>"$work/$name.err" 3>&- &
  holder[$name]=$!
}
declare -A holder
hold idle --peers local
exec 3>"$work/idle.pipe"
hold hung --peers "${address[w]}" "${key[@]}"
exec 4>"$work/hung.pipe"
for name in idle hung; do
  for ((i = 0; i < 200; i++)); do ! grep -qs "^node 1" "$work/$name.err" || break; sleep 0.1; done
done
session=$(session_of w)
[ -n "$session" ] && [ -n "$(sessions_of l)" ] || report "the leaders are not served"
kill -STOP "${holder[hung]}"
began=$SECONDS
"$program" -c "$work/model" --threads 1 --peers "${address[w]}" "${key[@]}" --wait 60 --prompt Once -m 2 >"$work/out" 2>"$work/err" || report "the next leader was not served"
[ $((SECONDS - began)) -lt $((20 * ${TIME_SCALE:-1})) ] || report "the next leader waited for $((SECONDS - began)) s"
grep -q "warning: session pid $session of .*: the leader gave no sign of life for 6 s" "$work/w.log" || report "the worker does not say why it left: $(cat "$work/w.log")"
# By now the other leader has been silent for longer than that, and is still there.
sleep 6
echo "Once upon" >&3
exec 3>&-
wait "${holder[idle]}" || report "the leader that had nothing to ask: $(cat "$work/idle.err")"
[ "$(grep -c 'serving the leader' "$work/l.log")" = 1 ] || report "the leader that had nothing to ask was left: $(cat "$work/l.log")"
kill -KILL "${holder[hung]}"
exec 4>&-
wait "${holder[hung]}" 2>/dev/null
# A worker that hangs takes connections and says nothing: it is called for as long as --wait, which the message tells.
kill -STOP "${listener[w]}"
"$program" -c "$work/model" --threads 1 --peers "${address[w]}" "${key[@]}" --on-failure abort --timeout 5 --wait 9 --prompt Once -m 2 >"$work/out" 2>"$work/err" &&
  report "a worker that hangs was not missed"
kill -CONT "${listener[w]}"
grep -q "worker ${address[w]}) fell silent before .*as long as --wait 9" "$work/err" || report "it is not said that a worker that hangs is called again"
grep -q "error: node 1 (worker ${address[w]}): did not answer within 1[0-9] s, in 2 calls; --wait sets" "$work/err" || report "the time that a worker was waited for is not told"
for one in w l; do stop_worker $one; done
[ ! -e "$work/run/astra/worker" ] || report "the socket of the default worker is still there"
exit $failed
