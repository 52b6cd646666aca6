#!/bin/bash
# The documents about the code: every function and every file of src, tests and tools that they name is there. Usage: tests/cli/documents.sh
set -u
cd "$(dirname "$0")/../.." || exit 1
failed=0
report() { echo "FAILED: $1"; failed=1; }

for page in docs/ARCHITECTURE.md docs/MATH.md docs/ADDING_A*.md; do
  [ -s "$page" ] || report "$page is not there"
  for name in $(grep -oE '`[a-z][a-z0-9]*(_[a-z0-9]+)+`' "$page" | tr -d '`' | sort -u); do
    grep -rqw --include='*.[ch]' -e "$name" src tests || report "$page: $name is nowhere in src and tests"
  done
  for file in $(grep -oE '\b(src|tests|tools)/[a-zA-Z0-9_/-]+\.(c|h|sh)\b' "$page" | sort -u); do
    [ -e "$file" ] || report "$page: there is no $file"
  done
done
[ $failed = 0 ] && echo "documents: what they name is there"
exit $failed
