#!/bin/bash
# limit: 1800
# Three services, two of texts and one of images, each on a device of its own and on workers, under requests of all kinds (make_clients): clients that leave,
# that stop in the middle of their request, that read slowly, that are refused; every while a worker is killed and started again. Every answer is
# the expected one, which is the same for any number of devices; none breaks off, none is stuck, and no process grows.
# 1,000 requests, a kill every second; 20,000 and a kill every minute with ASTRA_LONG=1 (REQUESTS=N, KILL_SECONDS=N, SEED=N), which also compares memory.
. tests/network/helpers.sh
command -v jq >/dev/null && command -v curl >/dev/null || { echo "skipped: jq and curl are needed"; exit 77; }
clients=$build/tests/serve/make_clients
stories=tests/golden/stories260K mini=checkpoints/gpt2-mini-g8 images=checkpoints/vit-cifar-g8 pictures=datasets/pictures
requests=1000 kill_seconds=1 tokens=40 scale=${TIME_SCALE:-1}
[ -z "${ASTRA_LONG:-}" ] || requests=20000 kill_seconds=60 tokens=200
requests=${REQUESTS:-$requests} kill_seconds=${KILL_SECONDS:-$kill_seconds}
long=$([ "$requests" -lt 5000 ] || echo long)
services=()
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
# An exit in the middle leaves nothing behind.
trap 'kill "${services[@]}" "${listener[@]}" ${server:+"$server"} 2>/dev/null; wait; rm -rf "$work"' EXIT

start() { # ARGUMENTS...: sets base
  start_service --listen 127.0.0.1:0 --threads 1 "$@"
  services+=("$server")
}
end_service() { kill "${services[-1]}"; wait "${services[-1]}" || report "a service: exit code $?"; unset 'services[-1]'; }
ask() { curl -sS -m 60 "$base$1" -H 'Content-Type: application/json' -d "$2"; } # PATH JSON

# ---- what is right
# Whole texts are those of one device, with which any number of devices agrees where each decodes alone (--strategy single). Of a model whose devices
# exchange codes the next token depends on their number: those that one and two choose, where neither hesitates.
begins=("Once upon a time" "The little dog" "One day, Tim" "She was very happy" "There was a big" "Lily and Ben" "Mom said" "In the park")
heads=("The cat and the dog and the cat and the dog and the" "The history of the city" "The first season of" "In the end of the" "He was born in" "New York City and New York City and"
  "The song was released as a" "At the end of the" "It is the only" "1 2 3 4 1 2 3 4 1 2" "The United States" "One of the most")
list() { printf '%s\n' "$@" | jq -R . | jq -sc .; }
start -c $stories --nodes 1
ask /v1/completions "{\"prompt\": $(list "${begins[@]}"), \"max_tokens\": $tokens, \"temperature\": 0}" | jq -c '[.choices | sort_by(.index)[].text]' >"$work/texts"
for i in "${!begins[@]}"; do
  body=$(jq -nc --arg p "${begins[i]}" --argjson m $tokens '{messages: [{role: "user", content: $p}], max_tokens: $m, temperature: 0}')
  ask /v1/chat/completions "$body" | jq -c '.choices[0].message.content' >"$work/chat.$i"
  ask /tokenize "$(jq -nc --arg p "${begins[i]}" '{prompt: $p}')" | jq -c .tokens >"$work/ids.$i"
done
end_service
for n in 1 2; do
  start -c $mini --nodes $n
  ask /v1/completions "{\"prompt\": $(list "${heads[@]}"), \"max_tokens\": 1, \"temperature\": 0, \"logprobs\": 2}" >"$work/heads.$n"
  end_service
done
jq -sc --argjson heads "$(list "${heads[@]}")" 'map(.choices | sort_by(.index)) | transpose | to_entries | map({prompt: $heads[.key], choices: .value}) |
  map(select(all(.choices[].logprobs.top_logprobs[0] | [.[]] | sort; length > 1 and .[1] - .[0] > 0.1)))[] |
  {kind: "next token", url: "$mini/v1/completions", status: 200, weight: 0.6, answers: [.choices[] | [.text]], body: {prompt, max_tokens: 1, temperature: 0}}' \
  "$work/heads.1" "$work/heads.2" >"$work/next"
