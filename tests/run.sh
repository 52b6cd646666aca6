#!/bin/bash
# Runs test programs and scripts, each in a process group of its own with a time limit, and counts their cases.
#   tests/run.sh PROGRAM|SCRIPT...      (from the repository root; `make test` and `make check` call it)
# A program prints cmocka's summary lines. A script exits 0 (passed), 77 (skipped) or anything else (failed). Lines that begin with "skipped:" say
# what was left out, and are shown. A crash, a timeout or an output without a summary is one failure. The limit is 120 s unless the source says
# "limit: SECONDS" near its top; TIME_SCALE multiplies it (sanitizers are slow). Each has an empty folder of its own as TMPDIR: what it leaves
# there is a failure. Its HOME and its cache are its own, too: the user's are neither read nor written. RUNNER, a command, runs programs (of another processor, for example).
# JOBS tests (one per processor) run at a time, those with the largest limits first. A source may say near its top that its test "runs alone",
# after all others, as it measures time or needs all cores; or that it "mostly waits", which takes none of the JOBS places. A test that failed
# beside others is run once more at the end, alone, and that run counts: its neighbours may have taken the time that it had. Not so one that
# crashed (what cmocka catches included) or that a sanitizer stopped. The last lines name those that passed only then, and those that failed.
shopt -s nullglob dotglob
set -um # job control: background tests lead their own process group and get SIGINT as usual

BUILD=${BUILD:-build}
export BUILD
export LC_ALL=C # what tests read and write: numbers with points, English messages, names in the order of their bytes
unset ASTRA_BACKEND http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY CURL_CA_BUNDLE CURL_HOME XDG_CONFIG_HOME SSL_CERT_FILE SSL_CERT_DIR # their servers are on this machine
PATH=$PWD/$BUILD/bin:$PATH
jobs=${JOBS:-$(nproc 2>/dev/null || echo 2)}
work=$(mktemp -d) || exit 1

discard() { # FOLDER, of which a broken test may have locked parts
  rm -rf "$1" 2>/dev/null && return
  chmod -R u+rwx "$1" 2>/dev/null
  rm -rf "$1"
}

# ---- what a source says of its test: the limit in seconds, and whether it runs alone

source_of() { # PROGRAM
  local name=${1#"$BUILD"/tests/}
  case $name in
    *.sh) echo "$name" ;;
    fuzz/replay_*) echo "tests/fuzz/fuzz_${name#fuzz/replay_}.c" ;;
    *) echo "tests/unit/${name%_double}.c" ;;
  esac
}

read_source() { # PROGRAM: sets limit and place: together, alone or waiting
  local line source count=0
  limit=120 place=together
  source=$(source_of "$1")
  [ -f "$source" ] || return
  while read -r line && [ $((count += 1)) -le 15 ]; do
    if [[ $line =~ limit:\ *([0-9]+) ]]; then limit=${BASH_REMATCH[1]}; fi
    if [[ $line == *"runs alone"* ]]; then place=alone; elif [[ $line == *"mostly waits"* ]]; then place=waiting; fi
  done <"$source"
}

# ---- one test, in a process of its own that leaves a report and counts in its folder

# Sets good, bad, left_out from the summary lines in $output; a program may run several groups.
count_cases() {
  local line
  good=0 bad=0 left_out=0
  while IFS= read -r line; do
    if [[ $line =~ ^\[\ \ (PASSED|FAILED|SKIPPED|ERROR)\ *\]\ ([0-9]+)\ test\(s\) ]]; then
      case ${BASH_REMATCH[1]} in
        PASSED) good=$((good + BASH_REMATCH[2])) ;;
        SKIPPED) left_out=$((left_out + BASH_REMATCH[2])) ;;
        *) bad=$((bad + BASH_REMATCH[2])) ;;
      esac
    fi
  done <"$output"
}

