#!/bin/bash
# limit: 240
# The ways to divide a model, over real processes, --nodes and --peers: tp and sp give the single device's logits (log probabilities of all
# classes; nats a token of a text) to 1e-4, for a ViT, a GPT-2 and a Llama whose keys are shared by several heads, plain and with codebooks;
# bytes a token are those of the formulas of docs/MATH.md, computed here from the models' shapes; what does not go together is refused.
. tests/network/helpers.sh
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
export XDG_CACHE_HOME=$work/cache
make_checkpoint "$work/vit" vit-cifar 0
make_checkpoint "$work/coded" vit-cifar 8 256 4
sed -i 's/"astra": {/"astra": {"class_bias": -0.8,/' "$work/coded/config.json" # towards codes, of which these strategies send none
grep -q class_bias "$work/coded/config.json" || report "no class bias"
make_checkpoint "$work/gpt2" tiny-gpt2 0
cp tests/golden/stories260K/tok512.bin "$work/gpt2/"
llama=tests/golden/stories260K
make_picture "$work/1.ppm" 32
make_picture "$work/2.ppm" 32
cat "$llama/golden_stdout.txt" >"$work/text.txt"

# D, L and T of each, and rows besides (the class token's)
shape_of() { # KIND
  case $1 in
  vit | coded) echo 192 6 64 1 ;;
  gpt2) echo 32 3 40 0 ;;
  llama) echo 64 5 40 0 ;;
  esac
}
arguments_of() { # KIND
  case $1 in
  vit | coded) echo -c "$work/$1" --top 100 --batch 2 "$work/1.ppm" "$work/2.ppm" ;;
  gpt2) echo eval -c "$work/gpt2" -d "text:$work/text.txt" --context 40 --batch 2 ;;
  llama) echo eval -c "$llama" -d "text:$work/text.txt" --context 40 --batch 2 ;;
  esac
}

run() { # NAME ARGUMENTS...: JSON into out
  name=$1
  shift
  timeout 60 "$program" "$@" --threads 1 --json -q >"$work/out" 2>"$work/err" </dev/null || report "$name: exit code $?"
}

# The formula of a strategy over all nodes and receivers, for a token. The last block's sums are of the class row alone, or of all rows of a
# text whose losses are wanted. Of texts device d sends to those behind it; even spans.
formula() { # KIND STRATEGY NODES RETAINED
  local shape
  read -ra shape <<<"$(shape_of "$1")"
  awk -v s="$2" -v n="$3" -v kept="$4" -v d="${shape[0]}" -v l="${shape[1]}" -v t="${shape[2]}" -v more="${shape[3]}" 'BEGIN {
    rows = t + more; others = n - 1; copies = 0
    for (i = 0; i < n; i++) copies += (int(t / n) + (i < t % n)) * (n - 1 - i)
    if (more) copies = others * rows
    if (s == "sp") bytes = l * 4 * d * copies
    if (s == "tp") bytes = others * 16 * d * ((l - 1) * rows + (more ? 1 : rows))
    if (s == "bp-ag") bytes = others * kept * 4 * d * rows
    if (s == "bp-sp") bytes = others * 2 * kept * 4 * d * rows
    printf "%.9g", bytes / t
  }'
}

