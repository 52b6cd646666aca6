#!/bin/bash
# limit: 240
# Nodes that exchange datagrams while somebody else on the machine sends them noise, forgeries, and what he overhears: again, cut, changed, in
# other names. The answers are those of nodes that are left alone.
. tests/network/helpers.sh

make_checkpoint "$work/model" vit-cifar 8 256 3
make_cifar "$work/data"
set_up=(eval --checkpoint "$work/model" --nodes 3 --dataset cifar100 --data-dir "$work/data" --samples 60 --batch 1)
"$program" "${set_up[@]}" >"$work/alone" 2>"$work/err" || report "nodes that are left alone"

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

for reliability in retransmit deadline; do
  # Slow links give the neighbour time; the deadline is long, so that only what he does could make a difference.
  : >"$work/err" # of the run before, whose processes are not these
  "$program" "${set_up[@]}" --transport udp --reliability $reliability --latency 20ms --verbose >"$work/out" 2>"$work/err" &
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
  for line in 1 2; do
    [ "$(sed -n ${line}p "$work/out" | sed 's/ in .*//')" = "$(sed -n ${line}p "$work/alone" | sed 's/ in .*//')" ] || report "$reliability: another answer"
  done
  grep -q 'forged [1-9]' "$work/traffic" || report "$reliability: nothing was sent: $(cat "$work/traffic")"
  grep -q 'overheard [1-9]' "$work/traffic" || echo "skipped: replayed and changed datagrams ($(cat "$work/traffic")): listening to the loopback is not allowed"
  no_orphans
done
exit $failed
