#!/bin/bash
# limit: 300
# Requests in a row while workers are killed and restarted at random: each answer is that of the plain run on as many devices as were there,
# or the run ends with an error; nothing grows (descriptors and memory of the leader and of porters), nothing stays behind, nothing hangs.
# 40 requests; 200 with ASTRA_LONG=1. The random numbers' seed is in SEED. Memory is compared where the system tells it.
. tests/network/helpers.sh
requests=40
[ -z "${ASTRA_LONG:-}" ] || requests=200
RANDOM=${SEED:-1}
scale=${TIME_SCALE:-1}
make_checkpoint "$work/model" vit-cifar 8 256 4
mkdir "$work/p"
pictures=()
count=$((requests * 8))
for ((i = 0; i < count; i++)); do
  make_picture "$work/p/$i.ppm" 32
  pictures+=("$work/p/$i.ppm")
done

# What is right, by the number of devices: a line for each picture.
lines_of() { grep -o '{"file":[^]]*\]' "$1"; }
for nodes in 1 2 3 4; do
  "$program" -c "$work/model" --nodes $nodes --threads 1 --batch 8 --top 3 --json "${pictures[@]}" >"$work/all" || report "--nodes $nodes"
  lines_of "$work/all" >"$work/right.$nodes"
  [ "$(wc -l <"$work/right.$nodes")" -eq $count ] || report "$nodes nodes do not give $count answers"
done

declare -A port
names=(a b c)
for name in "${names[@]}"; do
  start_worker $name 127.0.0.1:0 -c "$work/model"
  port[$name]=${address[$name]##*:}
done
descriptors() { ls "/proc/$1/fd" 2>/dev/null | wc -l; }
memory() { # kB, or 0 where nobody knows
  local kilobytes
  kilobytes=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$1/status" 2>/dev/null)
  echo "${kilobytes:-0}"
}
first_descriptors=$(descriptors "${porter[a]}") first_memory=$(memory "${porter[a]}")

"$program" -c "$work/model" --peers "${address[a]},${address[b]},${address[c]}" --threads 1 --batch 8 --top 3 --json "${pictures[@]}" \
  >"$work/out" 2>"$work/err" &
leader=$!
kills=0 most=0 begin=$SECONDS
while running $leader; do
  sleep 0.$((RANDOM % 5 + 1))
  name=${names[$((RANDOM % 3))]}
  case $((RANDOM % 3)) in
  0) kill -KILL $(sessions_of $name) 2>/dev/null ;; # the session alone: its porter stays
  *)
    kill -KILL "${porter[$name]}"
    wait "${porter[$name]}" 2>/dev/null
    start_worker $name "127.0.0.1:${port[$name]}" -c "$work/model"
    ;;
  esac
  kills=$((kills + 1))
  now=$(descriptors $leader)
  [ "$now" -le $most ] || most=$now
  [ $((SECONDS - begin)) -lt $((200 * scale)) ] || { kill -KILL $leader; report "no end after $((200 * scale)) s"; break; }
done
wait $leader
code=$?
echo "$requests requests, $kills kills, at most $most descriptors, exit code $code, $((SECONDS - begin)) s"

if [ $code -eq 0 ]; then
  lines_of "$work/out" >"$work/answers"
  [ "$(wc -l <"$work/answers")" -eq $count ] || report "$(wc -l <"$work/answers") answers to $count pictures"
  paste -d '\n' "$work/answers" "$work/right.1" "$work/right.2" "$work/right.3" "$work/right.4" |
    awk 'NR % 5 == 1 { answer = $0; found = 0 } NR % 5 != 1 && $0 == answer { found = 1 } NR % 5 == 0 && !found { print answer; wrong = 1 } END { exit wrong }' \
      >"$work/wrong" || report "answers that are not right: $(head -3 "$work/wrong")"
elif [ $code -ne 1 ] || ! grep -q 'error: ' "$work/err"; then
  report "neither answers nor an error"
fi
[ $kills -ge 3 ] || report "only $kills kills: the requests were over too soon"
[ $most -le 40 ] || report "the leader had $most descriptors open"

# What remains: porters, no sessions, no more descriptors or memory than at first.
sleep 1
for name in "${names[@]}"; do
  [ -z "$(sessions_of $name)" ] || report "worker $name still has sessions"
  [ "$(descriptors "${porter[$name]}")" -le "$first_descriptors" ] || report "worker $name has $(descriptors "${porter[$name]}") descriptors, $first_descriptors at first"
  [ "$(memory "${porter[$name]}")" -le $((first_memory + 4096)) ] || report "worker $name takes $(memory "${porter[$name]}") kB, $first_memory at first"
  stop_worker $name
done
exit $failed
