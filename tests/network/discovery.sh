#!/bin/bash
# limit: 240
# Workers that announce themselves and a leader that finds them, with an avahi-daemon on a bus of this test's own: those of this key alone, in
# order of their names; one with another model is left out; none; no daemon. Skips where avahi-daemon or dbus-daemon cannot be started.
. tests/network/helpers.sh
PATH=$PATH:/usr/sbin:/sbin
make_checkpoint "$work/model" tiny 4 50 2
make_checkpoint "$work/text" tiny-llama 2 64 3
for file in key other-key; do "$program" keygen "$work/$file" 2>/dev/null; done
key=(--key-file "$work/key")
make_picture "$work/1.ppm" 16

# ---- what needs no daemon
lead "no address of the network" 2 worker -c "$work/model" --announce --listen 127.0.0.1:0 "${key[@]}"; err "others cannot reach --listen 127.0.0.1:0"
lead "no key" 2 -c "$work/model" --peers auto "$work/1.ppm"; err "peers auto needs --key-file"
export DBUS_SYSTEM_BUS_ADDRESS=unix:path=$work/bus
lead "no daemon" 1 -c "$work/model" --peers auto "${key[@]}" "$work/1.ppm"
if grep -q "without libavahi-client" "$work/err"; then
  [ $failed = 0 ] || exit 1
  echo "skipped: this build has no libavahi-client"
  exit 77
fi
err "avahi-daemon does not answer"; err "give addresses by hand"
lead "nobody to announce with" 1 worker -c "$work/model" --announce --listen 0.0.0.0:0 "${key[@]}"; err "announce: avahi-daemon does not answer"

# ---- a bus and a daemon
skip() { [ $failed = 0 ] || exit 1; echo "skipped: $1"; exit 77; }
command -v avahi-daemon >/dev/null && command -v dbus-daemon >/dev/null || skip "no avahi-daemon and dbus-daemon here"
[ "$(id -u)" = 0 ] || skip "avahi-daemon starts as root alone"
cat >"$work/bus.conf" <<END
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><listen>unix:path=$work/bus</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/><allow user="*"/></policy></busconfig>
END
printf '[server]\nhost-name=astra-test-%d\nuse-ipv6=yes\nuse-ipv4=yes\n[wide-area]\nenable-wide-area=no\n' $$ >"$work/avahi.conf"
dbus-daemon --config-file="$work/bus.conf" --nofork --nopidfile >"$work/bus.log" 2>&1 &
bus=$!
for ((i = 0; i < 50; i++)); do [ ! -S "$work/bus" ] || break; sleep 0.1; done
start_daemon() {
  avahi-daemon --no-drop-root --no-chroot --no-rlimits --no-proc-title -f "$work/avahi.conf" >"$work/avahi.log" 2>&1 &
  daemon=$!
  for ((i = 0; i < 100; i++)); do
    ! grep -q "Server startup complete" "$work/avahi.log" || return 0
    running "$daemon" || break
    sleep 0.1
  done
  return 1
}
start_daemon || { kill "$bus" "$daemon" 2>/dev/null; skip "avahi-daemon cannot be started: $(tail -n 1 "$work/avahi.log")"; }
trap 'kill "$bus" "$daemon" "${listener[@]}" 2>/dev/null; rm -rf "$work"' EXIT

lead "nobody announces" 1 -c "$work/model" --peers auto "${key[@]}" "$work/1.ppm"; err "no worker with this key announces itself"
# Their names have the number of this process: others in the same network may run this test, too.
exec 300<"$work/key" # as many descriptors as whoever starts a worker may have open
start_worker b 0.0.0.0:0 -c "$work/model" "${key[@]}" --announce --name "board b $$"
start_worker a 0.0.0.0:0 -c "$work/model" "${key[@]}" --announce --name "board a $$"
start_worker other 0.0.0.0:0 -c "$work/model" --key-file "$work/other-key" --announce --name "of another $$"
start_worker same 0.0.0.0:0 -c "$work/model" --key-file "$work/other-key" --announce --name "board a $$"
announced() { # WORKER NAME
  for ((i = 0; i < 100; i++)); do ! grep -q "announced as \"$2\" on port ${address[$1]##*:}" "$work/$1.log" || return 0; sleep 0.1; done
  report "worker $1 is not announced as $2: $(tail -n 2 "$work/$1.log")"
}
exec 300<&-
announced a "board a $$"; announced b "board b $$"; announced other "of another $$"; announced same "board a $$ #2"
for pid in $(pgrep -P "${listener[b]}"); do [ ! -e "/proc/$pid/fd/300" ] || report "the process that announces keeps descriptor 300 open"; done
[ -e "/proc/${listener[b]}/fd/300" ] && pgrep -P "${listener[b]}" >/dev/null || report "there is no process that announces, or no descriptor 300"
lead "two are found" 0 -c "$work/model" --peers auto "${key[@]}" --json -v "$work/1.ppm"
port() { sed -n "s/^node $1 is worker .*:\([0-9]*\)\$/\1/p" "$work/err"; } # of a node
[[ "$(port 1) $(port 2) $(port 3)" = "${address[a]##*:} ${address[b]##*:} " ]] || report "$name: not a and b, in this order"
answer_of "$work/out" >"$work/answer"
lead "three nodes" 0 -c "$work/model" --nodes 3 --json "$work/1.ppm"
answer_of "$work/out" >"$work/expected"
[ -s "$work/answer" ] && cmp -s "$work/answer" "$work/expected" || report "another answer than --nodes 3"

