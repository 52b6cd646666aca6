#!/bin/bash
# astra-infer with prompts from outside: a trained model's known story, the same ids whatever asks for them, options, messages, exit codes.
. tests/network/helpers.sh
trainer=$(realpath "$build/bin/astra-train")
stories=$PWD/tests/golden/stories260K
for kind in gpt2 llama; do
  make_checkpoint "$work/$kind" tiny-$kind 4 50 4
  cp "$stories/tok512.bin" "$work/$kind/"
done
make_checkpoint "$work/plain" tiny-gpt2 0
make_checkpoint "$work/pictures" tiny 4 50 4

# ---- the story that the model is known to tell
expect "story" 0 --checkpoint "$stories" --prompt "" --max-new-tokens 200 --quiet
[ "$(cat "$work/out")" = "$(cat "$stories/golden_stdout.txt")" ] || report "$name: another text"
expect "story after its first sentence" 0 -c "$stories" -p "Once upon a time, there was a little girl named Lily." -m 160 -q --echo
head -c 300 "$stories/golden_stdout.txt" >"$work/beginning"
cmp -s <(head -c 300 "$work/out") "$work/beginning" || report "$name: another text"
expect "ids of the story" 0 generate -c "$stories" -p "" -m 200 --json
[ "$(field '.prompts[0].ids')" = "$(jq -c '.[1:]' "$stories/golden_ids.json")" ] || report "$name: not the golden ids"
[ "$(field '.prompts[0].text')" = "$(jq -Rs 'rtrimstr("\n")' "$stories/golden_stdout.txt")" ] || report "$name: another text"

# ---- four nodes
long="Once upon a time there was a dog"
for kind in gpt2 llama; do
  expect "$kind on four nodes" 0 -c $kind -n 4 -p "$long" -m 12
  err "tokens on 4 of 4 nodes, first new one after"; err "^12 new tokens on node 3, .* tokens/s; ended by: length$"
  err "keys and values in full"; err "codes of the other nodes' tokens"; err "a cache in full would take"; err "^node  tokens  *compute ms"
  mv "$work/out" "$work/text"
  expect "$kind on four nodes, quiet" 0 -c $kind -n 4 -p "$long" -m 12 -q; silent err
  cmp -s "$work/out" "$work/text" || report "$name: stdout holds more than the text without it"
done
expect "json" 0 -c llama -n 4 -p "$long" -m 12 --json
# T tokens; 3 blocks, 2 sites, 4 * 6 bits; nodes send to those behind them
json_holds '.prompts[0] | (.ids | length) == 12 and .nodes_used == 4 and .decoder == 3 and .end == "length"'
json_holds '.prompts[0] | .tokens_per_second > 0 and .first_token_ms > 0'
json_holds '.nodes as $n | [$n[].bytes_sent] == [range(4) | 3 * 2 * (3 - .) * (16 + 3 * $n[.].tokens)]'
json_holds '.nodes as $n | .prompts[0] | ([$n[].tokens] | add) == .prompt_tokens and .bytes_sent == ([$n[].bytes_sent] | add)'
json_holds '.nodes[3].tokens as $own | .prompts[0] | .memory.cache_rows == 2 * 4 * 3 * 16 * ($own + 11)
  and .memory.cache_codes == 2 * 3 * 3 * (.prompt_tokens - $own) and .memory.cache_full == 2 * 4 * 3 * 16 * (.prompt_tokens + 11)'
ids=$(field '.prompts[0].ids')
for type in float16 bfloat16; do
  expect "a cache of $type" 0 -c llama -n 4 -p "$long" -m 12 --json --cache-type $type
  json_holds '.nodes[3].tokens as $own | .prompts[0] | .memory.cache_rows == 2 * 2 * 3 * 16 * ($own + 11)
    and .memory.cache_codes == 2 * 3 * 3 * (.prompt_tokens - $own) and .memory.cache_full == 2 * 2 * 3 * 16 * (.prompt_tokens + 11)'
