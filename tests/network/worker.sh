#!/bin/bash
# limit: 300
# Workers and leaders: the same answers as --nodes, bit for bit, over IPv4, IPv6, names and UNIX sockets; a worker stays up between requests
# and after a leader that vanished, serves one leader at a time and lets others wait or go; keys are asked for; SIGTERM leaves nothing.
. tests/network/helpers.sh
export XDG_CACHE_HOME=$work/cache
make_checkpoint "$work/model" tiny 4 50 4
make_checkpoint "$work/text" tiny-llama 2 64 3
make_cifar "$work/data"
make_checkpoint "$work/cifar" vit-cifar 8 256 4
cp tests/golden/stories260K/tok512.bin "$work/text/"
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
"$program" keygen "$work/other-key" 2>/dev/null
for i in 1 2 3; do make_picture "$work/$i.ppm" 16; done
pictures=("$work/1.ppm" "$work/2.ppm" "$work/3.ppm")

# The same command on the workers and on --nodes: equal NAME NODES PEER-ARGUMENTS -- ARGUMENTS...
equal() {
  local what=$1 nodes=$2 peers=()
  shift 2
  while [ "$1" != -- ]; do peers+=("$1"); shift; done
  shift
  lead "$what by --nodes" 0 --nodes "$nodes" --json "$@"
  answer_of "$work/out" >"$work/expected"
  lead "$what" 0 "${peers[@]}" --json "$@"
  answer_of "$work/out" >"$work/answer"
  [ -s "$work/answer" ] && cmp -s "$work/expected" "$work/answer" || report "$what: another answer than --nodes $nodes"
}

# ---- the same answers, on every kind of address
key=(--key-file "$work/key")
start_worker a 127.0.0.1:0 -c "$work/model" "${key[@]}"
start_worker b "unix:$work/socket" -c "$work/model" "${key[@]}"
start_worker c localhost:0 -c "$work/model" "${key[@]}" --name board
third=${address[c]}
lead "its name in an error" 1 -c "$work/cifar" --peers "$third" "${key[@]}" "${pictures[@]}"; err "worker board at $third"
v6=
if grep -q ' lo$' /proc/net/if_inet6 2>/dev/null; then
  start_worker d '[::1]:0' -c "$work/model" "${key[@]}"
  v6=,${address[d]}
else
  echo "skipped: there is no IPv6 here"
fi
before=${listener[a]}
all=${address[a]},${address[b]},$third
equal "one worker and the caller" 2 --peers "${address[a]}" "${key[@]}" -- -c "$work/model" "${pictures[@]}"
equal "one worker alone" 1 --peers "${address[a]}" --no-local "${key[@]}" -- -c "$work/model" "${pictures[@]}"
equal "three workers and the caller" 4 --peers "$all" "${key[@]}" -- -c "$work/model" "${pictures[@]}"
for transport in tcp "udp --reliability retransmit"; do
  # shellcheck disable=SC2086
  [ -z "$v6" ] || equal "IPv6, $transport" 2 --peers "${v6#,}" "${key[@]}" --transport $transport -- -c "$work/model" "${pictures[@]}"
  # shellcheck disable=SC2086
  [ -z "$v6" ] || equal "IPv6 beside IPv4, $transport" 3 --peers "${address[a]}$v6" "${key[@]}" --transport $transport -- -c "$work/model" "${pictures[@]}"
done
equal "3,1,1,1" 4 --peers "$all" "${key[@]}" -- -c "$work/model" --split 3,1,1,1 "${pictures[@]}"
grep -q '"fpar":0.3359375[,}]' "$work/out" || report "3,1,1,1: another attention rate"
equal "uneven" 3 --peers "${address[a]},$third" "${key[@]}" -- -c "$work/model" --split 5,2,1 "${pictures[@]}"
for transport in "--transport udp --reliability retransmit" "--transport udp --reliability retransmit --loss 10%"; do
  # shellcheck disable=SC2086
  equal "$transport" 4 --peers "$all" "${key[@]}" $transport -- -c "$work/model" "${pictures[@]}"
