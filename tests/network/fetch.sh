#!/bin/bash
# limit: 240
# Workers that fetch the leader's checkpoint: the same files and answers, once; after an end in the middle the rest alone; what was damaged on
# either side is noticed; several at a time; and a directory that is something else is left alone.
. tests/network/helpers.sh
make_checkpoint "$work/model" tiny 4 50 2
mkfifo "$work/model/pipe.json" # is no file to be sent, and whoever opened it would wait
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
key=(--key-file "$work/key")
for i in 1 2; do make_picture "$work/$i.ppm" 16; done
pictures=("$work/1.ppm" "$work/2.ppm")

lead() { attempt "$1" "$2" timeout 100 "$program" "${@:3}" --threads 1; } # NAME EXIT-CODE ARGUMENTS...: it waits for what is fetched
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
err "fetches the checkpoint: [0-9]* files, "; err "has fetched the checkpoint"
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
start_worker p 127.0.0.1:0 --fetch "$work/p" "${key[@]}"
lead "a plan" 0 plan -c "$work/model" --peers "${address[p]}" "${key[@]}"
same_files "$work/p"
stop_worker p

# ---- into a directory that is named by a link; where a file system is mounted the name cannot be replaced
mkdir "$work/elsewhere" "$work/elsewhere/l"
ln -s elsewhere/l "$work/l"
start_worker l 127.0.0.1:0 --fetch "$work/l/" "${key[@]}"
lead "a link" 0 plan -c "$work/model" --peers "${address[l]}" "${key[@]}"
same_files "$work/l"
[ -L "$work/l" ] && [ -f "$work/elsewhere/l/config.json" ] && [ ! -e "$work/elsewhere/l.partial" ] || report "$name: the checkpoint is not where it points"
stop_worker l
ln -s nowhere "$work/dangling"
lead "a link to nothing" 1 worker --fetch "$work/dangling" --listen "unix:$work/socket"; err "dangling: a link to nothing"
mkdir "$work/mounted"
if unshare -rm mount -t tmpfs none "$work/mounted" 2>/dev/null; then
  name="a mount point"
  unshare -rm bash -c 'mount -t tmpfs none "$1" && exec timeout 20 "$2" worker --fetch "$1" --listen "unix:$3"' - "$work/mounted" "$program" "$work/socket" 2>"$work/err"
  got=$?
  [ $got = 1 ] || report "$name: exit code $got, expected 1"
  err "mounted: a file system is mounted there.*such as $work/mounted/model"
else
  echo "skipped: a mount point: no user namespaces here"
fi

# ---- a GGUF file, which may have any name
"$build/tests/infer/make_gguf" tests/golden/stories260K "$work/stories.Q8_0.gguf" Q8_0 || report "make_gguf"
start_worker q 127.0.0.1:0 --fetch "$work/q" "${key[@]}"
text=(-c "$work/stories.Q8_0.gguf" --strategy single -p "Once upon" -m 9 --json)
lead "a GGUF file by --nodes" 0 --nodes 2 "${text[@]}"
answer_of "$work/out" >"$work/expected"
lead "a GGUF file" 0 --peers "${address[q]}" "${key[@]}" "${text[@]}"
answer_of "$work/out" >"$work/answer"
[ -s "$work/answer" ] && cmp -s "$work/expected" "$work/answer" || report "$name: another text"
cmp -s "$work/stories.Q8_0.gguf" "$work/q/model.gguf" || report "$name: another file"
stop_worker q
start_worker q "${address[q]}" --fetch "$work/q" "${key[@]}"
lead "a GGUF file again" 0 --peers "${address[q]}" "${key[@]}" "${text[@]}"
! grep -q fetch "$work/err" "$work/q.log" || report "$name: fetches again"
stop_worker q