done
expect "a cache in full" 0 -c llama -n 4 -p "$long" -m 12 --json --remote-cache full
json_holds '.prompts[0] | .memory.cache_rows == .memory.cache_full and .memory.cache_codes == 0'
[ "$(field '.prompts[0].ids')" = "$ids" ] || report "$name: other ids than with codes"
for cache in codes full; do
  expect "lost tokens, a cache of $cache" 0 -c llama -n 4 -p "$long" -m 12 --json --remote-cache $cache --transport udp --loss 30% --loss-unit token
  [ "$cache" = codes ] && lossy=$(field '.prompts[0].ids')
  json_holds '[.nodes[].masked] | add > 0'
done
[ "$(field '.prompts[0].ids')" = "$lossy" ] || report "$name: other ids than with codes"
expect "a cache of what is not known" 2 -c llama -p "$long" --cache-type int8; err "auto, float32, float16 or bfloat16\|auto|float32|float16|bfloat16"
expect "the same with floats" 0 -c llama -n 4 -p "$long" -m 12 --json
expect "layout of a text" 2 -c llama -n 4 -p "$long" --layout raster; err "--layout is for a model that classifies images; llama is a language model"
expect "as trained, without --nodes" 0 -c llama -p "$long" -m 12 --json
[ "$(field '.prompts[0].ids')" = "$ids" ] || report "$name: other ids"
expect "two prompts" 0 -c llama -n 4 -p "A" -p "$long" -m 12 --json
[ "$(field '.prompts[1].ids')" = "$ids" ] || report "$name: the first prompt changed the second"
printf '\357\273\277%s' "$long" >"$work/prompt.txt" # a mark of UTF-8 is none of the prompt
expect "prompt from a file" 0 -c llama -n 4 --prompt-file prompt.txt -m 12 --json
[ "$(field '.prompts[0].ids')" = "$ids" ] || report "$name: other ids"
input=$work/prompt.txt expect "prompt from standard input" 0 -c llama -n 4 --prompt-file - -m 12 --json
[ "$(field '.prompts[0].ids')" = "$ids" ] || report "$name: other ids"
expect "drawn" 0 -c llama -n 4 -p "$long" -m 12 --temperature 1 --json
drawn=$(field '.prompts[0].ids')
[ "$drawn" != "$ids" ] || report "$name: the same as without drawing"
expect "drawn again" 0 -c llama -n 4 -p "$long" -m 12 --temperature 1 --json
[ "$(field '.prompts[0].ids')" = "$drawn" ] || report "$name: the same seed, other ids"
expect "drawn with another seed" 0 -c llama -n 4 -p "$long" -m 12 --temperature 1 --seed 43 --json
[ "$(field '.prompts[0].ids')" != "$drawn" ] || report "$name: another seed, the same ids"
expect "drawn with that seed" 0 -c llama -n 4 -p "$long" -m 12 --temperature 1 --seed 42 --json
[ "$(field '.prompts[0].ids')" = "$drawn" ] || report "$name: 42 is not the default"
expect "drawn twice at once" 0 -c llama -n 4 -p "$long" -p "$long" -m 12 --temperature 1 --json
[ "$(field '.prompts[0].ids')" = "$drawn" ] || report "$name: a second prompt changed the first"
[ "$(field '.prompts[1].ids')" != "$drawn" ] || report "$name: the same text twice"
for only in "--top-k 1" "--top-p 0.00001"; do
  # shellcheck disable=SC2086
  expect "drawn with $only" 0 -c llama -n 4 -p "$long" -m 12 --temperature 1 $only --json
  [ "$(field '.prompts[0].ids')" = "$ids" ] || report "$name: not the likeliest"
