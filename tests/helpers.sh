# Shared by the helpers.sh of tests/cli and tests/network, which set $work, where a script keeps its files, $bin, where the
# programs are, and `report`. Sourced, not run.
# shellcheck shell=bash disable=SC2034,SC2154

# What sanitizers wrote, workers' and services' included: tests/run.sh knows a crash by it.
sanitizers() { grep -hsE 'Sanitizer|runtime error:' "$work/out" "$work/err" "$work"/*log | cut -c -400 | sed 's/^/    /'; }

# Takes the digests out of a safetensors file, in which numbers may then be changed: unseal FILE
unseal() { LC_ALL=C sed -i 's/astra\.xxh3/other.xxh3/g' "$1"; }

# Looks once: one that is reaped between two looks would seem to run.
running() {
  local state
  state=$(sed -n 's/^State:[[:space:]]*//p' "/proc/$1/status" 2>/dev/null)
  [[ -n $state && $state != [ZX]* ]]
}

# Until a program has written TEXT to FILE, for a minute at most, or is gone: await FILE TEXT [PROCESS]. Fails where TEXT never comes.
await() {
  local i
  for ((i = 0; i < 600; i++)); do
    ! grep -qs -e "$2" "$1" || return 0
    [ -z "${3:-}" ] || running "$3" || break
    sleep 0.1
  done
  grep -qs -e "$2" "$1" # written just before its end
}

# A service: start_service ARGUMENTS... sets server, base, its address, and server_log, where its lines go.
server='' base='' server_log='' services_started=0
start_service() {
  local i
  server_log=$work/serve-$((++services_started)).log
  : >"$server_log"
  "$bin/astra-serve" "$@" >/dev/null 2>"$server_log" &
  server=$!
  for ((i = 0; i < 600; i++)); do
    base=$(sed -nE 's/.*listening on (https?:[^ ]*|unix:.*)$/\1/p' "$server_log")
    [ -z "$base" ] || return 0
    running $server || break
    sleep 0.1
  done
  report "the service does not listen: astra-serve $*"
  exit 1
}
