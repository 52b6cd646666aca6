# For tools/results-memory.sh and tests/cli/memory.sh, which read it in: what --dry-run prints beside what a run takes.

# The most memory that a process held, watched until it ends: what it took in its last twentieth of a second may be missed. Sets `used`.
watch_memory() { # PID
  local name value rest
  used=0
  while [ -r "/proc/$1/status" ]; do
    while read -r name value rest; do
      if [ "$name" = VmHWM: ]; then used=$((1024 * value)); fi
    done 2>/dev/null <"/proc/$1/status" || true
    sleep 0.05
  done
}

# Sets `printed` and `used`, in bytes; fails where they differ by more than 5%, or the run failed.
compare_memory() { # ASTRA_TRAIN SCRATCH_DIRECTORY OPTIONS...
  local program=$1 directory=$2
  shift 2
  printed=$("$program" "$@" --out "$directory/plan" --dry-run --json --quiet | tail -n 1 | grep -o '"total_bytes":[0-9.]*' | head -n 1 | cut -d: -f2)
  printed=${printed%.*}
  rm -rf "$directory/run"
  "$program" "$@" --out "$directory/run" --quiet >"$directory/log" 2>&1 &
  local pid=$!
  watch_memory "$pid"
  wait "$pid" || { cat "$directory/log" >&2; return 1; }
  rm -rf "$directory/run"
  [ $((100 * printed)) -ge $((95 * used)) ] && [ $((100 * printed)) -le $((105 * used)) ]
}