done
expect "drawn with --min-p 0.999" 0 -c llama -n 4 -p "$long" -m 12 --temperature 1 --min-p 0.999 --json
[ "$(field '.prompts[0].ids')" = "$ids" ] || report "$name: not the likeliest"
expect "a token that is certain" 0 -c llama -n 4 -p "$long" -m 3 --logit-bias 17=100 --json
json_holds '.prompts[0].ids == [17, 17, 17]'
expect "a token that is certain once" 0 -c llama -n 4 -p "$long" -m 3 --logit-bias 17=1.5 --presence-penalty 2 --json
json_holds '.prompts[0].ids | .[0] == 17 and .[1] != 17'
expect "a penalty that is less than a bias" 0 -c llama -n 4 -p "$long" -m 4 --logit-bias 17=2.5 --presence-penalty 1 --json
json_holds '.prompts[0].ids == [17, 17, 17, 17]'
expect "a penalty for each time" 0 -c llama -n 4 -p "$long" -m 4 --logit-bias 17=2.5 --frequency-penalty 1 --json
json_holds '.prompts[0].ids | .[:3] == [17, 17, 17] and .[3] != 17'
expect "a penalty for repetition" 0 -c llama -n 4 -p "$long" -m 12 --repetition-penalty 1.5 --json
json_holds ".prompts[0].ids | ${ids}[0] == ${ids}[1] and .[0] == ${ids}[0] and .[1] != ${ids}[1]"
expect "penalties of nothing" 0 -c llama -n 4 -p "$long" -m 12 --repetition-penalty 1 --frequency-penalty 0 --presence-penalty 0 --json
[ "$(field '.prompts[0].ids')" = "$ids" ] || report "$name: other ids"
expect "full context" 0 -c llama -n 4 -p "$long" -m 500 --json
json_holds '.prompts[0] | .end == "context" and (.ids | length) + .prompt_tokens == 49'
expect "stop string" 0 -c "$stories" -p "" -m 200 -q --stop " park." --stop "Lily's"
[ "$(cat "$work/out")" = "Once upon a time, there was a little girl named Lily. She loved to play outside in the" ] || report "$name: another text"
expect "stop string with an escape" 0 -c "$stories" -p "" -m 200 -q --stop '\n' --stop 'no \\ such \t text'
[ "$(cat "$work/out")" = "$(head -1 "$stories/golden_stdout.txt")" ] || report "$name: another text"
expect "fewer tokens than nodes" 0 -c llama -n 4 -p "" -m 3; err "^1 token on 1 of 4 nodes"; err "the prompt has 1 token, so only 1 of 4 nodes took part"
expect "split" 0 -c llama --split 3,1 -p "$long" -m 3; err "tokens on 2 of 2 nodes"
expect "nothing new" 0 -c llama -p "$long" -m 0; err "^0 new tokens"

# ---- a failure in the middle of a text: this model overflows at position 12
cp -r "$work/gpt2" "$work/headless"; sed -i 's/"tie_word_embeddings": true/"tie_word_embeddings": false/' "$work/headless/config.json"
expect "no head, and no tied one" 1 -c headless -p "$long"; err "headless/model.safetensors: there is no tensor lm_head.weight of shape"; err "set tie_word_embeddings to true in the config.json"
(cd "$work" && "$trainer" --model headless --dataset "text:$stories/golden_stdout.txt" --max-steps 1 --out never) >"$work/out" 2>"$work/err" && report "it trains without a head"
err "headless/model.safetensors: there is no tensor lm_head.weight of shape"; err "set tie_word_embeddings to true in the config.json"
cp -r "$work/gpt2" "$work/broken"
overflow_at "$work/broken/model.safetensors" $((12 * 32)) 2
expect "failure in the middle of a text" 1 -c broken -n 1 -p "A dog" -m 20; err "^astra-infer: error: .*numbers that are not finite"
[ "$(wc -c <"$work/out")" -gt 1 ] || report "$name: no text came before"
[ "$(tail -c 1 "$work/out" | od -An -tx1 | tr -d ' ')" = 0a ] || report "$name: its last line has no end"

# ---- text is shown as it comes: that of the first prompt is there while the second one has not been given
name="streaming"
mkfifo "$work/pipe"
"$program" -c "$stories" -p "Once upon a time" --prompt-file - -m 10 -q <"$work/pipe" >"$work/out" 2>"$work/err" &
exec 3>"$work/pipe"
for ((i = 0; i < 200; i++)); do ! grep -q girl "$work/out" || break; sleep 0.1; done
out "^, there was a little girl"
[ "$(wc -l <"$work/out")" -le 1 ] || report "$name: the second text is there before its prompt"
echo "One day" >&3
exec 3>&-
wait $! || report "$name: exit code"
[ "$(wc -l <"$work/out")" -ge 2 ] || report "$name: no second text"

name="interrupted while it waits for standard input"
"$program" -c "$stories" -v --prompt-file - <"$work/pipe" >"$work/out" 2>"$work/err" &
leader=$!
exec 3>"$work/pipe"
wait_for_nodes 1
sleep 0.2
kill -INT $leader
wait $leader
[ $? -eq 1 ] || report "$name: exit code"
exec 3>&-
err "error: interrupted$"

