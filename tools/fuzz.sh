#!/bin/bash
# Fuzzes every target of tests/fuzz for SECONDS each, from the seeds in tests/fuzz/seeds/NAME.
# With clang: coverage-guided, under the address and undefined-behaviour sanitizers. Without: the same sanitizers with gcc, and
# random mutations of the seeds (tests/fuzz/replay_main.c). An input that fails is left in build-fuzz/findings.
set -u
cd "$(dirname "$0")/.." || exit 1
seconds=${1:-20}
sanitize="-fsanitize=address,undefined -fno-sanitize-recover=undefined"
findings=build-fuzz/findings
replays=build-fuzz-replay # gcc's objects and clang's do not mix
mkdir -p $findings

has_engine() {
  command -v clang >/dev/null && echo 'int LLVMFuzzerTestOneInput(void *p, unsigned long n) { return p && n ? 0 : 0; }' |
    clang -x c -fsanitize=fuzzer,address,undefined - -o build-fuzz/probe 2>/dev/null
}

failed=0 engine=
if has_engine; then
  engine=clang
  make --no-print-directory -j"$(nproc)" fuzz-programs BUILD=build-fuzz CC=clang CFLAGS="-O1 -g" \
    SANITIZE="-fsanitize=fuzzer-no-link $sanitize" || exit 1
else
  echo "fuzz: no clang with its fuzzing engine here (Debian: clang libclang-rt-14-dev); mutating the seeds instead"
  make --no-print-directory -j"$(nproc)" replays BUILD=$replays CFLAGS="-O1 -g" SANITIZE="$sanitize" || exit 1
fi

for source in tests/fuzz/fuzz_*.c; do
  [ -f "$source" ] || { echo "fuzz: no targets in tests/fuzz"; exit 0; }
  name=$(basename "$source" .c)
  name=${name#fuzz_}
  log=build-fuzz/$name.log
  if [ -n "$engine" ]; then
    mkdir -p "build-fuzz/corpus/$name"
    "build-fuzz/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$findings/$name-" \
      "build-fuzz/corpus/$name" "tests/fuzz/seeds/$name" >"$log" 2>&1
  else
    # One that never ends keeps its input when SIGTERM comes. In the foreground, so that Ctrl-C reaches it.
    ASTRA_FUZZ_SECONDS=$seconds ASTRA_FINDINGS=$findings timeout --foreground --kill-after=10 $((seconds + 60)) "$replays/tests/fuzz/replay_$name" >"$log" 2>&1
  fi
  status=$?
  if [ $status -eq 0 ]; then echo "ok      $name  $(grep -E '^#[0-9]+|PASSED|mutations' "$log" | tail -n 1)"
  else
    failed=$((failed + 1))
    echo "FAILED  $name (exit status $status); the input is in $findings"
    tail -n 40 "$log"
  fi
done
[ $failed -eq 0 ]