# ---- ended in the middle: a worker that may write files of 16 MB at most, so that the process that fetches dies there, each time
cp -r "$work/model" "$work/large"
bytes=$((64 << 20))
truncate -s $bytes "$work/large/notes.json"
start_limited() { # NAME: sets listener[NAME] and address[NAME]
  : >"$work/$1.log"
  (ulimit -f 16384; exec "$program" worker --listen 127.0.0.1:0 --threads 1 --fetch "$work/$1" "${key[@]}" 2>"$work/$1.log") &
  listener[$1]=$!
  for ((i = 0; i < 300; i++)); do
    address[$1]=$(sed -n 's/.*listening on //p' "$work/$1.log")
    [ -z "${address[$1]}" ] || return 0
    sleep 0.1
  done
  report "worker $1 did not start: $(cat "$work/$1.log")"
}
part() { find "$work/$1.partial" -name '*.part' 2>/dev/null | head -n 1; } # of DIR
lead_behind() { # ARGUMENTS...
  timeout 100 "$program" "$@" --threads 1 >"$work/out" 2>"$work/err" </dev/null &
  leader=$!
}
# A leader that has begun with it stays, and the worker is killed.
begin_and_kill() { # NAME
  start_limited "$1"
  lead_behind -c "$work/large" --peers "${address[$1]}" "${key[@]}" --json "${pictures[@]}"
  for ((i = 0; i < 300; i++)); do ! grep -q "died: signal" "$work/$1.log" || break; sleep 0.05; done
  kill -KILL "${listener[$1]}"
  wait "${listener[$1]}" 2>/dev/null
  file=$(part "$1")
  [ -n "$file" ] && [ "$(stat -c %s "$file")" -gt 8388608 ] && [ "$(stat -c %s "$file")" -lt $bytes ] || report "$name: no part of a file is left"
  [ ! -e "$work/$1" ] || report "$name: the directory is there already"
}
name="killed in the middle"
begin_and_kill d
start_worker d "${address[d]}" --fetch "$work/d" "${key[@]}"
wait $leader || report "$name: the leader ends with $?"
err "has not fetched all of the checkpoint: it closed the connection"
told d "notes.json: 1[67]\.[0-9] of 67.1 MB are here from before"
cmp -s "$work/large/notes.json" "$work/d/notes.json" || report "$name: another file"
same_files "$work/d"
expect_answer 2
sent=$(sed -n 's/.*has fetched.*(\([0-9]*\)\.[0-9]* MB were sent).*/\1/p' "$work/err")
[ "${sent:-999}" -lt 60 ] || report "$name: $sent MB were sent for the rest"
stop_worker d

name="damaged meanwhile"
begin_and_kill e
printf x | dd of="$(part e)" conv=notrunc status=none
start_worker e "${address[e]}" --fetch "$work/e" "${key[@]}"
wait $leader || report "$name: the leader ends with $?"
told e "notes.json: what an earlier run has left is damaged; fetching it from the beginning"
cmp -s "$work/large/notes.json" "$work/e/notes.json" || report "$name: another file"
same_files "$work/e"
stop_worker e

name="changed after it was offered"
begin_and_kill f
printf x | dd of="$work/large/notes.json" conv=notrunc bs=1 seek=$((bytes - 1)) status=none
start_worker f "${address[f]}" --fetch "$work/f" "${key[@]}"
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
mkdir "$work/k.partial"
echo mine >"$work/k.partial/file"
start_worker k 127.0.0.1:0 --fetch "$work/k" "${key[@]}"
lead "something else where the files are to come" 1 -c "$work/model" --peers "${address[k]}" "${key[@]}" --json "${pictures[@]}"
err "node 1 (worker ${address[k]}): .*k.partial has file in it, which no fetch has written"
told k "which no fetch has written"
[ "$(cat "$work/k.partial/file")" = mine ] || report "$name: it was touched"
stop_worker k
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
else
  echo "skipped: a service: curl is needed"
fi
[ $failed = 0 ] && echo "fetching: passed"
exit $failed
