# Shared by the scripts beside it: programs, a temporary folder, a random checkpoint, and looking after processes. Sourced, not run.
set -u
build=${BUILD:-build}
bin=$(realpath "$build/bin")
program=$bin/astra-infer
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
. tests/helpers.sh

report() { # WHAT
  echo "FAILED: $1"
  sanitizers
  for file in out err; do [ ! -f "$work/$file" ] || cut -c -400 "$work/$file" | sed "s/^/    $file: /"; done
  [ -z "$server_log" ] || tail -n 5 "$server_log" | cut -c -400 | sed 's/^/    the service: /'
  failed=1
}

# attempt NAME EXIT-CODE COMMAND...: keeps its output in $work/out and $work/err; it reads $input, or nothing
attempt() {
  name=$1 code=$2
  shift 2
  "$@" >"$work/out" 2>"$work/err" <"${input:-/dev/null}"
  got=$?
  [ "$got" = "$code" ] || report "$name: exit code $got, expected $code"
}
in_work() { (cd "$work" && "$@"); }
expect() { attempt "$1" "$2" in_work "$program" "${@:3}"; } # NAME EXIT-CODE ARGUMENTS...: of astra-infer, in $work
lead() { attempt "$1" "$2" timeout 60 "$program" "${@:3}" --threads 1; } # NAME EXIT-CODE ARGUMENTS...: of a leader
out() { grep -q -e "$1" "$work/out" || report "$name: stdout lacks '$1'"; }
err() { grep -q -e "$1" "$work/err" || report "$name: stderr lacks '$1'"; }

# silent out|err, but for what whoever runs the tests may have caused by choosing slower kernels.
silent() { ! grep -qvE 'warning: (the environment forces slower kernels|OpenBLAS does not know this processor)' "$work/$1" || report "${name:-all is well}: std$1 is not empty"; }

# Of the JSON in the last line of out: what an expression of jq makes of it, and that one is true.
field() { tail -n 1 "$work/out" | jq -c "$1"; }
json_holds() { tail -n 1 "$work/out" | jq -e "$1" >/dev/null 2>>"$work/err" || report "${name:-JSON}: this does not hold: $1"; }

# A random checkpoint with its self-test: make_checkpoint DIR [PRESET [GROUPS [ENTRIES [DEVICES [IMAGE PATCH]]]]], as the head
# of tests/unit/infer/make_sample.c says.
make_checkpoint() {
  local maker="$build/tests/infer/make_sample"
  "$maker" "$@" || exit 1
}

# Bytes of 1 to 255 that look random and are the same in every run: noise COUNT [SEED: 1]
noise() { LC_ALL=C awk -v count="$1" -v seed="${2:-1}" 'BEGIN { srand(seed); while (count-- > 0) printf "%c", 1 + int(255 * rand()) }'; }

# A CIFAR-100 test file of random images, for eval to be busy with: make_cifar DIR [HUNDREDS: 20]
make_cifar() {
  mkdir -p "$1/cifar100"
  noise $((100 * 3072)) >"$work/pixels"
  for ((i = 0; i < 100; i++)); do
    printf '\1\2' # coarse and fine label
    dd if="$work/pixels" bs=3072 skip="$i" count=1 status=none
  done >"$work/hundred"
  for ((i = 0; i < ${2:-20}; i++)); do cat "$work/hundred"; done >"$1/cifar100/test.bin"
}

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
    for ((i = 0; i < 50 * ${TIME_SCALE:-1}; i++)); do running "$pid" || break; sleep 0.1; done
    ! running "$pid" || report "process $pid is still there"
  done
}

# Workers: start_worker NAME ADDRESS ARGUMENTS... sets address[NAME] and listener[NAME]; ADDRESS may have port 0. Their lines go to NAME.log.
declare -A listener address announcers
start_worker() {
  local name=$1 where=$2
  shift 2
  announcers[$name]=0
  [[ " $* " != *" --announce "* ]] || announcers[$name]=1
  : >"$work/$name.log"
  "$program" worker --listen "$where" --threads 1 "$@" 2>"$work/$name.log" &
  listener[$name]=$!
  for ((i = 0; i < 300; i++)); do
    address[$name]=$(sed -n 's/.*listening on //p' "$work/$name.log")
    [ -z "${address[$name]}" ] || return 0
    running "${listener[$name]}" || break
    sleep 0.1
  done
  report "worker $name did not start: $(cat "$work/$name.log")"
  exit 1
}

# Ends it in peace; its exit status is checked.
stop_worker() { # NAME
  kill -TERM "${listener[$1]}"
  wait "${listener[$1]}" || report "worker $1: exit code $?"
}

# Waits until a process has computed for so many hundredths of a second: it is in the middle of its work. False: it is gone, or does nothing.
computes() { # PID HUNDREDTHS
  local fields
  for ((i = 0; i < 1000 * ${TIME_SCALE:-1}; i++)); do
    read -ra fields 2>/dev/null <"/proc/$1/stat" || return
    [ $((fields[13] + fields[14])) -lt "$2" ] || return 0
    sleep 0.02
  done
  return 1
}

