#!/bin/bash
# Speed of astra-serve and of decoding: measures the figures of docs/results/serve.md and writes its table there.
#   tools/results-serve.sh [SECTION...]        default: all of
#     devices    16 concurrent texts on two devices, which a link of RATE joins, against one device; with --remote-cache codes and full
#     batching   16 concurrent texts against one, on one device; and steps of 16 sequences against steps of one, by precision
#     bandwidth  share of the memory's read rate that decoding of one text uses, by precision
#     lookup     --speculate lookup against off, one text at a time
#     drafts     --speculate draft and auto against off, one text at a time: a device that decodes and one that drafts, joined by 10 Mbit/s and 2 ms
#     prefix     16 texts with a common beginning of 300 tokens against 16 without, on one device
#     overhead   time to the first token of a stream, and of an image, against astra-infer's own
#     llamacpp   one text and 16 at once against llama.cpp on the same GGUF file, one device; not by default: LLAMA_CPP is a folder in which
#                `npm install node-llama-cpp` ran
# Model: the shape of GPT-2 small with random weights (and 32 groups of 1,024 codewords), which do not change the speed of a step. Every device
# has one thread on a core of its own; with `devices` leader and worker live in a network namespace each, and the link is the kernel's: a pair of
# veth with a token bucket (tbf) on either side. Ways that are compared take turns. Needs two quiet cores, curl, jq, `make`, and for `devices` the
# right to make network namespaces. About 15 minutes.
#   TURNS=5 TEXTS=16 PROMPT=512 NEW=128 RATE=20mbit WEIGHTS=file REPEATS=50; CSV, DOCUMENT: what is written; MODEL: a folder for the model, which
#   is kept; BUILD
# CSV lines: section, case, turn, tokens, seconds. A section that is measured again replaces its lines.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C # numbers with points
turns=${TURNS:-5} texts=${TEXTS:-16} prompt=${PROMPT:-512} new=${NEW:-128} rate=${RATE:-20mbit} weights=${WEIGHTS:-file} repeats=${REPEATS:-50}
csv=${CSV:-docs/results/serve.csv} document=${DOCUMENT:-docs/results/serve.md} build=${BUILD:-build}
bin=$(realpath "$build/bin") work=$(mktemp -d)
model=${MODEL:-$work/model}
. tools/network-helpers.sh
processes=()

finish() {
  for pid in "${processes[@]}"; do { kill "$pid" && wait "$pid"; } 2>/dev/null || true; done
  remove_network
  rm -rf "$work"
}
trap finish EXIT

# Prompts are token ids; the tokenizer only has to be as large as the model's vocabulary.
make_model() {
  [ ! -f "$model/tokenizer.json" ] || return 0
  make --no-print-directory "$build/tests/infer/make_sample" >/dev/null
  "$build/tests/infer/make_sample" "$model" gpt2 32 1024 2 0 0
  jq -c '.model.vocab += (reduce range(4096; 50257) as $i ({}; .["<unused-\($i)>"] = $i))' checkpoints/gpt2-mini/tokenizer.json >"$work/tokenizer"
  mv "$work/tokenizer" "$model/tokenizer.json"
}

# ---- services

# wait_for FILE PATTERN PID: what the pattern's group is in a line of the log
wait_for() {
  local found=
  while [ -z "$found" ]; do
    kill -0 "$3" 2>/dev/null || { cat "$1" >&2; exit 1; }
    sleep 0.2
    found=$(sed -nE "s/$2/\1/p" "$1" | head -n 1)
  done
  echo "$found"
}

# serve NAME PREFIX... -- OPTION...: a service behind the socket $work/NAME
serve() {
  local name=$1 prefix=()
  shift
  while [ "$1" != -- ]; do prefix+=("$1") && shift; done
  shift
  "${prefix[@]}" "$bin/astra-serve" --checkpoint gpt2="$model" --listen "unix:$work/$name" --threads 1 --http-threads 1 --sequences "$texts" --queue 256 \
    --cache-memory 2G --weights "$weights" --no-log "$@" >"$work/$name.out" 2>"$work/$name.log" &
  processes+=($!)
  wait_for "$work/$name.log" '.*(listening on).*' "$!" >/dev/null
}

stop_all() {
  for pid in "${processes[@]}"; do { kill "$pid" && wait "$pid"; } 2>/dev/null || true; done
  processes=()
}