# Log probabilities of all classes of both images, or nats a token.
numbers='if .nats then [.nats / .tokens] else [.images[].top | sort_by(.class)[].probability | log] end'
check() { # KIND STRATEGY NODES RETAINED RIGHT
  local expected
  expected=$(formula "$1" "$2" "$3" "$4")
  jq -n -e --slurpfile one "$work/single" --slurpfile run "$work/out" --arg strategy "$2" --argjson bytes "$expected" --argjson right "$5" "
    ([(\$one[0] | $numbers), (\$run[0] | $numbers)]) as [\$a, \$b]
    | ([\$a, \$b] | transpose | map((.[0] - .[1]) | fabs) | max) as \$worst
    | (\$a | length == (if \$run[0].nats then 1 else 200 end)) and (\$b | length == (\$a | length))
      and \$run[0].strategy == \$strategy
      and ([\$run[0].bytes_per_token, \$run[0].bytes_per_token_formula] | all((. - \$bytes | fabs) <= 1e-6 * \$bytes))
      and (if \$strategy == \"sp\" then \$run[0].fpar < 0.6 else \$run[0].fpar == 1 end)
      and (\$run[0].fastest_ms // 1) >= 0.01 # of a device that had something to do
      and (if \$right then \$worst <= 1e-4 else (\$run[0].notice | contains(\"latency baseline\")) end)" >"$work/checked" 2>"$work/err" ||
    report "$name: not the single device's numbers, or not $expected bytes a token"
}

for kind in vit coded gpt2 llama; do
  read -ra arguments <<<"$(arguments_of $kind)"
  run "$kind, one device" "${arguments[@]}" --nodes 1
  cp "$work/out" "$work/single"
  for nodes in 2 3 4; do
    for strategy in tp sp single; do
      [ "$strategy$nodes" != tp4 ] || case $kind in vit | coded) continue ;; esac # three heads
      run "$kind, $strategy on $nodes" "${arguments[@]}" --nodes $nodes --strategy $strategy
      check $kind $strategy $nodes 0 true
    done
  done
  for retained in 1 2; do
    for strategy in bp-ag bp-sp; do
      run "$kind, $strategy" "${arguments[@]}" --nodes 3 --strategy $strategy --retained $retained
      check $kind $strategy 3 $retained false
    done
  done
done

# ---- a worker: streams in TLS
start_worker a 127.0.0.1:0 --key-file "$work/key" -c "$work/vit"
start_worker b 127.0.0.1:0 --key-file "$work/key" -c "$llama"
for kind in vit llama; do
  read -ra arguments <<<"$(arguments_of $kind)"
  run "$kind, one device" "${arguments[@]}" --nodes 1
  cp "$work/out" "$work/single"
  peer=${address[a]}
  [ $kind = vit ] || peer=${address[b]}
  for strategy in tp sp single; do
    run "$kind, $strategy with a worker" "${arguments[@]}" --peers "$peer" --key-file "$work/key" --strategy $strategy
    check $kind $strategy 2 0 true
  done
done
read -ra arguments <<<"$(arguments_of vit)"
name="links as they are asked to be" # slower, and the same
run "$name" "${arguments[@]}" --nodes 2 --strategy tp --latency 5ms
cp "$work/out" "$work/slow"
run "$name" "${arguments[@]}" --nodes 2 --strategy tp
[ -n "$(answer_of "$work/out")" ] && cmp -s <(answer_of "$work/slow") <(answer_of "$work/out") || report "$name: another answer"
jq -e '[.nodes[].wait_ms] | min >= 96' "$work/slow" >"$work/checked" || report "$name: it took no time" # of 2 x 12 sums of 5 ms 4 fifths
stop_worker b

# ---- a worker that dies: nothing can take the place of its rows, so that the others compute anew, also where codes would be masked
make_cifar "$work/data"
evaluation=(eval -c "$work/vit" -d cifar100 --data-dir "$work/data" --samples 1000 --batch 8)
run "1000 images on one device" "${evaluation[@]}" --nodes 1
cp "$work/out" "$work/single"
for strategy in tp sp; do
  name="$strategy without a worker that died"
  start_worker c 127.0.0.1:0 --key-file "$work/key" -c "$work/vit"
  "$program" "${evaluation[@]}" --peers "${address[a]},${address[c]}" --key-file "$work/key" --strategy $strategy --on-failure mask --threads 1 --json \
    >"$work/out" 2>"$work/err" </dev/null &
  leader=$!
  for ((i = 0; i < 600; i++)); do [ -z "$(sessions_of c)" ] || break; sleep 0.05; done
  computes "$(session_of c)" 15
  kill -KILL "${listener[c]}"
  wait "${listener[c]}" 2>/dev/null
  wait $leader || report "$name: exit code $?"
  grep -q "node 2 (worker ${address[c]}).*continuing without it" "$work/err" || report "$name: it is not said that a device was lost"
  jq -n -e --slurpfile one "$work/single" --slurpfile run "$work/out" \
    '$run[0] | .samples == 1000 and .incomplete_answers == 0 and .top1 == $one[0].top1 and .top5 == $one[0].top5 and (.loss - $one[0].loss | fabs) < 1e-5' \
    >"$work/checked" 2>"$work/err" || report "$name: another answer than that of one device"
done
stop_worker a

# ---- what is told, and what is refused
expect() { # NAME EXIT-CODE TEXT ARGUMENTS...
  name=$1
  timeout 60 "$program" "${@:4}" >"$work/out" 2>"$work/err" </dev/null
  local code=$?
  [ $code -eq "$2" ] || report "$name: exit code $code, expected $2"
  grep -qF -e "$3" "$work/err" "$work/out" || report "$name: it lacks '$3'"
}
vit=(-c "$work/vit" "$work/1.ppm")
expect "a notice" 0 "latency baseline: the accuracy would need its own training" "${vit[@]}" --nodes 2 --strategy bp-ag
expect "the table" 0 "strategy sp sent" "${vit[@]}" --nodes 2 --strategy sp
expect "datagrams" 2 "--strategy sp sends whole tokens: --transport tcp" "${vit[@]}" --nodes 2 --strategy sp --transport udp
expect "datagrams of nothing" 2 "leave out --transport udp" "${vit[@]}" --nodes 2 --strategy single --transport udp
expect "parts" 2 "--parts" "${vit[@]}" --nodes 2 --strategy sp --parts 2
expect "a deadline" 2 "--deadline" "${vit[@]}" --nodes 2 --strategy sp --deadline 10ms
expect "lost tokens" 2 "--loss" "${vit[@]}" --nodes 2 --strategy tp --loss 5% --loss-unit token
expect "a split" 2 "--split" "${vit[@]}" --strategy tp --split 3,1
expect "retained" 2 "--retained is for --strategy bp-ag and bp-sp" "${vit[@]}" --nodes 2 --strategy tp --retained 2
expect "too many retained" 2 "--retained 7: the model has 6 blocks" "${vit[@]}" --nodes 2 --strategy bp-sp --retained 7
expect "too many devices" 2 "--nodes 4: strategy tp: 4 devices for 3 key and value heads and 768 hidden numbers of the MLP: each needs at least one, so up to 3 are accepted" "${vit[@]}" --nodes 4 --strategy tp
expect "an unknown one" 2 "bp-ag" "${vit[@]}" --nodes 2 --strategy ring
expect "no codebooks" 2 "--strategy single, tp, sp, bp-ag, bp-sp can do without codebooks" "${vit[@]}" --nodes 2
expect "a prompt" 2 "astra and single can" -c "$llama" --prompt Once --nodes 2 --strategy tp
expect "a prompt on one of three" 0 "tokens/s" -c "$llama" --prompt "Once upon" -m 3 --nodes 3 --strategy single
exit $failed
