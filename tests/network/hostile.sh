#!/bin/bash
# mostly waits
# limit: 240
# Nodes that exchange datagrams while somebody else on the machine sends them noise, forgeries, and what he overhears: again, cut, changed, in
# other names; and workers at whose doors somebody without the key calls all the time, as a leader, as another device, and as nothing, and
# somebody who has the key and breaks the rules behind it. The answers are those of nodes that are left alone.
. tests/network/helpers.sh

make_checkpoint "$work/model" vit-cifar 8 256 3
make_cifar "$work/data"
# Without tables: whether they are used follows from how fast they are at the start, and their sums round otherwise.
set_up=(eval --checkpoint "$work/model" --nodes 3 --dataset cifar100 --data-dir "$work/data" --samples 200 --batch 1 --table-memory 0)
"$program" "${set_up[@]}" >"$work/alone" 2>"$work/err" || report "nodes that are left alone"

# What was printed, but for the time it took, is what nodes say that are left alone: as_alone NAME
as_alone() {
  for line in 1 2; do
    [ "$(sed -n ${line}p "$work/out" | sed 's/ in .*//')" = "$(sed -n ${line}p "$work/alone" | sed 's/ in .*//')" ] || report "$1: another answer"
  done
}

# The ports on which the processes of `pids` take datagrams.
find_ports() {
  local pid inode
  ports=()
  for pid in "${pids[@]}"; do
    for inode in $(find "/proc/$pid/fd" -type l -printf '%l\n' 2>/dev/null | sed -n 's/^socket:\[\([0-9]*\)\]$/\1/p'); do
      hex=$(awk -v inode="$inode" '$10 == inode { split($2, a, ":"); print a[2] }' /proc/net/udp)
      [ -z "$hex" ] || ports+=($((16#$hex)))
    done
  done
}

# With the deadline a datagram that finds no room at a node that gets no processor is a masked token. Room of 4 MB needs net.core.rmem_max or
# CAP_NET_ADMIN (bit 12).
turns=(retransmit)
read -r most </proc/sys/net/core/rmem_max
capabilities=$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)
if [ "${most:-0}" -ge $((4 << 20)) ] || ((0x${capabilities:-0} >> 12 & 1)); then
  turns+=(deadline)
else
  echo "skipped: --reliability deadline: net.core.rmem_max is ${most:-unknown}, and CAP_NET_ADMIN is missing"
fi
for reliability in "${turns[@]}"; do
  # Slow links give the neighbour time; the deadline is long, so that only what he does could make a difference.
  : >"$work/err" # of the run before, whose processes are not these
  "$program" "${set_up[@]}" --transport udp --reliability $reliability --latency 5ms --verbose >"$work/out" 2>"$work/err" &
  run=$!
  wait_for_nodes 3
  for ((i = 0; i < 50; i++)); do
    find_ports
    [ ${#ports[@]} -lt 3 ] || break
    sleep 0.1
  done
  [ ${#ports[@]} -eq 3 ] || { [ -r /proc/net/udp ] && report "$reliability: found ports ${ports[*]}"; }
  "$build/tests/infer/make_traffic" 3 "${ports[@]}" >"$work/traffic" || report "the traffic itself"
  wait $run || report "$reliability: exit code $?"
  as_alone "$reliability"
  grep -q 'forged [1-9]' "$work/traffic" || report "$reliability: nothing was sent: $(cat "$work/traffic")"
  grep -q 'overheard [1-9]' "$work/traffic" || echo "skipped: replayed and changed datagrams ($(cat "$work/traffic")): listening to the loopback is not allowed"
  no_orphans
done

# ---- at the door of workers that compute
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
for one in a b; do start_worker $one 127.0.0.1:0 -c "$work/model" --key-file "$work/key" --table-memory 0; done
set_up=(eval -c "$work/model" --peers "${address[a]},${address[b]}" --key-file "$work/key" -d cifar100 --data-dir "$work/data" --samples 200 --batch 1 --table-memory 0)
# Workers that are left alone: their answers differ from those of processes by rounding, which may change a code, and no more.
mean_loss() { sed -n '2s/.*mean loss \([0-9.]*\),.*/\1/p' "$1"; }
processes=$(mean_loss "$work/alone")
"$program" "${set_up[@]}" >"$work/alone" 2>"$work/err" || report "workers that are left alone"
awk -v a="$processes" -v b="$(mean_loss "$work/alone")" 'BEGIN { exit !(a > 0 && b > 0 && (a - b) ^ 2 < 1e-6) }' ||
  report "workers have a loss of $(mean_loss "$work/alone"), processes $processes"

# What callers without a key begin with: noise; a leader, another device, one of another release, each with noise behind; half of a leader.
noise 300 7 >"$work/noise"
words=('' "$hello_head"'\x01\x01\x00\x00\x00\x00\x00\x00' "$hello_head"'\x02\x01\x00\x00\x00\x00\x00\x00' 'STRA\x03\x01\x00\x00sixteen letters.' "$hello_head")
annoy() { # PID: while it runs
  local calls=0 fds=() one word fd
  while running "$1"; do
    for one in a b; do
      for word in "${words[@]}"; do
        exec {fd}<>"/dev/tcp/127.0.0.1/${address[$one]##*:}" || continue
        { printf '%b' "$word"; [ "$word" = "${words[4]}" ] || cat "$work/noise"; } >&"$fd"
        fds+=("$fd") calls=$((calls + 1))
      done
    done
    [ ${#fds[@]} -lt 100 ] || { for fd in "${fds[@]}"; do exec {fd}>&-; done; fds=(); }
    sleep 0.02
  done 2>/dev/null
  for fd in "${fds[@]}"; do exec {fd}>&-; done
  echo $calls >"$work/calls"
}
intrude() { # PID: while it runs
  local first=0
  while running "$1"; do
    "$build/tests/infer/make_intruder" "$work/key" "$work/model" "${address[a]}" 1 $((first++))
  done >>"$work/intruder" 2>&1
}
for transport in tcp udp; do
  "$program" "${set_up[@]}" --transport $transport --latency 2ms >"$work/out" 2>"$work/err" &
  run=$!
  intrude $run &
  intruder=$!
  annoy $run 2>/dev/null
  wait $intruder
  wait $run || report "callers without a key, $transport: exit code $?"
  as_alone "callers without a key, $transport"
  [ "$(cat "$work/calls")" -ge 50 ] || report "callers without a key, $transport: only $(cat "$work/calls") calls"
done
for one in a b; do grep -q "a caller .* was turned away: it has another key" "$work/$one.log" || report "worker $one did not look at the key of a caller"; done
[ "$(grep -c '^calls 1 ' "$work/intruder")" -ge 5 ] || report "nobody broke a rule: $(cat "$work/intruder")"

# Now it is the intruder's turn each time. Afterwards the workers are as they were.
for one in a b; do
  # Four of its 22 calls are of another device of no session, which is hung up on.
  "$build/tests/infer/make_intruder" "$work/key" "$work/model" "${address[$one]}" 22 >"$work/intruder" 2>&1 || report "the intruder: $(cat "$work/intruder")"
  grep -q '^calls 18 answered [1-9].* refused [1-9]' "$work/intruder" || report "the intruder was not refused: $(cat "$work/intruder")"
  for why in 'wrong magic number' 'announces 4294967295 bytes' 'a CLASSIFY message where none was due' 'a RESULT message, which is a device.s to send' 'measurement 2 of 4294967295'; do
    grep -q "warning: session pid .*$why" "$work/$one.log" || report "worker $one did not say: $why"
  done
done
"$program" "${set_up[@]}" >"$work/out" 2>"$work/err" || report "after the intruder: exit code $?"
as_alone "after the intruder"
for one in a b; do stop_worker $one; done
exit $failed