# ---- perplexity
export XDG_CACHE_HOME=$work/cache
expect "perplexity of the story" 0 eval -c "$stories" -d "text:$stories/golden_stdout.txt" -n 1
out "^1 window of 512 tokens"; out "200 predicted tokens"; out "next token right 100.00%"; out "^whole text, 1 file"
mkdir "$work/texts"
for i in 1 2 3 4 5 6 7 8; do cat "$stories/golden_stdout.txt"; echo; done >"$work/texts/a.txt"
expect "perplexity on four nodes" 0 eval -c llama -d text:texts/a.txt -n 4 --context 32
out "windows of 32 tokens, each 32 further, on 4 nodes"; out " bits per byte of the 37[0-9]* bytes"; out "; 3 bytes per token, block, codebook set and receiver"
out "^   0       8 "; out "^   3       8 "
perplexity=$(sed -n 's/^perplexity \([0-9.]*\) =.*/\1/p' "$work/out")
expect "the same one window at a time" 0 eval -c llama -d text:texts/a.txt -n 4 --context 32 --batch 1 -q; out "^perplexity $perplexity "; silent err
# Training's emulation of four devices and four processes see the same text, window for window; and so do a plain model and one process.
value() { tail -1 "$work/out" | sed "s/.*\"$1\":\([0-9.]*\).*/\1/"; }
agree() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > 100 && b > 100 && (a - b) ^ 2 < (1e-5 * a) ^ 2) }' || report "$name: $1 against $2"; }
for kind in gpt2 llama; do
  name="training's evaluation of $kind"
  (cd "$work" && "$trainer" --eval-only --model $kind --dataset text:texts/a.txt --eval-part whole --json -q) >"$work/out" 2>"$work/err" || report "$name"
  emulated=$(value perplexity) plain=$(value perplexity_plain)
  expect "$kind on four processes as on emulated devices" 0 eval -c $kind -d text:texts/a.txt -n 4 --json -q; agree "$(value perplexity)" "$emulated"
  expect "$kind on one process as plain" 0 eval -c $kind -d text:texts/a.txt -n 1 --json -q; agree "$(value perplexity)" "$plain"
done
expect "overlapping windows" 0 eval -c llama -d text:texts/a.txt -n 4 --context 32 --stride 8 -q; out "each 8 further"
mkdir -p "$work/stored/datasets" && cp "$work/texts/a.txt" "$work/stored/datasets/stored.txt"
expect "a file among stored data sets" 0 eval -c llama -d text:stored.txt --data-dir "$work/stored/datasets" -n 4 --context 32 -q; out "^whole text"; out "^perplexity $perplexity "
expect "last lines of a folder" 0 eval -c llama -d text:texts --context 32 -q; out "^valid text"
expect "a chosen part" 0 eval -c llama -d text:texts/a.txt --context 32 --eval-part valid -q; out "^valid text"
expect "some windows" 0 eval -c llama -d text:texts/a.txt -n 4 --context 32 --samples 5 --json
tail -1 "$work/out" | grep -q '"windows":5,"context":32,"stride":32,"tokens":160,.*"bytes_per_token_block_receiver":3.0' || report "$name: content"
expect "no such text" 1 eval -c llama -d text:nowhere; err "nowhere"
expect "window beyond the model" 2 eval -c llama -d text:texts/a.txt --context 64; err "--context 64: the model takes at most 48 tokens"
expect "stride beyond the window" 2 eval -c llama -d text:texts/a.txt --stride 64; err "--stride 64"
expect "text for a model of images" 2 eval -c pictures -d text:texts/a.txt; err "classifies images"
expect "images for a language model" 2 eval -c llama -d synthetic:16x16:7; err "give astra-infer --prompt TEXT, or astra-infer eval --dataset text:PATH"
expect "labelled texts" 2 eval -c llama -d sst2:nowhere; err "is a language model: give astra-infer"