# Sets status, timed_out, seconds and busy: the processor time of the test and of the children that it has waited for.
run() { # PROGRAM
  local start command
  if [[ $1 == *.sh ]]; then command=(bash "$1"); else read -r -a command <<<"${RUNNER:-} $1"; fi
  start=${EPOCHREALTIME/[.,]/}
  # Sanitizers report into files: also of processes whose output and end nobody looks at, as of a worker's sessions.
  ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}log_path=$folder/sanitizer" UBSAN_OPTIONS="${UBSAN_OPTIONS:+$UBSAN_OPTIONS:}log_path=$folder/sanitizer" \
    TSAN_OPTIONS="${TSAN_OPTIONS:+$TSAN_OPTIONS:}log_path=$folder/sanitizer" timeout --kill-after=10 "$limit" "${command[@]}" </dev/null >"$output" 2>&1 &
  group=$!
  wait "$group" 2>/dev/null
  status=$?
  kill -KILL -- "-$group" 2>/dev/null # what a broken test left behind
  group=
  cat /dev/null "$folder"/sanitizer.* >>"$output"
  local took=$((${EPOCHREALTIME/[.,]/} - start))
  seconds=$(printf '%d.%d' $((took / 1000000)) $((took / 100000 % 10)))
  times >"$folder/times" # this shell's own, then its children's: "0m1.234s 0m0.056s"
  local line tenths=0
  while read -r line; do
    if [[ $line =~ ^([0-9]+)m([0-9]+)[.,]([0-9])[0-9]*s\ ([0-9]+)m([0-9]+)[.,]([0-9]) ]]; then
      tenths=$((600 * (BASH_REMATCH[1] + BASH_REMATCH[4]) + 10 * (BASH_REMATCH[2] + BASH_REMATCH[5]) + BASH_REMATCH[3] + BASH_REMATCH[6]))
    fi
  done <"$folder/times"
  busy=$((tenths / 10)).$((tenths % 10))
  timed_out=
  if [ $status -eq 124 ] || { [ $status -eq 137 ] && [ $took -ge $((limit * 1000000)) ]; }; then timed_out="no end after $limit s"; fi
}