done
equal "blocks in parts" 4 --peers "$all" "${key[@]}" -- -c "$work/model" --batch 1 --parts 3 "${pictures[@]}"
equal "without the caller" 3 --peers "$all" --no-local "${key[@]}" -- -c "$work/model" --batch 2 "${pictures[@]}"
for ((i = 0; i < 2; i++)); do lead "again" 0 -c "$work/model" --peers "$all" "${key[@]}" "${pictures[@]}"; done
[ "${listener[a]}" = "$before" ] && running "$before" || report "worker a is another process"
[ "$(grep -c 'listening on' "$work/a.log")" = 1 ] || report "worker a has begun more than once"
# A leader that goes as it should is no failure, on either side; the log says when, who and how long.
silent err
for ((i = 0; i < 100; i++)); do [ -z "$(sessions_of a)" ] || { sleep 0.1; continue; }; break; done
! grep -h warning "$work/a.log" "$work/b.log" | grep -qv 'slower kernels' || report "a worker warns of a good run: $(grep -h warning "$work/a.log" "$work/b.log" | tail -n 3)"
stamp='^20[0-9][0-9]-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\.[0-9]{3}[+-][0-9]{2}:[0-9]{2} astra-infer: '
! grep -qvE "$stamp" "$work/a.log" || report "lines of a worker without a time: $(grep -vE "$stamp" "$work/a.log" | head -n 3)"
grep -qE "${stamp}serving the leader at 127\.0\.0\.1:[0-9]+ \(session pid [0-9]+\)$" "$work/a.log" || report "worker a does not say whom it serves"
grep -qE "${stamp}session pid [0-9]+ of pid [0-9]+ is over after [0-9.]+ s$" "$work/b.log" || report "worker b does not say whom it has served"
lead "verbose" 0 -c "$work/model" --peers "$third" "${key[@]}" -v "${pictures[0]}"
err "^node 1 is worker board at $third"

start_worker t 127.0.0.1:0 -c "$work/text" "${key[@]}"
start_worker u 127.0.0.1:0 -c "$work/text" "${key[@]}" --name words
equal "text" 3 --peers "${address[t]},${address[u]}" "${key[@]}" -- -c "$work/text" --prompt "Once upon a time there was a dog" -m 9
equal "drawn text" 3 --peers "${address[t]},${address[u]}" "${key[@]}" -- -c "$work/text" --prompt "Once" -m 9 --temperature 1 --seed 3

name="a chat, verbose"
timeout 60 "$bin/astra-chat" -c "$work/text" --peers "${address[u]}" "${key[@]}" --threads 1 -v >"$work/out" 2>"$work/err" </dev/null || report "$name: exit code $?"
err "^node 0 is pid "; err "^node 1 is worker words at ${address[u]}$"
name="a service, verbose"
"$bin/astra-serve" -c "$work/text" --peers "${address[u]}" "${key[@]}" --threads 1 -v --listen "unix:$work/http" >"$work/out" 2>"$work/err" </dev/null &
service=$!
await "$work/err" "listening on" $service || report "$name does not listen"
kill -TERM $service
wait $service || report "$name: exit code $?"
err "^node 0 is pid "; err "^node 1 is worker words at ${address[u]}$"
until_free u

# ---- who may call
lead "another key" 1 -c "$work/model" --peers "${address[a]}" --key-file "$work/other-key" "${pictures[0]}"; err "the other device refuses this one's key"
lead "no key" 1 -c "$work/model" --peers "${address[b]}" "${pictures[0]}"; err "it has a key\|has a key and this one has none"
start_worker open "unix:$work/open" -c "$work/model"
equal "without keys" 2 --peers "${address[open]}" -- -c "$work/model" "${pictures[@]}"
lead "a key where none is" 1 -c "$work/model" --peers "${address[open]}" "${key[@]}" "${pictures[0]}"; err "the other device has no key"
lead "open to all" 2 worker -c "$work/model" --listen 0.0.0.0:0; err "listen 0.0.0.0:0 needs --key-file"
lead "the loopback without a key" 2 worker -c "$work/model" --listen 127.0.0.1:0; err "listen 127.0.0.1:0 needs --key-file"
lead "a worker of the loopback without a key" 2 -c "$work/model" --peers "${address[a]}" "${pictures[0]}"; err "needs --key-file"
printf '%064d\n' 0 >"$work/zero-key" && chmod 600 "$work/zero-key"
lead "a key of zeroes" 1 -c "$work/model" --peers "${address[a]}" --key-file "$work/zero-key" "${pictures[0]}"; err "a key of zeroes is no secret"
lead "no key for others" 2 -c "$work/model" --peers "${address[open]},203.0.113.1:7433" "${pictures[0]}"; err "peers 203.0.113.1:7433 needs --key-file"
lead "open to all, before a model is looked for" 2 worker -c "$work/none" --listen 0.0.0.0:0; err "listen 0.0.0.0:0 needs --key-file"
lead "no such key, before a model is looked for" 1 worker -c "$work/none" --key-file "$work/no-key"; err "no-key: cannot open the key file"
lead "nobody listens" 1 -c "$work/model" --peers "unix:$work/nowhere" --on-failure abort "${pictures[0]}"; err "nowhere: connection refused"
lead "nobody at all" 1 -c "$work/model" --peers "127.0.0.1:1" "${key[@]}" --no-local "${pictures[0]}"; err "no device is left"
lead "the same worker twice" 1 -c "$work/model" --peers "${address[a]},localhost:${address[a]##*:}" "${key[@]}" "${pictures[0]}"; err "node 1 is the same worker, at 127.0.0.1:"
lead "nodes and peers" 2 -c "$work/model" --peers "$third" --nodes 2 "${pictures[0]}"; err "not both"
lead "no address" 2 -c "$work/model" --peers "here:x" "${pictures[0]}"; err "is not an address"