# What a worker has forked, in this order, but for the process that announces it, which is the first and stays.
sessions_of() { # NAME
  local children=()
  read -ra children <"/proc/${listener[$1]}/task/${listener[$1]}/children"
  echo "${children[*]:${announcers[$1]:-0}}"
}

# Waits, for ten seconds at most, until no session of an earlier leader is left, which would be taken for the next one's: until_free NAME...
until_free() {
  local one i
  for one; do
    for ((i = 0; i < 200 * ${TIME_SCALE:-1}; i++)); do [ -n "$(sessions_of "$one")" ] || break; sleep 0.05; done
  done
}

session_of() { sessions_of "$1" | xargs -n 1 2>/dev/null | tail -1; } # NAME: the last one

# An image of noise, another one for each name: make_picture FILE SIDE
make_picture() {
  { printf 'P6\n%d %d\n255\n' "$2" "$2"; noise $(($2 * $2 * 3)) $(($(basename "$1" | cksum | cut -d ' ' -f 1) % 1000000)); } >"$1"
}

# The classes and probabilities of a JSON answer, or the new tokens: what must be equal bit for bit.
answer_of() { grep -o '"images":.*,"nodes"\|"ids":\[[0-9,]*\]' "$1"; } # FILE

# Two network namespaces, space_a and space_b (10.77.0.1 and .2), joined by a pair of veth with a token bucket of RATE on either side. Ends the
# script with 77 and a reason where the system does not let it: make_namespaces RATE
space_a=astra-a-$$ space_b=astra-b-$$ worker_pid=
make_namespaces() {
  command -v ip >/dev/null && command -v tc >/dev/null || { echo "skipped: no ip and tc (iproute2) here"; exit 77; }
  trap remove_namespaces EXIT
  {
    ip netns add "$space_a" && ip netns add "$space_b" &&
      ip link add veth0 netns "$space_a" type veth peer name veth0 netns "$space_b" &&
      tc -n "$space_a" qdisc add dev veth0 root tbf rate "$1" burst 3000 latency 1s &&
      tc -n "$space_b" qdisc add dev veth0 root tbf rate "$1" burst 3000 latency 1s &&
      ip -n "$space_a" address add 10.77.0.1/24 dev veth0 && ip -n "$space_b" address add 10.77.0.2/24 dev veth0 &&
      ip -n "$space_a" link set lo up && ip -n "$space_b" link set lo up &&
      ip -n "$space_a" link set veth0 up && ip -n "$space_b" link set veth0 up
  } 2>"$work/err" || { echo "skipped: network namespaces, veth and tbf are not to be had here: $(head -n 1 "$work/err")"; exit 77; }
}
remove_namespaces() {
  [ -z "$worker_pid" ] || kill "$worker_pid" 2>/dev/null
  ip netns del "$space_a" 2>/dev/null
  ip netns del "$space_b" 2>/dev/null
  rm -rf "$work"
}

# Sets worker_pid and worker_address: start_worker_in_b CHECKPOINT KEY-FILE [COMMAND...], which runs it, as in taskset -c 1
start_worker_in_b() {
  local checkpoint=$1 key_file=$2
  shift 2
  : >"$work/worker.log"
  "$@" ip netns exec "$space_b" "$program" worker -c "$checkpoint" --listen 10.77.0.2:0 --key-file "$key_file" --threads 1 2>"$work/worker.log" &
  worker_pid=$! worker_address=
  for ((i = 0; i < 300; i++)); do
    worker_address=$(sed -n 's/.*listening on //p' "$work/worker.log")
    [ -z "$worker_address" ] || return 0
    running "$worker_pid" || break
    sleep 0.1
  done
  report "the worker did not start: $(cat "$work/worker.log")"
  exit 1
}

bucket_bytes() { tc -n "$space_a" -s qdisc show dev veth0 | sed -n 's/^ Sent \([0-9]*\) bytes.*/\1/p'; } # that have left space_a

# For printf: the header of a HELLO of this release, behind which come role, key and 70 bytes more.
hello_head=$(printf 'STRA\\x%02x\\x01' "$(sed -n 's/.*WIRE_VERSION = \([0-9]*\).*/\1/p' src/infer/wire.h)")$(printf '\\x00%.0s' {1..14})'\x48\x00\x00\x00'

# Makes the weights of a GPT-2 of width 32 overflow in a block, at one position alone: overflow_at FILE NUMBER BLOCK. That number of the positions
# becomes the largest float there is, to which attention then adds 4e31, more than it rounds to; what follows takes that off other rows again.
overflow_at() {
  local header place tensor index bytes begin
  unseal "$1"
  header=$(od -An -tu8 -N8 "$1" | tr -d ' ')
  for place in "wpe.weight $2 0377 0377 0177 0177" "h.$3.attn.c_proj.bias $(($2 % 32)) 0174 0157 0374 0163" "h.$3.mlp.c_proj.bias $(($2 % 32)) 0174 0157 0374 0363"; do
    read -r tensor index bytes <<<"$place"
    begin=$(head -c $((8 + header)) "$1" | tail -c "$header" | grep -oE "\"[a-z0-9.]*$tensor\":\{[^}]*\}" | sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/')
    printf %b "\\${bytes// /\\}" | dd of="$1" bs=1 seek=$((8 + header + begin + 4 * index)) conv=notrunc status=none
  done
}
