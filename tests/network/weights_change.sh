#!/bin/bash
# limit: 180
# The files of the weights change under a running worker or run: nothing is answered from them, the file is named, the worker ends. A file
# that is replaced by renaming does no harm.
. tests/network/helpers.sh
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
make_checkpoint "$work/model" tiny 4 50 4
make_cifar "$work/data"
make_checkpoint "$work/cifar" vit-cifar 8 256 4
make_picture "$work/1.ppm" 16

# Another model of the same shape and size: each number of the last 4,000 bytes is another one.
mkdir "$work/other"
spoil() { # FROM TO
  cp "$1" "$2"
  noise 4000 | tr '\360-\377' '\0-\17' | dd of="$2" bs=1 seek=$(($(stat -c %s "$2") - 4000)) conv=notrunc status=none
}
spoil "$work/model/model.safetensors" "$work/other/model.safetensors"

ask() { # NAME EXIT-CODE CHECKPOINT: by the worker alone
  timeout 60 "$program" -c "$3" --peers "${address[w]}" --key-file "$work/key" --no-local --json "$work/1.ppm" --threads 1 >"$work/out" 2>"$work/err" </dev/null
  local got=$?
  [ $got = "$2" ] || report "$1: exit code $got, expected $2"
}

# Waits for the worker's end, which must be a failure that names the file.
ended() { # NAME
  for ((i = 0; i < 100 * ${TIME_SCALE:-1}; i++)); do running "${listener[w]}" || break; sleep 0.1; done
  ! running "${listener[w]}" || { report "$1: the worker goes on"; return; }
  wait "${listener[w]}"
  [ $? -eq 1 ] || report "$1: the worker's exit code"
  tail -n 1 "$work/w.log" | grep -q "error: .*model.safetensors was changed while it was in use: start again" || report "$1: the worker does not say why"
}

# ---- replaced by renaming: the worker goes on with the weights that it has
cp -r "$work/model" "$work/kept"
cp -r "$work/model" "$work/used"
start_worker w 127.0.0.1:0 --key-file "$work/key" -c "$work/used"
ask "before" 0 "$work/kept"
answer_of "$work/out" >"$work/expected"
[ -s "$work/expected" ] || report "there is no answer"
cp "$work/other/model.safetensors" "$work/used/new" && mv "$work/used/new" "$work/used/model.safetensors"
ask "a file renamed over it" 0 "$work/kept"
answer_of "$work/out" | cmp -s - "$work/expected" || report "a file renamed over it: another answer"
stop_worker w

# ---- written in place
rm -r "$work/used"; cp -r "$work/model" "$work/used"
start_worker w 127.0.0.1:0 --key-file "$work/key" -c "$work/used"
ask "before the copy" 0 "$work/kept"
cp "$work/other/model.safetensors" "$work/used/model.safetensors"
ask "a file copied over it" 1 "$work/kept"
[ ! -s "$work/out" ] || report "a file copied over it: an answer was given"
ended "a file copied over it"

# ---- in the middle of a session: written, and cut. The caller has the whole file, and goes on without the worker or ends; it does not hang.
during() { # NAME COMMAND...
  rm -r "$work/used"; cp -r "$work/cifar" "$work/used"
  start_worker w 127.0.0.1:0 --key-file "$work/key" -c "$work/used"
  timeout 100 "$program" eval -c "$work/cifar" --dataset cifar100 --data-dir "$work/data" --peers "${address[w]}" --key-file "$work/key" --no-local --threads 1 \
    >"$work/out" 2>"$work/err" </dev/null &
  local caller=$!
  for ((i = 0; i < 300; i++)); do [ -z "$(session_of w)" ] || break; sleep 0.1; done
  computes "$(session_of w)" 50
  "${@:2}"
  wait $caller
  [ $? -eq 1 ] || report "$1: the caller's exit code"
  grep -q "error: " "$work/err" || report "$1: the caller does not say why"
  ended "$1"
}
spoil "$work/cifar/model.safetensors" "$work/spoiled"
during "written in a session" cp "$work/spoiled" "$work/used/model.safetensors"
# The session is to notice it by itself: the listener, which looks at the file now and then and ends its session, is suspended until then.
cut_unseen() {
  local session
  session=$(session_of w)
  kill -STOP "${listener[w]}"
  truncate -s 5000 "$work/used/model.safetensors"
  for ((i = 0; i < 300 * ${TIME_SCALE:-1}; i++)); do running "$session" || break; sleep 0.1; done
  grep -q "model.safetensors was cut while it was in use\|warning: session pid" "$work/w.log" || report "cut in a session: nothing is said of the session"
  kill -CONT "${listener[w]}"
}
during "cut in a session" cut_unseen
! grep -q "died: signal" "$work/w.log" || report "cut in a session: it died of a signal"
! grep -q "^error: " "$work/w.log" || report "cut in a session: a line without the program's name: $(grep "^error: " "$work/w.log")"

# ---- processes of one machine
rm -r "$work/used"; cp -r "$work/cifar" "$work/used"
timeout 100 "$program" eval -c "$work/used" --dataset cifar100 --data-dir "$work/data" --nodes 2 --threads 1 --verbose \
  >"$work/out" 2>"$work/err" </dev/null &
caller=$!
wait_for_nodes 2
computes "${pids[0]}" 50
cp "$work/spoiled" "$work/used/model.safetensors"
wait $caller
[ $? -eq 1 ] || report "--nodes: exit code"
grep -q "model.safetensors was c[a-z]* while it was in use" "$work/err" || report "--nodes: the file is not named"
no_orphans
exit $failed