# ---- a byte-level tokenizer, which has an end of text and no begin
mkdir "$work/bpe" && cp "$work/gpt2/"*.safetensors "$work/gpt2/config.json" "$work/bpe/"
{ head -c 20000 docs/FORMATS.md; printf 'na\xc3\xafve caf\xc3\xa9s \xe2\x82\xac \xff\n'; } >"$work/utf8.txt"
"$build/bin/astra-data" tokenizer --vocab 512 --out "$work/tokenizer" "$work/utf8.txt" >"$work/out" 2>"$work/err" || report "no tokenizer"
cp "$work/tokenizer/"* "$work/bpe/"
expect "bytes of any text" 0 eval -c bpe -d text:utf8.txt -n 3 --context 16 --json
left=$(($(wc -c <"$work/utf8.txt") - $(field .bytes))) # what the first token stands for, which nothing predicts
[ $left -ge 1 ] && [ $left -le 8 ] || report "$name: $left bytes are missing"
expect "text of a special token" 0 -c bpe -n 2 -p '<|endoftext|>' -m 2 --json
json_holds '.prompts[0].prompt_tokens > 1'
expect "special token" 0 -c bpe -n 2 -p 'a<|endoftext|>b' --special -m 2 --json
json_holds '.prompts[0].prompt_tokens == 3'
expect "empty prompt" 0 -c bpe -n 2 -p '' -m 2 --json
json_holds '.prompts[0].prompt_tokens == 1'
: >"$work/texts/empty.txt"
expect "empty text" 1 eval -c llama -d text:texts/empty.txt; err "empty.txt"
expect "text without a tokenizer" 1 eval -c plain -d text:texts/a.txt; err "tokenizer"

# ---- help, and what is wrong
expect "help of generate" 0 generate --help; out "^usage: astra-infer"; out "--max-new-tokens"; out "--special  "; out "--top-p"; silent err
[ "$(wc -l <"$work/out")" -le 46 ] || report "help of generate is too long"
expect "help of all" 0 --help; out "--max-new-tokens"; out "--top-p"; out "--batch"; out "^Text generation:$"; silent err
[ "$(wc -l <"$work/out")" -le 61 ] || report "--help is too long"
expect "unknown option of a command" 2 eval -c llama -d text:x --strid 4; err "^Try 'astra-infer eval --help'"
expect "unknown option" 2 -c llama -p A --max-new-token 4; err "did you mean --max-new-tokens"; err "^Try 'astra-infer --help'"
for value in -h -V; do expect "$value as a prompt" 0 -c llama -n 1 -p "$value" --echo -m 1 -q; out "^$value"; done
expect "help behind a prompt" 0 -c llama -p A --help; out "^usage: astra-infer"
for option in "--top-k 3" "--top-p 0.5" "--min-p 0.1" "--seed 3"; do
  # shellcheck disable=SC2086
  expect "$option without drawing" 2 -c llama -p A $option; err "${option%% *}: .*--temperature"; silent out
done
# Keys and values of 4 groups of 50 codewords of 3 blocks, 2 x 32 numbers each, at site x alone.
expect "memory of tables" 0 -c gpt2 -n 3 -p "a b c d e f" -m 3 --json; out '"tables_shared":153600,'
expect "memory without tables" 0 -c gpt2 -n 3 -p "a b c d e f" -m 3 --json --table-memory 0; out '"tables_shared":0,'
expect "memory of tables at site kv" 0 -c llama -n 3 -p "a b c d e f" -m 3; err "^  tables of keys and values (shared)  *0 bytes$"
expect "options of images" 2 -c llama -p A --top 2; err "--top is for a model that classifies images or"; silent out
expect "options of images" 2 -c llama -p A --batch 3; err "--batch is for a model that classifies images or"
printf '%s' iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mP4z8CAFTEMLQkAKP8/wc53yE8AAAAASUVORK5CYII= | base64 -d >"$work/red.png"
expect "a prompt in parts" 2 -c llama -n 2 -p A --parts 2; err "--parts 2: the blocks of a prompt are not computed in parts"; silent out
expect "another cache of images" 2 -c pictures -n 1 --remote-cache full red.png; err "--remote-cache is for a language model; pictures is"; silent out
expect "options of texts" 2 -c pictures --temperature 2 red.png; err "--temperature is for a language model"; silent out
expect "options of texts" 2 eval -c pictures -d synthetic:16x16:7 --stride 4; err "--stride is for a language model"
expect "escape in a stop string" 2 -c llama -p A --stop '\q'; err "--stop: '.q' is not accepted"
expect "no prompt" 2 generate -c llama; err "--prompt TEXT is missing"; silent out
expect "image and prompt" 2 -c llama -p A x.png; err "not several"
expect "empty stop string" 2 -c llama -p A --stop ""; err "--stop"
expect "temperature" 2 -c llama -p A --temperature -1; err "--temperature"
expect "a high temperature" 2 -c llama -p A --temperature 100.1; err "--temperature: .*from 0 to 100"
expect "top k" 2 -c llama -p A --temperature 1 --top-k 2147483648; err "--top-k: .*from 0 to 2147483647"
expect "top p" 2 -c llama -p A --top-p 0; err "--top-p"
for bias in 3 3= =1 x=1 3=1x 3=nan 3=101 -1=1 99999999=1; do
  expect "logit bias $bias" 2 -c llama -p A --logit-bias="$bias"; err "--logit-bias: .*give ID=BIAS"; silent out
