#!/bin/bash
# limit: 120
# A flood of callers without a key, from one address and from many, keeps no leader out, over a way whose round trips take 200 ms; it starts no
# process and takes no memory of the worker. tools/results-door.sh measures the same at full size.
. tests/network/helpers.sh
make_checkpoint "$work/model" tiny 4 16 2
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
start_worker w 127.0.0.1:0 -c "$work/model" --key-file "$work/key" --queue 64
callers=$build/tests/infer/make_callers
"$callers" delay 127.0.0.1:0 "${address[w]}" 0.2 >"$work/way" &
way=$!
for ((i = 0; i < 100; i++)); do [ ! -s "$work/way" ] || break; sleep 0.05; done
far=$(sed -n 's/^listening on //p' "$work/way")
memory() { sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/${listener[w]}/status"; }

before=$(memory)
for sources in 0 200; do
  "$callers" flood "${address[w]}" 2000 8 $sources >"$work/flood" 2>>"$work/err" &
  flood=$!
  sleep 2
  [ -z "$(sessions_of w)" ] || report "$sources: callers without a key have started a process"
  "$callers" lead "$far" "$work/key" 20 5 >"$work/out" 2>>"$work/err" || report "$sources: leaders were kept out"
  wait $flood || report "the flood itself"
  grep -qE '^calls [0-9]{4,} ' "$work/flood" || report "there was no flood: $(cat "$work/flood")"
done
[ $(($(memory) - before)) -lt $((8000 * ${TIME_SCALE:-1})) ] || report "the worker took $(($(memory) - before)) kB more than before"
until_free w
make_picture "$work/1.ppm" 16
timeout 60 "$program" -c "$work/model" --peers "${address[w]}" --key-file "$work/key" --threads 1 "$work/1.ppm" >"$work/out" 2>"$work/err" || report "the worker serves nobody any more"
kill $way
wait $way 2>/dev/null
stop_worker w
exit $failed