seed=0
# requests COUNT TOKENS NEW COMMON: files of so many different texts, the first COMMON tokens the same
pieces=4000
requests() {
  seed=$((seed + 1))
  awk -v pieces="$pieces" -v count="$1" -v tokens="$2" -v new="$3" -v common="$4" -v seed="$seed" -v to="$work/request" 'BEGIN {
    srand(seed)
    for (i = 0; i < common; i++) shared = shared 3 + int(pieces * rand()) ","
    for (r = 0; r < count; r++) {
      ids = shared
      for (i = common; i < tokens; i++) ids = ids 3 + int(pieces * rand()) (i + 1 < tokens ? "," : "")
      printf "{\"model\": \"gpt2\", \"temperature\": 0, \"max_tokens\": %d, \"prompt\": [%s]}", new, ids >(to "-" r)
      close(to "-" r)
    }
  }'
}

# ask NAME COUNT: all requests at once -> "TOKENS SECONDS", new tokens of all
ask() {
  local start=$EPOCHREALTIME clients=() r
  for ((r = 0; r < $2; r++)); do
    curl -sS --fail-with-body -m 600 --unix-socket "$work/$1" -H 'Content-Type: application/json' -d @"$work/request-$r" \
      http://localhost/v1/completions -o "$work/answer-$r" &
    clients+=($!)
  done
  for r in "${clients[@]}"; do wait "$r" || { cat "$work"/answer-* "$work/$1.log" >&2; exit 1; }; done
  local end=$EPOCHREALTIME answers=()
  for ((r = 0; r < $2; r++)); do answers+=("$work/answer-$r"); done
  echo "$(jq -s 'map(.usage.completion_tokens) | add' "${answers[@]}") $(awk "BEGIN {print $end - $start}")"
}

