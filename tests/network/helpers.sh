# Shared by the scripts beside it: programs, a temporary folder, a random checkpoint, and looking after processes. Sourced, not run.
set -u
build=${BUILD:-build}
program=$(realpath "$build/bin/astra-infer")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

report() { # WHAT
  echo "FAILED: $1"
  for file in out err; do [ ! -f "$work/$file" ] || cut -c -400 "$work/$file" | sed "s/^/    $file: /"; done
  failed=1
}

# Of the JSON in the last line of out: what an expression of jq makes of it, and that one is true.
field() { tail -n 1 "$work/out" | jq -c "$1"; }
holds() { tail -n 1 "$work/out" | jq -e "$1" >/dev/null 2>>"$work/err" || report "${name:-JSON}: this does not hold: $1"; }

# A random checkpoint with its self-test: make_checkpoint DIR [PRESET [GROUPS [ENTRIES [DEVICES]]]]. `make test` builds what makes it.
make_checkpoint() {
  local maker="$build/tests/infer/make_sample"
  "$maker" "$@" || exit 1
}

# A CIFAR-100 test file of random pictures, for eval to be busy with: make_cifar DIR [HUNDREDS: 20]
make_cifar() {
  mkdir -p "$1/cifar100"
  head -c $((100 * 3072)) /dev/urandom >"$work/pixels"
  for ((i = 0; i < 100; i++)); do
    printf '\1\2' # coarse and fine label
    dd if="$work/pixels" bs=3072 skip="$i" count=1 status=none
  done >"$work/hundred"
  for ((i = 0; i < ${2:-20}; i++)); do cat "$work/hundred"; done >"$1/cifar100/test.bin"
}

running() { [ -e "/proc/$1" ] && ! grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null; }

# Waits until the nodes' process numbers stand in err: sets pids
wait_for_nodes() { # COUNT
  for ((i = 0; i < 300; i++)); do
    mapfile -t pids < <(sed -n 's/^node [0-9]* is pid //p' "$work/err" 2>/dev/null)
    [ ${#pids[@]} -lt "$1" ] || return 0
    sleep 0.1
  done
  report "the nodes did not start"
  exit 1
}

no_orphans() {
  for pid in "${pids[@]}"; do
    for ((i = 0; i < 50; i++)); do running "$pid" || break; sleep 0.1; done
    ! running "$pid" || report "process $pid is still there"
  done
}

# Workers: start_worker NAME ADDRESS ARGUMENTS... sets address[NAME] and porter[NAME]; ADDRESS may have port 0. Their lines go to NAME.log.
declare -A porter address
start_worker() {
  local name=$1 where=$2
  shift 2
  : >"$work/$name.log"
  "$program" worker --listen "$where" --threads 1 "$@" 2>"$work/$name.log" &
  porter[$name]=$!
  for ((i = 0; i < 300; i++)); do
    address[$name]=$(sed -n 's/.*listening on //p' "$work/$name.log")
    [ -z "${address[$name]}" ] || return 0
    running "${porter[$name]}" || break
    sleep 0.1
  done
  report "worker $name did not start: $(cat "$work/$name.log")"
  exit 1
}

# Ends it in peace; its exit status is checked.
stop_worker() { # NAME
  kill -TERM "${porter[$1]}"
  wait "${porter[$1]}" || report "worker $1: exit code $?"
}

# Waits until a process has computed for so many hundredths of a second: it is in the middle of its work.
computes() { # PID HUNDREDTHS
  local fields
  for ((i = 0; i < 1000; i++)); do
    read -ra fields 2>/dev/null <"/proc/$1/stat" || return
    [ $((fields[13] + fields[14])) -lt "$2" ] || return 0
    sleep 0.02
  done
}

# What a worker has forked.
sessions_of() { cat "/proc/${porter[$1]}/task/${porter[$1]}/children"; } # NAME

session_of() { sessions_of "$1" | xargs -n 1 2>/dev/null | tail -1; } # NAME: the last one

# A picture of noise: make_picture FILE SIDE
make_picture() {
  { printf 'P6\n%d %d\n255\n' "$2" "$2"; head -c $(($2 * $2 * 3)) /dev/urandom; } >"$1"
}

# The classes and probabilities of a JSON answer, or the new tokens: what must be equal bit for bit.
answer_of() { grep -o '"pictures":.*,"nodes"\|"ids":\[[0-9,]*\]' "$1"; } # FILE