name="a service"
"$(dirname "$program")/astra-serve" -c "$work/model" --peers auto "${key[@]}" --listen "unix:$work/http" --threads 1 >"$work/out" 2>"$work/err" &
service=$!
await "$work/err" "listening on" $service || report "$name does not listen"
[ "$(grep -c "found worker .*:${address[a]##*:}$" "$work/err")" = 1 ] || report "$name does not find worker a"
# One that announces itself later joins; when it is lost, another one takes its number.
states_become() { # STATES WHAT
  local begun=$SECONDS
  until curl -sS -m 10 --unix-socket "$work/http" http://localhost/v1/cluster 2>&1 | jq -rc '[.models[0].devices[].state] | join(" ")' >"$work/states" && [ "$(cat "$work/states")" = "$1" ]; do
    ((SECONDS - begun <= 40 * ${TIME_SCALE:-1})) || { report "$2: the devices are \"$(cat "$work/states")\", expected \"$1\""; return; }
    sleep 0.2
  done
}
classify() { # WHAT
  curl -sS -m 30 --unix-socket "$work/http" http://localhost/v1/images/classify -H 'Content-Type: image/x-portable-pixmap' --data-binary "@$work/1.ppm" >"$work/answer"
  jq -e '.results[0].classes | length > 0' "$work/answer" >/dev/null || report "$1: $(head -c 300 "$work/answer")"
  curl -sS --unix-socket "$work/http" http://localhost/v1/cluster | jq -e '[.models[0].devices[] | select(.state == "here") | .share > 0] | all' >/dev/null || report "$1: a device without tokens"
}
if command -v jq >/dev/null && command -v curl >/dev/null; then
  states_become "here here here" "before"
  start_worker late 0.0.0.0:0 -c "$work/model" "${key[@]}" --announce --name "late $$"
  states_become "here here here here" "a worker that came later"
  classify "with a worker that came later"
  kill -KILL $(sessions_of late) "${listener[late]}"
  states_become "here here here gone" "it died"
  start_worker late 0.0.0.0:0 -c "$work/model" "${key[@]}" --announce --name "later $$"
  states_become "here here here here" "another one in its place"
  classify "with another one in its place"
else
  echo "skipped: workers that come and go: jq and curl are needed"
fi
kill "$service"
wait "$service" || report "$name ends with $?"
until_free a b
[ -z "${listener[late]:-}" ] || stop_worker late

start_worker text 0.0.0.0:0 -c "$work/text" "${key[@]}" --announce --name "a text $$"
announced text "a text $$"
lead "another model" 0 -c "$work/model" --peers auto "${key[@]}" --json -v "$work/1.ppm"; err "another model"; err "going on without it"
kill -KILL $(pgrep -P "${listener[text]}")
for ((i = 0; i < 100; i++)); do ! grep -q "the process that announces this worker has ended" "$work/text.log" || break; sleep 0.1; done
[ $i -lt 100 ] || report "the loss of what announces is not said: $(tail -n 2 "$work/text.log")"
stop_worker text
stop_worker b

# Others learn it within a second or two: until a alone is found.
until_alone() {
  for ((i = 0; i < 20; i++)); do
    timeout 60 "$program" -c "$work/model" --peers "$2" "${key[@]}" --json -v --threads 1 "$work/1.ppm" >"$work/out" 2>"$work/err" &&
      [ "$(port 1)" = "${address[a]##*:}" ] && [ -z "$(port 2)" ] && return 0
    sleep 0.5
  done
  report "$1: not a alone"
}
until_alone "one left" auto
host=$(sed -n 's/^node 1 is worker .* at \(.*\):[0-9]*$/\1/p' "$work/err")
until_alone "found and named" "$host:${address[a]##*:},auto"

# The daemon starts again: it is told again.
kill "$daemon"
wait "$daemon"
start_daemon || report "the daemon does not start again: $(tail -n 1 "$work/avahi.log")"
until_alone "after the daemon's return" auto

start_worker unnamed 0.0.0.0:0 -c "$work/model" "${key[@]}" --announce
announced unnamed "$(uname -n | cut -c -63)\( #[0-9]*\)\?" # as the machine; others of this name may be announced in this network
for one in a other same unnamed; do stop_worker $one; done
[ $failed = 0 ] && echo "discovery: passed"
exit $failed