# ---- callers without a key keep no leader waiting
for ((i = 0; i < 10; i++)); do exec {junk[$i]}<>"/dev/tcp/127.0.0.1/${address[a]##*:}"; done
noise 100 >&"${junk[0]}"
printf "$hello_head"'\1\1\0\0\0\0\0\0sixteen bytes...' >&"${junk[1]}" # and no more of it
lead "among callers without a key" 0 -c "$work/model" --peers "${address[a]}" "${key[@]}" "${pictures[0]}"
for ((i = 0; i < 10; i++)); do exec {junk[$i]}>&-; done

# ---- a leader that vanishes; one at a time
hold() { # ARGUMENTS...: a leader that has the workers and waits for its prompt
  rm -f "$work/pipe" "$work/held.err"
  mkfifo "$work/pipe"
  "$program" -c "$work/text" --threads 1 --prompt-file - --peers "${address[t]}" "${key[@]}" -v "$@" <"$work/pipe" >"$work/held" 2>"$work/held.err" &
  holder=$!
  exec 3>"$work/pipe"
  for ((i = 0; i < 100; i++)); do grep -qs "^node 1" "$work/held.err" && return; sleep 0.1; done
  report "the holder did not start"
}
hold
served=$(sessions_of t)
kill -KILL $holder
wait $holder 2>/dev/null
exec 3>&-
pids=($served)
no_orphans
equal "after a leader that vanished" 2 --peers "${address[t]}" "${key[@]}" -- -c "$work/text" --prompt "Once" -m 3
[ "$(grep -c 'listening on' "$work/t.log")" = 1 ] || report "worker t has begun more than once"

"$program" eval --checkpoint "$work/cifar" --dataset cifar100 --data-dir "$work/data" --nodes 2 --samples 300 --threads 1 -q >"$work/nodes" || report "eval"
start_worker e 127.0.0.1:0 -c "$work/cifar" "${key[@]}" --precision fp32
evaluated=(eval -c "$work/cifar" -d cifar100 --data-dir "$work/data" --peers "${address[e]}" "${key[@]}" --transport tcp --precision fp32 --samples 300 -q)
lead "eval" 0 "${evaluated[@]}"
cp "$work/out" "$work/expected"
# A worker's matrices are not packed, those of eval's own nodes are: products are rounded otherwise, by which a code may become another one.
[ "$(grep "^sent" "$work/out")" = "$(grep "^sent" "$work/nodes")" ] || report "eval: another sent than --nodes 2"
awk '/mean loss/ { for (i = 1; i < NF; i++) if ($i == "loss") loss[++n] = $(i + 1) + 0 } END { d = loss[1] - loss[2]; exit !(n == 2 && d < 1e-3 && d > -1e-3) }' \
  "$work/out" "$work/nodes" || report "eval: another loss than --nodes 2"
