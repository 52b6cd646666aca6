#!/bin/bash
# The documents: every file, function and option that they name is there, every link leads somewhere. Usage: tests/cli/documents.sh
# Checked are names in the form in which a document writes code: `a_function` between backticks; src/FOLDER/file.c, or file.c alone; --option;
# [text](file#section). The change log is checked for its links alone, since it also names what was removed.
set -u
cd "$(dirname "$0")/../.." || exit 1
failed=0
report() { echo "FAILED: $1"; failed=1; }
index=$(mktemp -d) || exit 1
trap 'rm -rf "$index"' EXIT

# English: words that have a plainer or more precise one (CONTRIBUTING.md); of tests and tools those that are no ordinary words.
coined='courier|carriers?|strangers?|shapers?|porters?|hearers|accused|verdict|norm_least|norm_most|milliseconds_least'
words="$coined|preamble|greeting|patience|nobody|somebody|likewise|so many|picture"

# What there is: identifiers (and names of JSON fields and tensors, which are strings), files, options.
grep -rhowE --include='*.[ch]' --include='*.py' --include='*.sh' '[a-z][a-z0-9]*(_[a-z0-9]+)+' src tests tools >"$index/words"
printf '%s\n' test_matthews test_matthews_plain >>"$index/words" # columns of metrics.csv, put together from two words
sort -u "$index/words" >"$index/identifiers"
find src tests tools docs checkpoints datasets -type f \( -name '*.[ch]' -o -name '*.sh' -o -name '*.py' \) | sort >"$index/files"
{ sed 's|.*/||' "$index/files"; printf '%s\n' cmocka.h llm.c llama2.c reference.py; } | sort -u >"$index/names" # the last four are not ours
{ grep -rhoE --include='*.c' '(\{OPTION_[A-Z]+, |\.name = )"[a-z0-9-]+"' src/cli | sed 's/.*"\(.*\)"/--\1/' | sed 'p; s/^--/--no-/'
  grep -rhoE --include='*.py' --include='*.sh' -e '--[a-z][a-z0-9-]+' tests/bench tests/golden tools
  printf '%s\n' --help --version --hostfile --oversubscribe; } | sort -u >"$index/options" # the last two are mpirun's

lacking() { sort -u | comm -23 - "$index/$1"; } # LIST: of the lines read, those that it lacks

# The source of a test program: source_of build/tests/FOLDER/NAME
source_of() {
  local program=${1#build/tests/} source
  program=${program%_double}
  for source in "tests/unit/$program.c" "tests/$program.c" "tests/$program/${program##*/}.c" "tests/${program/replay_/fuzz_}.c"; do
    [ ! -e "$source" ] || { echo "$source"; return; }
  done
}

names_there() { # PAGE
  local name
  for name in $(grep -oE '`[a-z][a-z0-9]*(_[a-z0-9]+)+(\(\))?`' "$1" | tr -d '`()' | lacking identifiers); do
    report "$1: $name is nowhere in src, tests and tools"
  done
  for name in $(grep -oE '\b(src|tests|tools)/[a-zA-Z0-9_/-]+\.(c|h|sh|py)\b' "$1" | grep -vE 'NAME|FOLDER' | lacking files); do
    report "$1: there is no $name"
  done
  for name in $(grep -oE '\b(build/)?(src|tests|tools)(/[a-zA-Z0-9_-]+)+($|[^a-zA-Z0-9_./*{-]|[./]($|[^a-zA-Z0-9]))' "$1" |
                grep -oE '[a-zA-Z0-9_/-]+[a-zA-Z0-9_]' | grep -vE 'NAME|FOLDER' | sort -u); do
    [ -e "$name" ] || [ -e "$(source_of "$name")" ] || report "$1: there is no $name"
  done
  for name in $(grep -oE '(^|[^a-zA-Z0-9_/.*<>-])[a-z][a-z0-9_-]*\.(c|h|sh|py)($|[^a-z0-9.]|\.[^a-zA-Z])' "$1" |
                grep -oE '[a-z][a-z0-9_-]*\.(c|h|sh|py)' | lacking names); do
    report "$1: there is no file $name"
  done
  # `a_function` (src/FOLDER/file.c), or with a comma between: it is in that file, or declared in the header of its name.
  while read -r name file; do
    [ -e "$file" ] && ! grep -qw -e "$name" "${file%.*}".[ch] && report "$1: $name is not in $file"
  done < <(tr '\n' ' ' <"$1" | grep -oE '`[a-z][a-z0-9_]*`,? \(?src/[a-z0-9_/-]+\.[ch]\b' | tr -d '`,(' | sort -u)
  for name in $(grep -oE '(^|[^a-zA-Z0-9_-])--[a-z][a-z0-9-]*[a-z0-9]\b' "$1" | grep -oE -e '--.*' | grep -vx -e '--no' | lacking options); do
    report "$1: no program has the option $name"
  done
}

# The names by which links reach the headings of a page.
sections() { grep -E '^#+ ' "$1" | sed -E 's/^#+ +//' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'; }

links_lead() { # PAGE
  local link file
  for link in $(tr '\n' ' ' <"$1" | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//' | grep -v '^[a-z]*://' | sort -u); do
    file=$(dirname "$1")/${link%%#*}
    [ -n "${link%%#*}" ] || file=$1
    [ -e "$file" ] || { report "$1: $link leads nowhere"; continue; }
    [[ $link != *#* ]] || sections "$file" | grep -qx -e "${link#*#}" || report "$1: $link leads to no heading"
  done
}

# What --json prints has its place in FORMATS.md: every name in the calls that build an object, but values, and what the chat client sends and
# an experiment keeps for itself.
members_described() {
  local name
  sed -n '/^## JSON output/,/^## Exit codes/p' docs/FORMATS.md | grep -oE '`[a-z][a-z0-9_]*`' | tr -d '\`' | sort -u >"$index/members"
  for name in $(find src/cli -name '*.c' ! -name astra-chat.c ! -name bench_accuracy.c -exec cat {} + | tr '\n' ' ' | tr ';' '\n' |
                grep -E 'json_(pack|object_set_new|object_set|build_put)\(' | grep -oE '"[a-z][a-z0-9_]*"' | tr -d '"' |
                grep -vE '_plain$|^(all|answer|test|train|valid)$' | lacking members); do
    report "docs/FORMATS.md, JSON output: $name, which --json prints, is not described"
  done
}

# The example that an operation's author follows is the code: its lines stand in src or in tests.
example_is_code() {
  local line
  find src tests -name '*.[ch]' -exec cat {} + | sed 's/^ *//' | sort -u >"$index/code"
  while read -r line; do
    report "docs/ADDING_AN_OP.md: this line of its example is nowhere in src and tests: $line"
  done < <(awk '/^```c$/ { code = 1; next } /^```$/ { code = 0 } code && !/^ *(\.\.\.)?$/' docs/ADDING_AN_OP.md | sed 's/^ *//' | sort -u |
           comm -23 - "$index/code")
}

members_described
example_is_code
for page in README.md CONTRIBUTING.md docs/*.md docs/results/*.md docs/images/*.svg checkpoints/README.md datasets/README.md; do
  [ -s "$page" ] || { report "$page is not there"; continue; }
  names_there "$page"
  links_lead "$page"
  ! grep -nwiE "$words" "$page" || report "$page: words to replace"
done
links_lead CHANGELOG.md
! grep -rnwiIE --exclude=documents.sh "$coined" tests tools || report "tests and tools: words to replace"
[ $failed = 0 ] && echo "documents: what they name is there"
exit $failed
