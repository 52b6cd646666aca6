#!/bin/bash
# Manual pages: every option that --help lists stands on the program's page, where --help leaves some out its last line says where they are, and every
# page formats without a warning (where groff is there).
# Usage: tests/cli/manual.sh; programs in $BUILD/bin (build/bin). limit: 60
set -u
bin=$(realpath "${BUILD:-build}/bin")
pages=$(realpath "$(dirname "$0")/../../docs/man")
failed=0 checked=0
report() { echo "FAILED: $1"; failed=1; }

options() { grep -oE -e '^ +(-[a-zA-Z], )?--(\[no-\])?[a-z][a-z0-9-]*' | grep -oE -e '--(\[no-\])?[a-z][a-z0-9-]*' | sed 's/\[no-\]//'; }

on_page() { sed 's/\\-/-/g' "$1" | grep -oE -e '--[a-z][a-z0-9-]*' | sort -u; }

check() { # PROGRAM [COMMAND]
  local page=$pages/$1.1 option
  checked=$((checked + 1))
  [ -f "$page" ] || { report "$1 has no manual page"; return; }
  while read -r option; do report "$page: $option of $* is missing"; done < <(
    comm -23 <("$bin/$1" ${2:+"$2"} --help | options | sort -u) <(on_page "$page"))
}

# An option of the page, or of astra-infer's (links), that --help does not list, but the program takes: it refuses an empty value of one that it knows, and knows no other.
unlisted() { # PROGRAM [COMMAND]
  local option
  while read -r option; do
    "$bin/$1" ${2:+"$2"} "$option=" 2>&1 </dev/null | grep -q 'unknown option' || { echo "$option"; return; }
  done < <(comm -13 <({ echo --help; echo --version; "$bin/$1" ${2:+"$2"} --help | options; } | sort -u) <(
    { on_page "$pages/$1.1"; on_page "$pages/astra-infer.1"; } | grep -v -e '^--no-' | sort -u))
}

check_rest() { # WHERE PROGRAM [COMMAND]: --help names this place for options that it leaves out; "": it leaves none out
  local where=$1 named option
  shift
  named=$("$bin/$1" ${2:+"$2"} --help | sed -n 's/^More options: //p') option=$(unlisted "$@")
  [ "$named" = "$where" ] || report "help of $*: it names '$named' for more options, not '$where'"
  [ -z "$where" ] || [ -n "$option" ] || report "help of $*: it names $where, which has no more options"
  [ -n "$where" ] || [ -z "$option" ] || report "help of $*: $option is left out"
}

for program in "$bin"/astra-*; do
  name=$(basename "$program")
  [ -x "$program" ] && [ -f "$pages/../../src/cli/$name.c" ] || continue
  check "$name"
  for command in $("$program" --help | sed -n '/^[Cc]ommands/,/^$/s/^  \([a-z][a-z-]*\)  .*/\1/p'); do check "$name" "$command"; done
done
[ $checked -ge 35 ] || report "only $checked programs and commands were found: what --help prints of commands is read otherwise"
check_rest "man astra-train" astra-train
check_rest "man astra-kmeans" astra-kmeans init
check_rest "man astra-bench" astra-bench step
for command in generate eval selftest; do check_rest "astra-infer links" astra-infer $command; done
for program in astra-serve astra-chat; do check_rest "astra-infer links" $program; done
check_rest "" astra-quantize
check_rest "" astra-kmeans show
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