# note SECTION CASE TURN TOKENS SECONDS
note() { printf '%s,%s,%s,%s,%s\n' "$@" | tee -a "$csv"; }
metric() { curl -sS --unix-socket "$work/$1" http://localhost/metrics | awk -v name="$2" '$1 ~ "^" name "($|[{])" {sum += $2} END {print sum + 0}'; }

# ---- sections

section_devices() {
  local address address_full turn
  make_network
  "$bin/astra-infer" keygen "$work/key" 2>/dev/null
  ip netns exec "$b" taskset -c 1 "$bin/astra-infer" worker -c "$model" --listen 10.77.0.2:0 --key-file "$work/key" --threads 1 --weights "$weights" \
    2>"$work/worker.log" &
  processes+=($!)
  address=$(wait_for "$work/worker.log" '.*listening on (.*)' "$!")
  ip netns exec "$b" taskset -c 1 "$bin/astra-infer" worker -c "$model" --listen 10.77.0.2:0 --key-file "$work/key" --threads 1 --weights "$weights" \
    --remote-cache full 2>"$work/worker-full.log" &
  processes+=($!)
  address_full=$(wait_for "$work/worker-full.log" '.*listening on (.*)' "$!")
  serve two ip netns exec "$a" taskset -c 0 -- --peers "$address" --key-file "$work/key" --speculate off
  serve two-full ip netns exec "$a" taskset -c 0 -- --peers "$address_full" --key-file "$work/key" --speculate off --remote-cache full
  serve one taskset -c 0 -- --nodes 1 --speculate off
  for ((turn = 0; turn <= turns; turn++)); do # the first one warms up
    for name in one two two-full; do
      requests "$texts" "$prompt" "$([ "$turn" = 0 ] && echo 8 || echo "$new")" 0
      read -r tokens seconds < <(ask "$name" "$texts")
      [ "$turn" = 0 ] || note devices "$name" "$turn" "$tokens" "$seconds"
    done
  done
  stop_all
  remove_network
}

section_batching() {
  local turn kind
  serve one taskset -c 0 -- --nodes 1 --speculate off
  for ((turn = 0; turn <= turns; turn++)); do
    for count in 1 "$texts"; do
      requests "$count" 32 "$([ "$turn" = 0 ] && echo 8 || echo "$new")" 0
      read -r tokens seconds < <(ask one "$count")
      [ "$turn" = 0 ] || note batching "service-$([ "$count" = 1 ] && echo one || echo all)" "$turn" "$tokens" "$seconds"
    done
  done
  stop_all
  for kind in "fp32 fp32" "bf16 fp32" "fp32 int8" "fp32 int4"; do steps $kind; done
}

# steps PRECISION WEIGHTS: of 1 and of all sequences, with PROMPT tokens before
steps() {
  local name=$([ "$2" = fp32 ] && echo "$1" || echo "$2")
  taskset -c 0 "$bin/astra-bench" decode --model gpt2 --sequences "$texts" --length "$prompt" --precision "$1" --weights "$2" --threads 1 --repeats "$repeats" --json |
    tail -n 1 | jq -r '.batches | first, last | "\(.sequences) \(.sequences / .tokens_per_second)"' |
    while read -r sequences seconds; do note batching "step-$name-$([ "$sequences" = 1 ] && echo one || echo all)" 1 "$sequences" "$seconds"; done
}

# Bytes of all matrices: 12 blocks of 12 width^2 and the token table of 50,257 rows, which the logits read; int8 and int4 have scales beside.
section_bandwidth() {
  local kind precision width
  for kind in "fp32 fp32 4" "bf16 fp32 2" "fp32 int8 1.0625" "fp32 int4 0.5625"; do
    read -r precision name width <<<"$kind"
    [ "$name" != fp32 ] || name=$precision
    taskset -c 0 "$bin/astra-bench" decode --model gpt2 --sequences 1 --length 32 --precision "$precision" --weights "$(echo "$kind" | cut -d' ' -f2)" --threads 1 \
      --repeats "$repeats" --json | tail -n 1 >"$work/decode.json"
    note bandwidth "$name" 1 "$(jq -r '.batches[0].tokens_per_second' "$work/decode.json")" 1
    note bandwidth "$name-read-GB" 1 "$(awk -v w="$width" -v t="$(jq -r '.batches[0].tokens_per_second' "$work/decode.json")" \
      'BEGIN {print t * w * (12 * 12 * 768 * 768 + 50257 * 768) / 1e9}')" 1
  done
  taskset -c 0 "$bin/astra-bench" peak --threads 1 | tee "$work/peak" >&2
  note bandwidth memory-read-GB 1 "$(sed -nE 's/^memory: *read ([0-9.]+) GB.*/\1/p' "$work/peak")" 1
}

# gpt2-mini's texts from blocks as wide and as many as GPT-2 small's (make_wide; the vocabulary is gpt2-mini's 4,096): random weights say nothing
# that can be guessed.
wide=$work/wide
make_wide_model() {
  [ ! -d "$wide" ] || return 0
  make --no-print-directory "$build/tests/infer/make_wide" >/dev/null
  "$build/tests/infer/make_wide" checkpoints/gpt2-mini "$wide"
  cp checkpoints/gpt2-mini/tokenizer.json "$wide"
}

# quoting MODEL NAME: texts that quote, with and without drafts: a passage, and its first third again to go on from.
quoting() {
  local model=$1 name=$2 turn way
  serve off taskset -c 0 -- --nodes 1 --speculate off
  serve lookup taskset -c 0 -- --nodes 1 --speculate lookup
  for ((turn = 0; turn <= turns; turn++)); do
    head -c $((10000 + turn * 2000)) datasets/enwiki-sample/train.txt | tail -c 750 | tr -cd ' -~\n' >"$work/passage"
    { cat "$work/passage" && printf '\n\n' && head -c 250 "$work/passage"; } >"$work/quote"
    jq -n --rawfile prompt "$work/quote" --argjson new "$((new < 96 ? new : 96))" '{model: "gpt2", temperature: 0, max_tokens: $new, prompt: $prompt}' >"$work/request-0"
    for way in off lookup; do
      read -r tokens seconds < <(ask "$way" 1)
      jq -r '.choices[0].text' "$work/answer-0" >"$work/text-$way"
      [ "$turn" = 0 ] || note lookup "$name-$way" "$turn" "$tokens" "$seconds"
    done
    cmp "$work/text-off" "$work/text-lookup"
  done
  note lookup "$name-drafts" 1 "$(metric lookup astra_drafts_total)" 1
  note lookup "$name-drafted" 1 "$(metric lookup astra_drafted_tokens_total)" 1
  stop_all
}

section_lookup() {
  quoting checkpoints/gpt2-mini mini
  make_wide_model
  quoting "$wide" wide
}

median() { sort -g | awk '{v[NR] = $1} END {print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2}'; }

# first_tokens TURN: the median over new passages, each by both ways; of the service until the end of a stream of one token, which curl can time
first_tokens() {
  local i prompts=()
  for ((i = 0; i < 10; i++)); do
    head -c $((20000 + ($1 * 10 + i) * 1500)) datasets/enwiki-sample/train.txt | tail -c 1000 | tr -cd ' -~' >"$work/passage-$i"
    jq -Rs '{model: "gpt2", temperature: 0, max_tokens: 1, stream: true, prompt: .}' "$work/passage-$i" >"$work/request-$i"
    prompts+=(--prompt "$(cat "$work/passage-$i")")
    [ "$i" = 0 ] || printf 'next\n'
    printf 'url = "http://localhost/v1/completions"\nheader = "Content-Type: application/json"\ndata = "@%s"\n' "$work/request-$i"
    printf 'output = "%s"\nwrite-out = "%%{time_total}\\n"\nunix-socket = "%s"\nfail\n' "$work/answer" "$work/text"
  done >"$work/requests"
  note overhead first-service "$1" 1 "$(curl -sS -K "$work/requests" | median)"
  note overhead first-runner "$1" 1 "$(taskset -c 0 "$bin/astra-infer" -c checkpoints/gpt2-mini --nodes 1 --threads 1 --temperature 0 --max-new-tokens 1 \
    --quiet --json "${prompts[@]}" | jq '.prompts[].first_token_ms / 1e3' | median)"
}

# images TURN: the same of the images that are bundled, on two processes
images() {
  local file files=(datasets/pictures/*.png)
  for file in "${files[@]}"; do
    [ "$file" = "${files[0]}" ] || printf 'next\n'
    printf 'url = "http://localhost/v1/images/classify"\nheader = "Content-Type: image/png"\ndata-binary = "@%s"\n' "$file"
    printf 'output = "%s"\nwrite-out = "%%{time_total}\\n"\nunix-socket = "%s"\nfail\n' "$work/answer" "$work/image"
  done >"$work/requests"
  note overhead image-service "$1" 1 "$(curl -sS -K "$work/requests" | median)"
  note overhead image-runner "$1" 1 "$("$bin/astra-infer" -c checkpoints/vit-cifar-g8 --nodes 2 --threads 1 --batch 1 --quiet --json "${files[@]}" |
    jq '.image_milliseconds[] / 1e3' | median)"
}

section_overhead() {
  local turn model=checkpoints/gpt2-mini
  serve text taskset -c 0 -- --nodes 1 --speculate off
  model=checkpoints/vit-cifar-g8
  serve image -- --nodes 2 --batch 1
  for ((turn = 0; turn <= turns; turn++)); do
    first_tokens "$turn"
    images "$turn"
  done
  stop_all
}

# The link is a token bucket and, for its latency, a proxy (make_callers delay).
section_drafts() {
  local turn name address rate=10mbit model=$wide
  make --no-print-directory "$build/tests/infer/make_callers" >/dev/null
  make_wide_model
  make_network
  "$bin/astra-infer" keygen "$work/drafts-key" 2>/dev/null
  serve off taskset -c 0 -- --nodes 1 --speculate off
  for name in draft auto; do
    ip netns exec "$b" taskset -c 1 "$bin/astra-infer" worker -c "$model" --listen 10.77.0.2:0 --key-file "$work/drafts-key" --threads 1 --weights "$weights" \
      --drafts 2>"$work/worker-$name.log" &
    processes+=($!)
    address=$(wait_for "$work/worker-$name.log" '.*listening on (.*)' "$!")
    ip netns exec "$a" "$build/tests/infer/make_callers" delay 10.77.0.1:0 "$address" 0.004 >"$work/way-$name" &
    processes+=($!)
    address=$(wait_for "$work/way-$name" '.*listening on (.*)' "$!")
    serve "$name" ip netns exec "$a" taskset -c 0 -- --peers "$address" --key-file "$work/drafts-key" --strategy single --drafts --speculate "$name"
  done
  for ((turn = 0; turn <= turns; turn++)); do
    head -c $((10000 + turn * 2000)) datasets/enwiki-sample/train.txt | tail -c 750 | tr -cd ' -~\n' >"$work/passage"
    jq -n --rawfile prompt "$work/passage" --argjson new "$new" '{model: "gpt2", temperature: 0, max_tokens: $new, prompt: $prompt}' >"$work/request-0"
    for name in off draft auto; do
      read -r tokens seconds < <(ask "$name" 1)
      jq -r '.choices[0].text' "$work/answer-0" >"$work/text-$name"
      [ "$turn" = 0 ] || note drafts "$name" "$turn" "$tokens" "$seconds"
      cmp "$work/text-off" "$work/text-$name"
    done
  done
  for name in draft auto; do
    note drafts "$name-checked" 1 "$(metric "$name" astra_drafts_total)" 1
    note drafts "$name-right" 1 "$(metric "$name" astra_drafted_tokens_total)" 1
  done
  stop_all
  remove_network
}

section_prefix() {
  local turn
  serve one taskset -c 0 -- --nodes 1
  for ((turn = 0; turn <= turns; turn++)); do
    for common in 0 300; do
      requests "$texts" 332 "$([ "$turn" = 0 ] && echo 2 || echo 8)" "$common"
      before=$(metric one astra_shared_tokens_total)
      read -r tokens seconds < <(ask one "$texts")
      [ "$turn" = 0 ] || note prefix "common-$common" "$turn" "$tokens" "$seconds"
      [ "$turn" = 0 ] || note prefix "shared-$common" "$turn" $(($(metric one astra_shared_tokens_total) - before)) 1
    done
  done
  stop_all
}

# A Llama of GPT-2 small's width and depth with random weights; both sides read the same file, on one thread and one core.
section_llamacpp() {
  local turn type count model name pieces=500 modules=${LLAMA_CPP:?a folder in which npm install node-llama-cpp ran}
  make --no-print-directory "$build/tests/infer/make_gguf" >/dev/null
  mkdir -p "$work/shape"
  echo '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12,
    "num_attention_heads": 12, "num_key_value_heads": 12, "vocab_size": 512, "max_position_embeddings": 1024, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": false, "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2}' >"$work/shape/config.json"
  "$bin/astra-train" --model "$work/shape" --init random --groups 0 --tokenizer tests/golden/stories260K --dataset text:datasets/enwiki-sample \
    --context 64 --batch 1 --max-steps 1 --eval-samples 1 --quiet --out "$work/llama"
  for type in F32 Q8_0; do
    model=$work/llama.$type.gguf
    "$build/tests/infer/make_gguf" "$work/llama" "$model" "$type"
    serve "$type" taskset -c 0 -- --nodes 1 --speculate off
    for ((turn = 0; turn <= turns; turn++)); do
      for count in 1 "$texts"; do
        name=$type-$([ "$count" = 1 ] && echo one || echo all)
        requests "$count" "$prompt" "$([ "$turn" = 0 ] && echo 8 || echo "$new")" 0
        read -r tokens seconds < <(ask "$type" "$count")
        [ "$turn" = 0 ] && continue
        note llamacpp "$name-service" "$turn" "$tokens" "$seconds"
        read -r tokens seconds < <(taskset -c 0 node tests/bench/peers/llamacpp.mjs "$modules" "$model" "$count" "$prompt" "$new" 1 "$turn")
        note llamacpp "$name-llamacpp" "$turn" "$tokens" "$seconds"
      done
    done
    stop_all
  done
}

# ---- the table

# ratio LABEL SECTION OLD NEW AIM: tokens/s of NEW over those of OLD within each turn
ratio() {
  awk -F, -v label="$1" -v section="$2" -v old="$3" -v new="$4" -v aim="$5" '
    function median(v, n,   i, j, t) {
      for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] < v[j - 1]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
      return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    }
    $1 == section && $2 == old { o[$3] = $4 / $5 }
    $1 == section && $2 == new { w[$3] = $4 / $5 }
    END {
      for (t in o) if (t in w) { n++; r[n] = w[t] / o[t]; a[n] = o[t]; b[n] = w[t] }
      if (n == 0) exit
      m = median(r, n)
      met = m >= aim + 0 ? "yes" : "no"
      printf("| %s | %.1f | %.1f | %.2f (%.2f-%.2f) | %s | %s |\n", label, median(a, n), median(b, n), m, r[1], r[n],
        (aim == "" ? "" : ">= " aim), (aim == "" ? "" : met))
    }' "$csv"
}

# excess LABEL NAME AIM: milliseconds of the service over those of the runner, medians of each turn
excess() {
  awk -F, -v label="$1" -v name="$2" -v aim="$3" '
    $1 == "overhead" && $2 == name "-service" && $3 > 0 { s[$3] = 1e3 * $5 }
    $1 == "overhead" && $2 == name "-runner" && $3 > 0 { r[$3] = 1e3 * $5 }
    END {
      for (t in s) if (t in r) { n++; d = s[t] - r[t]; sum += d; a += r[t]; b += s[t]; if (n == 1 || d < least) least = d; if (n == 1 || d > most) most = d }
      if (n == 0) exit
      printf("| %s | %.2f | %.2f | %.2f (%.2f to %.2f) | <= %s | %s |\n", label, a / n, b / n, sum / n, least, most, aim, (sum / n <= aim ? "yes" : "no"))
    }' "$csv"
}

value() { awk -F, -v section="$1" -v name="$2" '$1 == section && $2 == name {sum += $4; n++} END {print n ? sum / n : 0}' "$csv"; }

table() {
  echo "Weights $weights, prompts of $prompt, $new new tokens. Machines:"
  awk -F, '$2 ~ /^machine: / {name = $2; sub("machine: ", "", name); if (!(name in of)) order[++n] = name; of[name] = of[name] " " $1}
    END {for (i = 1; i <= n; i++) print order[i] ":" of[order[i]] (i < n ? ";" : ".")}' "$csv"
  echo
  echo "| figure | tokens/s, first | tokens/s, second | ratio: median (range) | aim | met |"
  echo "|---|---|---|---|---|---|"
  ratio "$texts texts at once: two devices at $rate against one" devices one two 1.8
  ratio "the same, --remote-cache full" devices one two-full 1.8
  ratio "service on one device, prompts of 32: $texts texts at once against one" batching service-one service-all 4
  for name in fp32 bf16 int8 int4; do
    ratio "step of $texts sequences against one, $prompt tokens before, $name" batching "step-$name-one" "step-$name-all" 4
  done
  ratio "gpt2-mini as wide as GPT-2 small, that quotes, greedy: --speculate lookup against off; $(value lookup wide-drafted) of $(value lookup wide-drafts) drafts were right" lookup wide-off wide-lookup 1.5
  ratio "gpt2-mini that quotes, greedy, the same; $(value lookup mini-drafted) of $(value lookup mini-drafts) drafts were right" lookup mini-off mini-lookup 1.5
  for name in draft auto; do
    ratio "gpt2-mini as wide as GPT-2 small, greedy, a device drafts over 10 Mbit/s and 2 ms: --speculate $name against off; $(value drafts "$name-right") of $(value drafts "$name-checked") drafts were right" \
      drafts off "$name" "$([ "$name" = auto ] || echo 1.3)"
  done
  ratio "$texts prompts of 332 tokens on one device: 300 of them common ($(value prefix shared-300) shared) against none" prefix common-0 common-300 ""
  for name in F32 Q8_0; do
    ratio "llama.cpp on the same $name file, one core, prompts of $prompt: one text" llamacpp "$name-one-llamacpp" "$name-one-service" 1
    ratio "the same, $texts texts at once" llamacpp "$name-all-llamacpp" "$name-all-service" 1
  done
  echo
  echo "| time | runner, ms | service, ms | difference, ms: mean (range) of medians of the turns | aim | met |"
  echo "|---|---|---|---|---|---|"
  excess "first token of a stream, gpt2-mini, one device, passages of 1,000 characters" first 5
  excess "an image, vit-cifar-g8, two devices of this machine" image 1
  grep -q '^bandwidth,' "$csv" || return 0
  echo
  echo "| weights | tokens/s of one text | GB/s of weights read | share of the memory's $(value bandwidth memory-read-GB) GB/s |"
  echo "|---|---|---|---|"
  for name in fp32 bf16 int8 int4; do
    awk -v name="$name" -v t="$(value bandwidth "$name")" -v g="$(value bandwidth "$name-read-GB")" -v m="$(value bandwidth memory-read-GB)" \
      'BEGIN {printf "| %s | %.1f | %.1f | %.0f%% |\n", name, t, g, 100 * g / m}'
  done
}

sections=("$@")
[ $# -gt 0 ] || sections=(devices batching bandwidth lookup drafts prefix overhead)
for section in "${sections[@]}"; do
  [ "$(type -t "section_$section")" = function ] || { echo "results-serve: no section $section: devices, batching, bandwidth, lookup, drafts, prefix, overhead, llamacpp" >&2; exit 2; }
done
make_model
[ -f "$csv" ] || echo "section,case,turn,tokens,seconds" >"$csv"
for section in "${sections[@]}"; do
  grep -v "^$section," "$csv" >"$work/csv" || true
  cp "$work/csv" "$csv"
  note "$section" "machine: $(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1); $(nproc) cores; $(date +%F)" 0 0 0
  "section_$section"
done
table >"$work/table"
awk -v table="$work/table" '
  /^<!-- end: results-serve -->/ { on = 0 }
  !on { print }
  /^<!-- begin: results-serve -->/ { on = 1; while ((getline line <table) > 0) print line }' "$document" >"$work/document"
cp "$work/document" "$document"
echo "results-serve: the table is in $document"
