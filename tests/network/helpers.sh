# Shared by the scripts beside it: programs, a temporary folder, a random checkpoint, and looking after processes. Sourced, not run.
set -u
build=${BUILD:-build}
program=$(realpath "$build/bin/astra-infer")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

report() { # WHAT
  echo "FAILED: $1"
  for file in out err; do [ ! -f "$work/$file" ] || sed "s/^/    $file: /" "$work/$file"; done
  failed=1
}

# A random checkpoint with its self-test: make_checkpoint DIR [PRESET [GROUPS [ENTRIES [DEVICES]]]]. `make test` builds what makes it.
make_checkpoint() {
  local maker="$build/tests/infer/make_sample"
  "$maker" "$@" || exit 1
}

# A CIFAR-100 test file of 2000 random pictures, for eval to be busy with: make_cifar DIR
make_cifar() {
  mkdir -p "$1/cifar100"
  head -c $((100 * 3072)) /dev/urandom >"$work/pixels"
  for ((i = 0; i < 100; i++)); do
    printf '\1\2' # coarse and fine label
    dd if="$work/pixels" bs=3072 skip="$i" count=1 status=none
  done >"$work/hundred"
  for ((i = 0; i < 20; i++)); do cat "$work/hundred"; done >"$1/cifar100/test.bin"
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
