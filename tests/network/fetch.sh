#!/bin/bash
# limit: 240
# Workers that fetch the leader's checkpoint: the same files and answers, once; after an end in the middle the rest alone; what was damaged on
# either side is noticed; several at a time; and a directory that is something else is left alone.
. tests/network/helpers.sh
make_checkpoint "$work/model" tiny 4 50 2
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
key=(--key-file "$work/key")
for i in 1 2; do make_picture "$work/$i.ppm" 16; done
pictures=("$work/1.ppm" "$work/2.ppm")

# lead NAME EXIT-CODE ARGUMENTS...
lead() {
  name=$1 code=$2
  shift 2
  timeout 100 "$program" "$@" --threads 1 >"$work/out" 2>"$work/err" </dev/null
  got=$?
  [ $got = "$code" ] || report "$name: exit code $got, expected $code"
}
err() { grep -q -e "$1" "$work/err" || report "$name: stderr lacks '$1'"; }
told() { grep -q -e "$2" "$work/$1.log" || report "$name: worker $1 does not say '$2': $(tail -n 5 "$work/$1.log")"; } # WORKER PATTERN
same_files() { # DIR
  local file
  for file in config.json preprocessor_config.json model.safetensors selftest.safetensors; do
    [ ! -e "$work/model/$file" ] || cmp -s "$work/model/$file" "$1/$file" || report "$name: $1/$file is another file"
  done
  [ ! -e "$1.partial" ] || report "$name: $1.partial is left"
}
expect_answer() { # COUNT
  [ -f "$work/expected$1" ] || { timeout 60 "$program" -c "$work/model" --nodes "$1" --json --threads 1 "${pictures[@]}" 2>/dev/null >"$work/all"; answer_of "$work/all" >"$work/expected$1"; }
  answer_of "$work/out" >"$work/answer"
  [ -s "$work/answer" ] && cmp -s "$work/expected$1" "$work/answer" || report "$name: another answer than --nodes $1"
}

# ---- once, and then it is there
start_worker a 127.0.0.1:0 --fetch "$work/a/model" "${key[@]}"
lead "the first run" 0 -c "$work/model" --peers "${address[a]}" "${key[@]}" --json "${pictures[@]}"
err "fetches the checkpoint: [0-9]* files"; err "has fetched the checkpoint"
told a "fetched .*(100%"; told a "the checkpoint is loaded"
same_files "$work/a/model"
expect_answer 2
lead "the second run" 0 -c "$work/model" --peers "${address[a]}" "${key[@]}" --json "${pictures[@]}"
! grep -q fetch "$work/err" || report "$name fetches again"
expect_answer 2
lead "the self-test" 0 selftest -c "$work/model"
timeout 60 "$program" selftest -c "$work/a/model" >"$work/again" 2>&1 || report "the self-test of what was fetched fails: $(tail -n 1 "$work/again")"
stop_worker a
start_worker a "${address[a]}" --fetch "$work/a/model" "${key[@]}"
lead "a worker that starts again" 0 -c "$work/model" --peers "${address[a]}" "${key[@]}" --json "${pictures[@]}"
! grep -q fetch "$work/err" "$work/a.log" || report "$name fetches again"
expect_answer 2

# ---- two at a time, while one has it
start_worker b 127.0.0.1:0 --fetch "$work/b" "${key[@]}"
start_worker c "unix:$work/socket" --fetch "$work/c" "${key[@]}"
lead "two fetch" 0 -c "$work/model" --peers "${address[a]},${address[b]},${address[c]}" "${key[@]}" --json "${pictures[@]}"
[ "$(grep -c "has fetched the checkpoint" "$work/err")" = 2 ] || report "$name: not two have fetched"
same_files "$work/b"; same_files "$work/c"
expect_answer 4
for one in a b c; do stop_worker $one; done

