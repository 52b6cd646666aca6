#!/bin/bash
# The numeric tests with each of OpenBLAS's kernels and each of ours that this processor can run: no test may rest on the last bit of one.
#   tests/kernels.sh PROGRAM|SCRIPT...      (from the repository root; `make test-kernels` calls it)
# The kernels that OpenBLAS chooses by itself run beside each of ours, the others beside one of ours, in turn: every kernel runs every test, but
# not every pair of kernels, which share no code. PAIRS=all runs all pairs.
# Which kernels really run is asked of the library: a combination that falls back to other ones is reported and counted as skipped. Builds
# in double have portable kernels alone, and run once with each of OpenBLAS's.
set -u
export BUILD=${BUILD:-build}
say_kernels=$BUILD/tests/autograd/say_kernels
workers=$(nproc 2>/dev/null || echo 2)
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'kill $(jobs -p) 2>/dev/null; wait; exit 130' INT TERM HUP
[ $# -gt 0 ] || { echo "no numeric test has such a name" >&2; exit 1; }

# OpenBLAS's kernels, and what a processor needs for them, as /proc/cpuinfo calls it.
cores='
Prescott     pni
Nehalem      ssse3 sse4_1 sse4_2
Sandybridge  avx
Haswell      avx2 fma
Zen          avx2 fma
SkylakeX     avx512f avx512cd avx512bw avx512dq avx512vl
Cooperlake   avx512f avx512cd avx512bw avx512dq avx512vl avx512_bf16
'
flags=" $(sed -n 's/^flags[^:]*: *//p' /proc/cpuinfo 2>/dev/null | head -n 1) "
read -r own _ <<<"$(env -u OPENBLAS_CORETYPE -u ASTRA_KERNELS "$say_kernels")" # what OpenBLAS chooses by itself

float=() double=()
for test in "$@"; do
  if [[ $test == *_double ]]; then double+=("$test"); else float+=("$test"); fi
done

# with CORE KERNELS COMMAND...: OpenBLAS's own choice is tested as it is made, without the variable
with() {
  if [ "$1" = "$own" ]; then env -u OPENBLAS_CORETYPE ASTRA_KERNELS="$2" "${@:3}"
  else env OPENBLAS_CORETYPE="$1" ASTRA_KERNELS="$2" "${@:3}"; fi
}

skipped=0
skip() { echo "skipped $1: $2"; skipped=$((skipped + 1)); }

# Runs the tests with one combination and prints a line, what failed, and what passed only at the second time. The last line of the log
# counts.
combination() { # LOG CORE KERNELS TEST...
  local log=$1 name="$2 x $3" start=$SECONDS
  if JOBS=1 with "$2" "$3" tests/run.sh "${@:4}" >"$log" 2>&1; then
    printf '%-8s%-28s %s  %d s\n' ok "$name" "$(tail -n 1 "$log")" $((SECONDS - start))
  else
    printf '%-8s%-28s %s  %d s\n%s\n' FAILED "$name" "$(tail -n 1 "$log")" $((SECONDS - start)) "$(grep -E '^(FAILED|failed:|    )' "$log")"
  fi
  grep '^passed only alone' "$log" || true
}

# Starts the combinations of one core, when there is room for them.
turn=0
test_core() { # CORE
  local core=$1 kernels got tests usable=() once=("${double[@]}")
  for kernels in portable avx2 avx512; do
    got=$(with "$core" "$kernels" "$say_kernels" 2>/dev/null)
    if [ "${got#* }" != "$kernels" ]; then
      skip "$core x $kernels" "this processor or build lacks ASTRA_KERNELS=$kernels"
    elif [ "${got% *}" != "$core" ]; then
      skip "$core x $kernels" "OpenBLAS runs ${got% *} instead of it"
    else
      usable+=("$kernels")
    fi
  done
  [ ${#usable[@]} -gt 0 ] || return
  [ "$core" = "$own" ] || [ "${PAIRS:-}" = all ] || { usable=("${usable[turn % ${#usable[@]}]}"); turn=$((turn + 1)); }
  for kernels in "${usable[@]}"; do
    tests=("${float[@]}" "${once[@]}") once=()
    [ ${#tests[@]} -gt 0 ] || continue
    while [ "$(jobs -rp | wc -l)" -ge "$workers" ]; do wait -n; done
    combination "$work/$core.$kernels" "$core" "$kernels" "${tests[@]}" &
  done
}

known=' '
while read -r core needs; do
  [ -n "$core" ] || continue
  known+="$core "
  lacks=
  for need in $needs; do [[ $flags == *" $need "* ]] || lacks+=" $need"; done
  if [ -n "$lacks" ]; then skip "$core" "this processor lacks$lacks"; else test_core "$core"; fi
done <<<"$cores"
[[ $known == *" $own "* ]] || test_core "$own"
wait

shopt -s nullglob
passed=0 failed=0 logs=("$work"/*)
for log in "${logs[@]}"; do
  if [[ $(tail -n 1 "$log") =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
    passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
  else
    failed=$((failed + 1))
  fi
done
[ ${#logs[@]} -gt 0 ] || { echo "no combination of kernels could be tested"; failed=1; }
echo "$passed passed, $failed failed, $skipped combinations skipped"
[ $failed -eq 0 ]
