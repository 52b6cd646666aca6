#!/bin/bash
# Manual pages: every option that --help lists stands on the program's page, and every page formats without a warning (where groff is there).
# Usage: tests/cli/manual.sh; programs in $BUILD/bin (build/bin). limit: 30
set -u
bin=$(realpath "${BUILD:-build}/bin")
pages=$(realpath "$(dirname "$0")/../../docs/man")
failed=0 checked=0
report() { echo "FAILED: $1"; failed=1; }

options() { grep -oE -e '^ +(-[a-zA-Z], )?--(\[no-\])?[a-z][a-z0-9-]*' | grep -oE -e '--(\[no-\])?[a-z][a-z0-9-]*' | sed 's/\[no-\]//'; }

check() { # PROGRAM [COMMAND]
  local page=$pages/$1.1 option
  checked=$((checked + 1))
  [ -f "$page" ] || { report "$1 has no manual page"; return; }
  while read -r option; do report "$page: $option of $* is missing"; done < <(
    comm -23 <("$bin/$1" ${2:+"$2"} --help | options | sort -u) <(sed 's/\\-/-/g' "$page" | grep -oE -e '--[a-z][a-z0-9-]*' | sort -u))
}

for program in "$bin"/astra-*; do
  name=$(basename "$program")
  [ -x "$program" ] && [ -f "$pages/../../src/cli/$name.c" ] || continue
  check "$name"
  for command in $("$program" --help | sed -n '/^[Cc]ommands/,/^$/s/^  \([a-z][a-z-]*\)  .*/\1/p'); do check "$name" "$command"; done
done
[ $checked -ge 35 ] || report "only $checked programs and commands were found: what --help prints of commands is read otherwise"
# Each command of astra-infer has an entry of its own (.TP or .TQ before its name).
for command in generate eval selftest worker plan keygen; do
  grep -A1 '^\.T[PQ]$' "$pages/astra-infer.1" | grep -qx "\.B $command" || report "$pages/astra-infer.1: $command has no entry of its own"
done
if command -v groff >/dev/null; then
  for page in "$pages"/*.1; do
    warnings=$(groff -man -ww -z "$page" 2>&1) || true
    [ -z "$warnings" ] || report "$page: $warnings"
  done
else
  echo "skipped: pages are not formatted: groff is not there"
fi
[ $failed = 0 ] && echo "manual pages: complete"
exit $failed
