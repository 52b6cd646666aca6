#!/bin/bash
# limit: 180; mostly waits
# A worker whose link goes down in the middle of a request, in a network namespace of its own: nobody is told, its packets only cease. The
# others finish without it within --timeout, over streams and datagrams, by rerun and by mask; when the link is up again it takes part again,
# in the same run. A leader that vanishes likewise holds its worker for a minute at most. Skipped where namespaces are not allowed.
if [ -z "${ASTRA_IN_NAMESPACE:-}" ]; then
  unshare -rnpf --mount-proc ip link add astra0 type veth peer name astra1 2>/dev/null ||
    { echo "skipped: network namespaces are not allowed here"; exit 77; }
  ASTRA_IN_NAMESPACE=1 exec unshare -rnpf --mount-proc --kill-child bash "$0"
fi
. tests/network/helpers.sh
scale=${TIME_SCALE:-1}
make_checkpoint "$work/model" vit-cifar 8 256 4
make_cifar "$work/data" 100
"$program" keygen "$work/key" 2>/dev/null || report "keygen"

# Here the leader and worker a; worker b behind a link.
unshare -n sleep 1000 &
far=$!
trap 'kill $far 2>/dev/null; rm -rf "$work"' EXIT
for ((i = 0; i < 100; i++)); do [ "$(readlink /proc/$far/ns/net)" = "$(readlink /proc/self/ns/net)" ] || break; sleep 0.05; done
there() { nsenter -t $far -n "$@"; }
ip link set lo up
ip link add astra0 type veth peer name astra1 netns $far
ip addr add 10.77.0.1/24 dev astra0
ip link set astra0 up
there ip addr add 10.77.0.2/24 dev astra1
there ip link set astra1 up
start_worker a 10.77.0.1:0 -c "$work/model" --key-file "$work/key"
printf '#!/bin/bash\nexec nsenter -t %d -n %q "$@"\n' $far "$program" >"$work/astra-infer-there"
chmod +x "$work/astra-infer-there"
program=$work/astra-infer-there start_worker b 10.77.0.2:0 -c "$work/model" --key-file "$work/key"

start() { # ARGUMENTS...: an evaluation over the caller and two workers is under way
  rm -f "$work/out" "$work/err"
  until_free a b
  "$program" eval -c "$work/model" -d cifar100 --data-dir "$work/data" --peers "${address[a]},${address[b]}" --key-file "$work/key" --batch 8 \
    --threads 1 --timeout 2 --json "$@" >"$work/out" 2>"$work/err" &
  leader=$!
  for ((i = 0; i < 600; i++)); do [ -z "$(sessions_of a)" ] || break; sleep 0.05; done
  computes "$(session_of a)" 30
}
finish() { # WHAT CODE
  local code
  timeout $((60 * scale)) tail --pid=$leader -f /dev/null || { kill -KILL $leader; report "$1: no end after $((60 * scale)) s"; }
  wait $leader
  code=$?
  [ $code -eq "$2" ] || report "$1: exit code $code"
}
says() { grep -q -e "$2" "$work/err" || report "$1: stderr lacks '$2'"; } # WHAT PATTERN
shares() { [ "$(tail -1 "$work/out" | grep -o '"tokens":[0-9]*' | sed 's/.*://' | xargs)" = "$2" ] || report "$1: not the tokens $2"; } # WHAT COUNTS
until_said() { for ((i = 0; i < 400 * scale; i++)); do ! grep -q "$1" "$work/err" || break; sleep 0.1; done; } # PATTERN

for policy in rerun mask; do
  for transport in tcp udp; do
    what="$policy over $transport"
    start --on-failure $policy --transport $transport
    there ip link set astra1 down
    begin=$SECONDS
    until_said "continuing without it"
    # Two seconds of silence, and five in which each may give up what it computes; the rest is for a machine that does other things.
    [ $((SECONDS - begin)) -le $((25 * scale)) ] || report "$what: noticed after $((SECONDS - begin)) s"
    says "$what" "node 2 (worker ${address[b]}).*continuing without it"
    there ip link set astra1 up
    until_said "now using 3 of 3 devices"
    says "$what" "now using 3 of 3 devices"
    computes "$(session_of b)" 10 || report "$what: worker b is back and does nothing"
    kill -INT $leader
    finish "$what" 1
  done
done

# The link stays down: the others go on to the end, which is far enough away for the link to be down before: what takes this machine three
# seconds, or one if it was busy with other work at first.
start --samples 64
finish "undisturbed" 0
many=$(($(field '.images_per_second | floor') * 3 + 50))
[ $many -le 10000 ] || many=10000
start --samples $many
left=$(session_of b)
[ -n "$left" ] || report "down for good: worker b does not take part"
there ip link set astra1 down
finish "down for good" 0
says "down for good" "node 2 (worker ${address[b]}).*continuing without it"
shares "down for good" "32 32 0"
for ((i = 0; i < 600 * scale; i++)); do running "$left" || break; sleep 0.1; done
! running "$left" || report "down for good: worker b still serves a leader that it has not heard of for a minute"
stop_worker a
stop_worker b
exit $failed