done
expect "prompt for a model of images" 2 -c pictures -p A; err "classifies images"; silent out
expect "images for a language model" 2 -c llama x.png; err "is a language model"; silent out
expect "plain on four" 2 -c "$stories" -n 4 -p A; err "--nodes 4: .*--nodes 1"; silent out
expect "no tokenizer" 1 -c plain -p A; err "a language model needs its tokenizer beside it"; err "plain"; silent out
expect "prompt longer than the context" 1 -c llama -p "$(printf 'word %.0s' {1..100})"; err "the prompt has [0-9]* tokens, but the context has room for 48"; silent out
expect "prompt longer than --max-context" 1 -c llama --max-context 8 -p "$long"; err "room for 8"
expect "second prompt too long" 1 -c llama --max-context 8 -v -p "A" -p "$long"; err "prompt 2 has [0-9]* tokens"; silent out
! grep -q "is pid" "$work/err" || report "$name: the nodes were started first"
expect "file too long" 1 -c llama --max-context 8 -p "A" --prompt-file utf8.txt; err "utf8.txt has [0-9]* tokens"; silent out
expect "--max-context beyond the model" 2 -c llama --max-context 100 -p A; err "--max-context 100: the model takes at most 48 tokens"
expect "missing prompt file" 1 -c llama --prompt-file nowhere.txt; err "nowhere.txt"
printf 'a\0b' >"$work/nul.txt"
expect "NUL byte in a prompt" 1 -c llama --prompt-file nul.txt; err "nul.txt: a NUL byte at offset 1"
mkdir -p "$work/other" && cp "$work/plain/"* "$work/other/" && cp checkpoints/gpt2-mini/{tokenizer.json,vocab.json,merges.txt} "$work/other/"
expect "tokenizer of another model" 1 -c other -p A -n 1; err "other: the tokenizer has [0-9]* tokens, the model a vocabulary of 512: they do not belong together"; silent out
printf '\377\376 bytes that are no text' >"$work/bytes.txt"
expect "invalid UTF-8" 0 -c llama -n 4 --prompt-file bytes.txt -m 5 --json

# Tokens that come to the leader together, because it was stopped while they were made, were not made in no time.
name="the rate of a leader that is stopped"
idle() { # PID: waits until a process uses the processor no more
  local fields last=-1 now=0
  while [ "$now" != "$last" ]; do
    last=$now
    sleep 1
    read -ra fields <"/proc/$1/stat" || { report "$name: process $1 is gone"; return; }
    now=${fields[13]}
  done
}
"$program" -c checkpoints/gpt2-mini --nodes 1 --threads 1 --verbose --prompt-file - -m 20 --json <"$work/pipe" >"$work/out" 2>"$work/err" &
leader=$!
exec 3>"$work/pipe"
wait_for_nodes 1
idle "${pids[0]}" # it is ready
kill -STOP "${pids[0]}"
echo "once upon a time there was a cat" >&3
exec 3>&-
idle $leader # the prompt is under way to the device
kill -STOP $leader
kill -CONT "${pids[0]}"
idle "${pids[0]}"
kill -CONT $leader
wait $leader || report "$name: exit code $?"
json_holds '.prompts[0] | (.ids | length) > 3 and .decode_ms > 0.1 and (.tokens_per_second * .decode_ms / (1000 * ((.ids | length) - 1)) - 1 | fabs) < 0.01'
json_holds '.prompts[0].tokens_per_second < 20000'
exit $failed