[ "$(wc -l <"$work/next")" -ge 4 ] && [ "$(jq length "$work/texts")" = 8 ] || { report "no expected answers: $(cat "$work/next" "$work/texts")"; exit 1; }

# ---- the services, and what is asked of them
start_worker a 127.0.0.1:0 --key-file "$work/key" -c $stories
start_worker b 127.0.0.1:0 --key-file "$work/key" -c $stories
start_worker c 127.0.0.1:0 --key-file "$work/key" -c $images
start_worker d 127.0.0.1:0 --key-file "$work/key" -c $images
start_worker e 127.0.0.1:0 --key-file "$work/key" -c $mini
start -c $stories --cache-memory 4M --strategy single --peers "${address[a]},${address[b]}" --key-file "$work/key" --header-timeout 5s --stall-timeout 5s
texts=$base logs=("$server_log")
start -c $images --peers "${address[c]},${address[d]}" --key-file "$work/key" --header-timeout 5s
picture_base=$base logs+=("$server_log")
start -c $mini --peers "${address[e]}" --key-file "$work/key"
mini_base=$base logs+=("$server_log")
case_of() { jq -nc "$@" >>"$work/cases.l"; }
sed "s|\$mini/|$mini_base/|" "$work/next" >"$work/cases.l"
for i in "${!begins[@]}"; do
  for stream in true false; do
    case_of --arg url "$texts/v1/completions" --arg p "${begins[i]}" --argjson m $tokens --argjson s $stream --argjson i $i --slurpfile t "$work/texts" \
      '{kind: "completion", url: $url, status: 200, answers: [[$t[0][$i]]], body: {prompt: $p, max_tokens: $m, temperature: 0, stream: $s}}'
    case_of --arg url "$texts/v1/chat/completions" --arg p "${begins[i]}" --argjson m $tokens --argjson s $stream --slurpfile t "$work/chat.$i" \
      '{kind: "chat", url: $url, status: 200, answers: [$t], body: {messages: [{role: "user", content: $p}], max_tokens: $m, temperature: 0, stream: $s}}'
  done
  case_of --arg url "$texts/tokenize" --arg p "${begins[i]}" --slurpfile ids "$work/ids.$i" \
    '{kind: "tokenize", url: $url, status: 200, weight: 0.5, answers: $ids, body: {prompt: $p}}'
done
case_of --arg url "$texts/v1/completions" '{kind: "long", url: $url, status: 200, body: {prompt: "Once", n: 3, max_tokens: 60, logprobs: 20, stream: true}}'
case_of --arg url "$texts/v1/completions" --argjson m $tokens --slurpfile t "$work/texts" --argjson p "$(list "${begins[@]}")" \
  '{kind: "several", url: $url, status: 200, answers: $t, body: {prompt: $p, max_tokens: $m, temperature: 0}}'
