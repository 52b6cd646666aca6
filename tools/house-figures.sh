#!/bin/bash
# Figures of the source's structure, counted the same way each time: size, lengths of functions, public functions by user, circles.
# Usage: tools/house-figures.sh [single|tests|circles|files|includes] [FOLDER under src]
#   no word   the table
#   single    the public functions with one user file: file, function, its user
#   tests     the public functions that no other file of src uses
#   circles   the files of each circle
#   files     lines and functions of each file
#   includes  #include lines between folders: who, whom, how many
# How it counts. A function is a definition whose first line begins in column 0 and ends where a brace does in column 0 (clang-format's
# layout), its lines both included. It is public when it is neither static nor INLINE. NAME.c and NAME.h are one file to users and circles;
# a file uses a function when it contains its name outside comments, strings and declarations of headers; a circle is a strongly connected
# set of two or more such files.
set -u
cd "$(dirname "$0")/.." || exit 1
mode=${1:-table}
[ $# -le 2 ] && [[ " table single tests circles files includes " == *" $mode "* ]] || { sed -n '3,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=src${2:+/$2}
[ -d "$folder" ] || { echo "house-figures: $folder is no folder" >&2; exit 2; }

if [ "$mode" = includes ]; then
  find "$folder" -name '*.[ch]' | sort | xargs grep -H '^#include "' | sed -E 's|^src/([^:]*)/[^:/]*:#include "([^"]*)/[^"]*".*|\1 \2|' |
    awk '$1 != $2 { count[$1 " -> " $2]++ } END { for (pair in count) print count[pair], pair }' | sort -k2,2 -k4,4
  exit
fi

if [ "$mode" = table ]; then
  total() { find "$1" -name '*.[ch]' -print0 | xargs -0 cat | wc -l; }
  echo "files in src                          $(find src -name '*.[ch]' | wc -l)"
  echo "lines in src                          $(total src)"
  echo "lines in src/infer                    $(total src/infer)"
  echo "poll sites                            $(find src -name '*.c' -print0 | xargs -0 grep -hoE '\b(poll|ppoll|select|pselect|epoll_wait)\(' | wc -l)"
fi

find src -name '*.[ch]' | sort | xargs awk -v mode="$mode" -v folder="$folder" '
function bare(line,   at, end) { # without comments, strings and characters
  gsub(/\\./, "", line)
  gsub(/"[^"]*"/, "\"\"", line)
  gsub(/\047[^\047]*\047/, "0", line)
  if (in_comment) {
    end = index(line, "*/")
    if (!end) return ""
    line = substr(line, end + 2)
    in_comment = 0
  }
  while ((at = index(line, "/*")) > 0) {
    end = index(substr(line, at + 2), "*/")
    if (!end) { in_comment = 1; return substr(line, 1, at - 1) }
    line = substr(line, 1, at - 1) " " substr(line, at + end + 3)
  }
  sub(/\/\/.*/, "", line)
  return line
}
function words(text,   name, key) {
  while (match(text, /[A-Za-z_][A-Za-z0-9_]*/)) {
    name = substr(text, RSTART, RLENGTH)
    text = substr(text, RSTART + RLENGTH)
    key = name SUBSEP stem
    if (!(key in seen)) { seen[key] = 1; users[name] = users[name] " " stem }
  }
}
function finish_function(   name, own) {
  open = 0
  lengths[++functions] = FNR - start + 1
  per_file[FILENAME]++
  own = signature ~ /(^|[^A-Za-z_])(static|INLINE)([^A-Za-z_]|$)/
  sub(/\(.*/, "", signature)
  match(signature, /[A-Za-z_][A-Za-z0-9_]*[ ]*$/)
  name = substr(signature, RSTART, RLENGTH)
  sub(/ $/, "", name)
  if (own) own_of[name, stem] = 1
  else if (name != "main") { public[name] = stem; order[++publics] = name; where[name] = FILENAME }
}
FNR == 1 {
  stem = FILENAME
  sub(/\.[ch]$/, "", stem)
  if (!(stem in stems)) { stems[stem] = 1; stem_at[++stem_count] = stem }
  in_comment = 0; open = 0; head = ""; macro = 0; header = FILENAME ~ /h$/
}
{ lines_of[FILENAME]++ }
{
  text = bare($0)
  if (open && text ~ /^}/) finish_function()
  else if (!open) {
    if (head == "" && text ~ /^[A-Za-z_]/ && text !~ /^(typedef|struct [A-Za-z_]* *\{|enum|union)/ && text ~ /\(/ ) { head = text; start = FNR }
    else if (head != "") head = head " " text
    if (head != "") {
      if (head ~ /\{ *$/ && head !~ /=[^=]*\{ *$/) { open = 1; signature = head; head = "" }
      else if (head ~ /\{.*\} *$/ && head !~ /=[^)]*$/ && head ~ /\) *\{/) { signature = head; head = ""; finish_function() }
      else if (head ~ /;/ || head ~ /\{ *$/) head = ""
    }
  }
  if (header ? open || macro || text ~ /^static/ || text ~ /^#define/ : text !~ /^#include/) words(text) # a declaration is no use
  macro = (macro || text ~ /^#define/) && $0 ~ /\\$/
}
function sort_lengths(   i, count, value, at) {
  for (i = 1; i <= functions; i++) { count[lengths[i]]++; if (lengths[i] > longest) longest = lengths[i]; sum += lengths[i] }
  for (value = 1; value <= longest; value++) { at += count[value]; if (at >= functions / 2) return value }
}
function inside(name) { return index(where[name] "/", folder "/") == 1 }
function find_users(   i, n, list, j, name) {
  for (i = 1; i <= publics; i++) {
    name = order[i]
    n = split(users[name], list, " ")
    for (j = 1; j <= n; j++) if (list[j] != public[name] && !((name, list[j]) in own_of)) {
      user_count[name]++
      only[name] = list[j]
      if (!((list[j], public[name]) in edge)) { edge[list[j], public[name]] = 1; next_of[list[j]] = next_of[list[j]] " " public[name] }
    }
  }
}
function reach(from,   stack, top, n, list, i, at) {
  top = 1
  stack[1] = from
  while (top) {
    at = stack[top--]
    n = split(next_of[at], list, " ")
    for (i = 1; i <= n; i++) if (!((from, list[i]) in reached)) { reached[from, list[i]] = 1; stack[++top] = list[i] }
  }
}
function find_circles(   i, j, a, b, members) {
  for (i = 1; i <= stem_count; i++) if (next_of[stem_at[i]] != "") reach(stem_at[i])
  for (i = 1; i <= stem_count; i++) {
    a = stem_at[i]
    if (a in in_circle) continue
    members = ""
    for (j = i + 1; j <= stem_count; j++) {
      b = stem_at[j]
      if (((a, b) in reached) && ((b, a) in reached)) { in_circle[b] = 1; members = members " " b }
    }
    if (members != "") circle[++circles] = a members
  }
}
END {
  find_users()
  for (i = 1; i <= publics; i++) {
    if (user_count[order[i]] == 1) single++
    if (!user_count[order[i]]) tests_alone++
  }
  if (mode == "table") {
    median = sort_lengths()
    find_circles()
    printf "lines a file (mean)                   %.0f\n", total_lines() / file_count
    printf "functions                             %d\n", functions
    printf "lines a function, median / mean       %d / %.1f\n", median, sum / functions
    printf "public functions                      %d\n", publics
    printf "  with a single user file             %d\n", single
    printf "  that only tests use                 %d\n", tests_alone
    printf "circles between files                 %d\n", circles
  }
  for (i = 1; i <= publics; i++) {
    name = order[i]
    if (inside(name) && mode == "single" && user_count[name] == 1) print where[name], name, only[name]
    if (inside(name) && mode == "tests" && !user_count[name]) print where[name], name
  }
  if (mode == "circles") { find_circles(); for (i = 1; i <= circles; i++) print circle[i] }
  if (mode == "files") for (name in lines_of) if (index(name, folder "/") == 1) printf "%6d %4d %s\n", lines_of[name], per_file[name], name | "sort -k3"
}
function total_lines(   name, all) { for (name in lines_of) { all += lines_of[name]; file_count++ } return all }
'
