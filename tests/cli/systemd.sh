#!/bin/bash
# limit: 30
# The units of systemd: what they start is there and takes the options that stand in them, they are well formed, and what they could do to the
# system is little. That the programs tell when they are ready is checked by infer/test_listener and infer/test_notify.
set -u
bin=$(realpath "${BUILD:-build}/bin")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
report() { echo "FAILED: $1"; failed=1; }
count=0
for unit in dist/*.service; do
  name=${unit##*/}
  count=$((count + 1))
  sed "s|/usr/local/bin|$bin|" "$unit" >"$work/$name"
  grep -qx 'Type=notify' "$unit" || report "$name does not wait for readiness"
  grep -qE '^ExecStart=/usr/local/bin/astra-' "$unit" || report "$name: make install would not find its program"
  for option in $(grep -E '^(ExecStart|Environment)=' "$unit" | grep -oE -e '--[a-z-]+'); do
    "$bin/astra-infer" worker --help | grep -q -e "$option\b" || report "$name: there is no option $option"
  done
done
[ $count = 2 ] || report "$count units"
if command -v systemd-analyze >/dev/null; then
  systemd-analyze verify --man=no "$work"/*.service >"$work/out" 2>&1 || report "systemd-analyze verify: $(cat "$work/out")"
  [ ! -s "$work/out" ] || report "systemd-analyze verify: $(cat "$work/out")"
  if systemd-analyze --help | grep -q -e --threshold; then
    for unit in "$work"/*.service; do
      systemd-analyze security --offline=true --threshold=25 "$unit" >"$work/out" 2>&1 || report "${unit##*/}: $(tail -n 1 "$work/out")"
    done
  fi
else
  echo "skipped: not verified: no systemd-analyze here"
fi
[ $failed = 0 ] && echo "systemd: passed"
exit $failed