case_of --arg url "$texts/v1/completions" '{kind: "bad", url: $url, status: 400, answers: [["n"]], body: {prompt: "a", n: 1.5}}'
case_of --arg url "$texts/v1/chat/completions" '{kind: "no JSON", url: $url, status: 400, body: "{\"messages\": [{"}'
case_of --arg url "$texts/v1/nothing" '{kind: "nothing", url: $url, status: 404, body: {}}'
case_of --arg url "$texts/metrics" '{kind: "metrics", url: $url, status: 200}'
case_of --arg url "$picture_base/v1/images/classify" '{kind: "no image", url: $url, status: 422, type: "image/png", body: "no image"}'
for n in 1 2 3; do "$program" -c $images --nodes $n --json $pictures/*.png 2>/dev/null | jq -c '[.images[].top[0].label]'; done >"$work/labels"
i=0
for picture in $pictures/*.png; do
  case_of --arg url "$picture_base/v1/images/classify?top=1" --arg file $picture --slurpfile l "$work/labels" --argjson i $i \
    '{kind: "classify", url: $url, status: 200, weight: 0.8, type: "image/png", file: $file, answers: [$l[] | [.[$i]]]}'
  i=$((i + 1))
done
jq -s . "$work/cases.l" >"$work/cases"

# ---- under load
# Memory of a service, with its device, or of a worker, with its session, without files that are mapped, which other processes share: memory PID
memory() { cat $(for p in $1 $(cat /proc/$1/task/*/children 2>/dev/null); do echo /proc/$p/smaps_rollup; done) 2>/dev/null | awk '/^Pss_Anon:/ { n += $2 } END { print n + 0 }'; }
kills=0
kill_one() {
  case $((kills % 3)) in
  0) one=b arguments=(-c $stories) ;;
  1) one=d arguments=(-c $images) ;;
  2) one=e arguments=(-c $mini) ;;
  esac
  kill -KILL $(sessions_of $one) "${listener[$one]}" 2>/dev/null
  wait "${listener[$one]}" 2>/dev/null
  start_worker $one "${address[$one]}" --key-file "$work/key" "${arguments[@]}"
  kills=$((kills + 1))
}
under_load() { # REQUESTS SEED
  local load next=$((SECONDS + kill_seconds)) done
  "$clients" "$work/cases" "$1" 24 "$2" wild >"$work/load" 2>"$work/err" &
  load=$!
  : >"$work/memory"
  while running $load; do
    sleep 0.5
    done=$(sed -n 's/^done //p' "$work/load" | tail -1)
    echo "${done:-0} $(memory "${services[0]}") $(memory "${services[1]}") $(memory "${services[2]}") $(memory "${listener[a]}") $(memory "${listener[c]}")" >>"$work/memory"
    [ $SECONDS -ge $next ] || continue
    kill_one
    next=$((SECONDS + kill_seconds))
  done
  wait $load || report "wrong, stuck or broken: $(tail -1 "$work/load")"
}
# Memory is compared once what is kept for later has its full size, also with devices fewer: keys and values of texts (4 MB), products by shape.
if [ -n "$long" ]; then
  under_load $((requests / 2)) $((${SEED:-1} + 1))
  while [ $kills -lt 3 ]; do kill_one; done
  under_load 1000 $((${SEED:-1} + 2))
fi
under_load $requests "${SEED:-1}"
figures=$(tail -1 "$work/load")
[ $kills -ge 1 ] || report "no worker was killed: the requests were over too soon: $figures"
jq -e '.right > 0.6 * .requests and .left > 0' <<<"$figures" >/dev/null || report "few right answers: $figures"

# ---- what is left: nothing that decodes, and memory of the last tenth against that of the first
base=$texts
for ((i = 0; i < 100 * scale; i++)); do
  curl -sS -m 10 "$base/v1/cluster" >"$work/out"
  jq -e '.models[0] | .ready and .queued == 0 and .decoding == 0' "$work/out" >/dev/null 2>&1 && break
  sleep 0.1
done
[ $i -lt $((100 * scale)) ] || report "something still decodes"
! grep -h 'cluster has failed' "${logs[@]}" >"$work/out" || report "a cluster has failed"
echo "clients: $figures; $kills kills"
column=1
for who in "service of stories" "service of images" "service of next tokens" "worker a" "worker c"; do
  column=$((column + 1))
  # Means over the requests of either tenth, in kB; both of the worker's device and its own.
  read -r early late < <(awk -v c=$column -v n=$requests '$c > 0 && $1 > 0 && $1 <= n / 10 { e += $c; i++ } $c > 0 && $1 > 0.9 * n { l += $c; j++ } END { print i ? int(e / i) : 0, j ? int(l / j) : 0 }' "$work/memory")
  echo "$who: $early kB in the first tenth, $late kB in the last"
  [ -z "$long" ] || [ $((late * 100)) -le $((early * 105)) ] || report "$who grew from $early to $late kB"
done
while [ ${#services[@]} -gt 0 ]; do end_service; done
for one in a b c d e; do stop_worker $one; done
exit $failed