for how in KILL INT; do
  "$program" eval -c "$work/cifar" -d cifar100 --data-dir "$work/data" --peers "${address[e]}" "${key[@]}" --precision fp32 --batch 16 >"$work/out" 2>"$work/err" &
  leader=$!
  for ((i = 0; i < 100; i++)); do [ -n "$(sessions_of e)" ] && break; sleep 0.1; done
  sleep 0.3
  pids=($(sessions_of e))
  [ ${#pids[@]} -gt 0 ] && kill -$how $leader || report "SIG$how: eval was over too soon"
  wait $leader 2>/dev/null
  no_orphans
done
lead "eval" 0 "${evaluated[@]}"
for row in top-1 sent; do
  [ "$(grep "^$row" "$work/out")" = "$(grep "^$row" "$work/expected")" ] || report "eval: another $row than before those leaders"
done

hold
lead "in the queue" 1 -c "$work/text" --peers "${address[t]}" "${key[@]}" --wait 1 --prompt Once -m 2; err "number 1 in its queue; --wait"
"$program" -c "$work/text" --threads 1 --peers "${address[t]}" "${key[@]}" --prompt Once -m 2 --json >"$work/second" 2>"$work/second.err" 3>&- &
second=$!
for ((i = 0; i < 200; i++)); do ! grep -q "number 1 in its queue" "$work/second.err" || break; sleep 0.1; done
grep -q "node 1 (worker ${address[t]}) is busy with another leader; this run is number 1 in its queue" "$work/second.err" ||
  report "the second leader does not say that it waits: $(cat "$work/second.err")"
[ -s "$work/second" ] && report "the second leader did not wait"
echo "Once upon" >&3
exec 3>&-
wait $holder || report "the holder failed"
wait $second || report "the second leader failed: $(cat "$work/second.err")"

# Leaders that want the same workers have them in one order, so that no two wait for each other: who waits for the first of two gives the
# second one back.
first=t behind=u
[[ ${address[t]} < ${address[u]} ]] || first=u behind=t
swap=${address[t]} address[t]=${address[$first]}
hold
address[t]=$swap
"$program" -c "$work/text" --threads 1 --peers "${address[$behind]},${address[$first]}" "${key[@]}" --prompt Once -m 2 --json >"$work/second" 2>"$work/second.err" 3>&- &
second=$!
for ((i = 0; i < 200; i++)); do ! grep -q "in its queue" "$work/second.err" || break; sleep 0.1; done
lead "the one behind" 0 -c "$work/text" --peers "${address[$behind]}" "${key[@]}" --wait 20 --prompt Once -m 2
running $second || report "the leader of both has not waited: $(cat "$work/second.err")"
echo "Once upon" >&3
exec 3>&-
wait $holder || report "the holder of the first failed"
wait $second || report "the leader of both failed: $(cat "$work/second.err")"
for turn in 1 2 3; do # both at once, as it comes
  "$program" -c "$work/text" --threads 1 --peers "${address[t]},${address[u]}" "${key[@]}" --prompt Once -m 2 >"$work/second" 2>"$work/second.err" &
  second=$!
  lead "two at once" 0 -c "$work/text" --peers "${address[u]},${address[t]}" "${key[@]}" --prompt Once -m 2
  wait $second || report "two at once: $(cat "$work/second.err")"
done
start_worker r 127.0.0.1:0 -c "$work/text" "${key[@]}" --busy refuse
swap=${address[t]} address[t]=${address[r]}
hold
lead "refused" 1 -c "$work/text" --peers "${address[r]}" "${key[@]}" --prompt Once -m 2; err "is busy with another leader, and no other may wait (--busy refuse)"
echo "Once upon" >&3
exec 3>&-
wait $holder || report "the holder of r failed"
address[t]=$swap

# ---- the end
hold
pids=($(sessions_of t))
stop_worker t
no_orphans
echo "Once upon" >&3
exec 3>&-
wait $holder || report "a leader whose worker was stopped does not go on by itself"
grep -q "node 1 (worker ${address[t]}): disconnected; continuing without it" "$work/held.err" || report "the worker that was stopped is not named: $(cat "$work/held.err")"
start_worker o "unix:$work/o" -c "$work/model" --once
lead "once" 0 -c "$work/model" --peers "${address[o]}" "${pictures[0]}"
wait "${listener[o]}" || report "--once: exit code"
for one in a b c u open e r ${v6:+d}; do stop_worker $one; done
[ ! -e "$work/socket" ] || report "the path of the UNIX socket is still there"
exit $failed