# ---- ended in the middle
cp -r "$work/model" "$work/large"
bytes=$((192 << 20))
truncate -s $bytes "$work/large/notes.json"
part() { find "$work/$1.partial" -name '*.part' -size +4096k 2>/dev/null | head -n 1; } # of DIR
until_part() { # WORKER: some megabytes have come
  for ((i = 0; i < 3000; i++)); do [ -z "$(part "$1")" ] || return 0; sleep 0.01; done
  report "worker $1 fetches nothing"
}
lead_behind() { # ARGUMENTS...
  timeout 100 "$program" "$@" --threads 1 >"$work/out" 2>"$work/err" </dev/null &
  leader=$!
}
name="killed in the middle"
start_worker d 127.0.0.1:0 --fetch "$work/d" "${key[@]}"
lead_behind -c "$work/large" --peers "${address[d]}" "${key[@]}" --json "${pictures[@]}"
until_part d
session=$(session_of d)
kill -STOP "$session"
kill -KILL "${listener[d]}" "$session"
wait "${listener[d]}" 2>/dev/null
file=$(part d)
[ -n "$file" ] && [ "$(stat -c %s "$file")" -lt $bytes ] || report "$name: no part of a file is left"
[ ! -e "$work/d" ] || report "$name: the directory is there already"
start_worker d "${address[d]}" --fetch "$work/d" "${key[@]}"
wait $leader || report "$name: the leader ends with $?"
told d "notes.json: [0-9.]* of 201.3 MB are here from before"
same_files "$work/d"
expect_answer 2
sent=$(sed -n 's/.*(\([0-9]*\)\.[0-9]* MB were sent).*/\1/p' "$work/err")
[ "${sent:-999}" -lt 200 ] || report "$name: $sent MB were sent for the rest"
stop_worker d

name="damaged meanwhile"
start_worker e 127.0.0.1:0 --fetch "$work/e" "${key[@]}"
lead_behind -c "$work/large" --peers "${address[e]}" "${key[@]}" --json "${pictures[@]}"
until_part e
session=$(session_of e)
kill -STOP "$session"
kill -KILL "${listener[e]}" "$session"
wait "${listener[e]}" 2>/dev/null
printf x | dd of="$(part e)" conv=notrunc status=none
start_worker e "${address[e]}" --fetch "$work/e" "${key[@]}"
wait $leader || report "$name: the leader ends with $?"
told e "notes.json: what an earlier run has left is damaged; fetching it from the beginning"
cmp -s "$work/large/notes.json" "$work/e/notes.json" || report "$name: another file"
same_files "$work/e"
stop_worker e

name="changed while it is sent"
start_worker f 127.0.0.1:0 --fetch "$work/f" "${key[@]}"
lead_behind -c "$work/large" --peers "${address[f]}" "${key[@]}" --json "${pictures[@]}"
until_part f
kill -STOP "$(session_of f)"
printf x | dd of="$work/large/notes.json" conv=notrunc bs=1 seek=$((bytes - 1)) status=none
kill -CONT "$(session_of f)"
wait $leader
[ $? = 1 ] || report "$name: the leader did not fail"
err "node 1 (worker ${address[f]}): notes.json did not arrive as it was offered"
told f "notes.json did not arrive as it was offered"
[ ! -e "$work/f" ] || report "$name: the directory is there"
stop_worker f

# ---- what is refused
mkdir "$work/other"
echo mine >"$work/other/file"
lead "a directory of something else" 1 worker --fetch "$work/other" --listen "unix:$work/socket"; err "has files in it, but no checkpoint"
[ "$(cat "$work/other/file")" = mine ] || report "$name: it was touched"
lead "both" 2 worker --fetch "$work/x" -c "$work/model"; err "give one of the two"
lead "none" 2 worker; err "or --fetch DIR"

# ---- a service begins without the one that fetches, which joins
name="a service"
if command -v curl >/dev/null; then
  start_worker g 127.0.0.1:0 -c "$work/large" "${key[@]}"
  start_worker h 127.0.0.1:0 --fetch "$work/h" "${key[@]}"
  "$(dirname "$program")/astra-serve" --checkpoint "$work/large" --peers "${address[g]},${address[h]}" "${key[@]}" --listen "unix:$work/http" --threads 1 >"$work/out" 2>"$work/err" &
  service=$!
  for ((i = 0; i < 300; i++)); do curl -sf --unix-socket "$work/http" http://localhost/ready >/dev/null && break; sleep 0.1; done
  classify() { curl -sf --unix-socket "$work/http" -H 'Content-Type: image/x-portable-pixmap' --data-binary "@$work/1.ppm" http://localhost/v1/images/classify >>"$work/classes"; }
  classify || report "$name does not answer"
  for ((i = 0; i < 300; i++)); do
    classify || { report "$name does not answer any more"; break; }
    curl -sf --unix-socket "$work/http" http://localhost/v1/cluster | jq -e '[.models[0].devices[] | select(.state == "here")] | length == 3' >/dev/null && break
    sleep 0.1
  done
  [ $i -lt 300 ] || report "$name: the worker that fetched does not join"
  err "has fetched the checkpoint"
  kill "$service"
  wait "$service"
  stop_worker g
  stop_worker h
fi
[ $failed = 0 ] && echo "fetching: passed"
exit $failed