# Sets good, bad, left_out, crashed (0 or 1) and why. What a test that failed leaves behind does not count twice.
decide() { # PROGRAM
  why='' crashed=0
  if [ $status -gt 128 ] || { [ $status -ne 0 ] && grep -q 'Sanitizer\|runtime error:\|failed with exception:\|Segmentation fault\|Aborted' "$output"; }; then crashed=1; fi
  if [[ $1 == *.sh ]]; then
    good=0 bad=0 left_out=0
    case $status in
      0) good=1 ;;
      77) left_out=1 ;;
      *) bad=1 why="exit status $status" ;;
    esac
    if [ $bad -eq 0 ] && grep -qE '^[^ ]*\.sh: line [0-9]+: .*: command not found$' "$output"; then good=0 bad=1 why="it calls a command that does not exist"; fi
  else
    count_cases
    if [ $status -ne 0 ] && [ $bad -eq 0 ]; then bad=1 why="exit status $status without a failed case"; fi
    if [ $status -gt 128 ]; then why="killed by signal $((status - 128)) ($(kill -l $((status - 128)) 2>/dev/null))"; fi
    if [ $status -eq 0 ] && [ $((good + bad + left_out)) -eq 0 ]; then bad=1 why="no test results in its output"; fi
  fi
  local left=("$TMPDIR"/*)
  if [ ${#left[@]} -gt 0 ] && [ $bad -eq 0 ]; then
    bad=1 why="left behind in TMPDIR: ${left[*]#"$TMPDIR/"}"
    if [[ $1 == *.sh ]]; then good=0; fi
  fi
  if compgen -G "$folder/sanitizer.*" >/dev/null; then crashed=1; fi
  if [ $crashed -eq 1 ] && [ $bad -eq 0 ]; then
    bad=1 left_out=0 why="one of its processes crashed, or a sanitizer reports"
    if [[ $1 == *.sh ]]; then good=0; fi
  fi
  if [ -n "$timed_out" ]; then why=$timed_out crashed=0; fi
}

report() { # PROGRAM
  local name=${1#"$BUILD"/tests/} word=ok line
  if [ $bad -gt 0 ]; then word=FAILED; elif [ $good -eq 0 ]; then word=skipped; fi
  printf '%-8s%-46s %4d passed' "$word" "${name#tests/}" "$good"
  if [ $bad -gt 0 ]; then printf ', %d failed' "$bad"; fi
  if [ $left_out -gt 0 ]; then printf ', %d skipped' "$left_out"; fi
  printf '  %s s, %s s CPU%s\n' "$seconds" "$busy" "${why:+  ($why)}"
  if [ $bad -gt 0 ]; then
    while IFS= read -r line; do echo "    $line"; done < <(tail -c 20000 "$output" | tail -n 200)
  else # what was left out, a part of a test that passed included, and why: the lines that say so
    while IFS= read -r line; do
      if [[ $line == "skipped:"* ]]; then echo "    $line"; fi
    done <"$output"
  fi
}

run_one() { # NUMBER PROGRAM
  local folder=$work/$1 output=$work/$1/output group=
  set -m
  trap '[ -z "$group" ] || kill -KILL -- "-$group" 2>/dev/null' EXIT
  trap 'exit 130' INT TERM HUP
  export TMPDIR=$folder/t # short: addresses of UNIX sockets have little room
  export HOME=$folder/home XDG_CACHE_HOME=$folder/cache
  unset ASTRA_HOME
  mkdir -p "$TMPDIR" "$HOME"
  run "$2"
  decide "$2"
  report "$2" >"$folder/report"
  discard "$TMPDIR"
  echo "$good $bad $left_out $crashed" >"$folder/counts"
}

# ---- all of them

declare -A program_of=() process_of=() place_of=() # of the tests under way, by number
number=0 tests=$# passed=0 failed=0 skipped=0 lost='' second='' # those that failed for good, and those that passed when they ran again

finish() {
  [ ${#process_of[@]} -eq 0 ] || kill -TERM "${process_of[@]}" 2>/dev/null
  wait
  discard "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

start() { # PROGRAM LIMIT PLACE
  number=$((number + 1)) limit=$(($2 * ${TIME_SCALE:-1}))
  mkdir "$work/$number"
  echo "$2" >"$work/$number/limit"
  run_one "$number" "$1" &
  program_of[$number]=$1 process_of[$number]=$! place_of[$number]=$3
}

# Prints what has ended.
collect() {
  local n good bad left_out crashed
  for n in "${!process_of[@]}"; do
    if [ ! -s "$work/$n/counts" ] && kill -0 "${process_of[$n]}" 2>/dev/null; then continue; fi
    if [ -s "$work/$n/counts" ]; then
      printf '%s\n' "$(<"$work/$n/report")"
      read -r good bad left_out crashed <"$work/$n/counts"
      if [ "$bad" -gt 0 ] && [ "$crashed" = 0 ] && [ $tests -gt 1 ] && [ "${place_of[$n]}" != alone ] && [ "${place_of[$n]}" != again ]; then
        echo "        runs again alone, at the end"
        echo "again $(cat "$work/$n/limit") ${program_of[$n]}" >>"$work/again"
        good=0 bad=0 left_out=0
      elif [ "$bad" -gt 0 ]; then lost+=" ${program_of[$n]}"
      elif [ "${place_of[$n]}" = again ]; then second+=" ${program_of[$n]}"; fi
      passed=$((passed + good)) failed=$((failed + bad)) skipped=$((skipped + left_out))
    else
      printf '%-8s%s: killed together with what watched it\n' FAILED "${program_of[$n]}"
      lost+=" ${program_of[$n]}"
      failed=$((failed + 1))
    fi
    discard "$work/$n"
    unset "process_of[$n]" "program_of[$n]" "place_of[$n]"
  done
}

has_room() { # AT-A-TIME
  local place busy=0
  for place in "${place_of[@]}"; do [ "$place" = waiting ] || busy=$((busy + 1)); done
  [ $busy -lt "$1" ]
}

run_all() { # AT-A-TIME, then lines "PLACE LIMIT PROGRAM" on standard input
  local program limit place
  while read -r place limit program; do
    until [ "$place" = waiting ] || has_room "$1"; do wait -n; collect; done
    start "$program" "$limit" "$place"
  done
  while [ ${#process_of[@]} -gt 0 ]; do wait -n; collect; done
}

if [ $# -eq 0 ]; then
  echo "no test has such a name" >&2
  exit 1
fi
: >"$work/together" >"$work/alone" >"$work/again"
for program in "$@"; do
  read_source "$program"
  echo "$place $limit $program" >>"$work/$([ $place = alone ] && echo alone || echo together)"
done
run_all "$jobs" < <(sort -s -k 1,1r -k 2,2nr "$work/together") # first those that wait, then by limits
run_all 1 <"$work/alone"
run_all 1 <"$work/again"
[ -z "$second" ] || echo "passed only alone, after a failure beside others:$second"
[ -z "$lost" ] || echo "failed:$lost"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed -eq 0 ]
