#!/bin/bash
# limit: 240
# astra-serve and clients as they are: the openai package of npm (serve_openai.mjs, where OPENAI_NODE_MODULES names the node_modules that has it), what lm-eval's
# local-completions asks for, and far more clients than there are places: they are refused with Retry-After, and those that are taken wait no longer
# than the queue is long.
. tests/network/helpers.sh
command -v jq >/dev/null && command -v curl >/dev/null || { echo "skipped: jq and curl are needed"; exit 77; }
trap '[ -z "$server" ] || kill $server 2>/dev/null; wait; rm -rf "$work"' EXIT
start_service -c tests/golden/stories260K --nodes 1 --listen 127.0.0.1:0 --sequences 4 --queue 8 --max-connections-per-address 0
ask() { curl -sS -m 60 "$base$1" -H 'Content-Type: application/json' -d "$2" >"$work/out" 2>"$work/err"; } # PATH JSON

# ---- as lm-eval does it: prompts are lists of ids, several at a time, echoed with log-probabilities and one token more
name="lm-eval"
ask /tokenize '{"prompt": "Once upon a time, there was a little girl"}'
ids=$(field .tokens) count=$(field .count)
ask /v1/completions "{\"model\": \"stories260K\", \"prompt\": [$ids, ${ids/%,*/]}], \"max_tokens\": 1, \"temperature\": 0, \"logprobs\": 1, \"echo\": true, \"seed\": 1234}"
json_holds '.choices | length == 2'
json_holds ".choices[0].logprobs | (.token_logprobs | length) == $count + 1 and .token_logprobs[0] == null and (.token_logprobs[1:] | all(. <= 0)) and
  (.tokens | length) == $count + 1 and (.top_logprobs | length) == $count + 1"
json_holds '[.choices[0].logprobs | range(1; .token_logprobs | length) as $i | .token_logprobs[$i] <= ([.top_logprobs[$i][]] | max) + 1e-4] | all'
echoed=$(field '.choices[0].logprobs.token_logprobs[:-1]')
ask /v1/completions "{\"prompt\": $ids, \"max_tokens\": 0, \"temperature\": 0, \"logprobs\": 1, \"echo\": true}"
json_holds ".choices[0].logprobs.token_logprobs as \$l | (\$l | length) == $count and ([range(1; $count) as \$i | (\$l[\$i] - ($echoed)[\$i]) | fabs < 1e-3] | all)"
ask /v1/completions "{\"prompt\": $ids, \"max_tokens\": 1, \"temperature\": 0, \"logprobs\": 1, \"echo\": true, \"logit_bias\": {\"2\": 100}}" # an end token
json_holds ".choices[0] | .finish_reason == \"stop\" and (.logprobs.token_logprobs | length) == $count + 1 and .logprobs.token_logprobs[-1] < 0 and
  (.logprobs.top_logprobs | length) == $count + 1"
json_holds ".choices[0].logprobs.token_logprobs as \$l | [range(1; $count) as \$i | (\$l[\$i] - ($echoed)[\$i]) | fabs < 1e-3] | all"

# ---- beyond capacity: twelve have a place or wait for one; a hundred keep asking
clients=$build/tests/serve/make_clients
jq -n --arg url "$base/v1/completions" '[{kind: "text", url: $url, status: 200, body: {prompt: "Once upon a time", max_tokens: 60, temperature: 0}}]' >"$work/cases"
"$clients" "$work/cases" 200 12 1 calm >"$work/full" 2>"$work/err" || report "as many as there are places: $(tail -1 "$work/full")"
right=0
for ((i = 0; i < 20 && right <= 100; i++)); do # a machine that is busy otherwise answers few of 3,000
  "$clients" "$work/cases" 3000 100 $((2 + i)) calm 20 >"$work/over" 2>"$work/err" || report "far more: $(tail -1 "$work/over")"
  tail -1 "$work/over" | jq -e '.refused > 100 and .without_retry_after == 0' >/dev/null || report "nobody was refused, or without Retry-After"
  right=$((right + $(tail -1 "$work/over" | jq .right)))
done
echo "12 clients: $(tail -1 "$work/full")"
echo "100 clients: $(tail -1 "$work/over")"
[ $right -gt 100 ] || report "only $right were taken"
# Of those that are taken nobody waits for more than the queue; a refusal costs the others some time.
jq -es '.[1].p99_ms < 6 * .[0].p99_ms + 500' <(tail -1 "$work/full") <(tail -1 "$work/over") >/dev/null || report "who is taken waits without bound"
ask /v1/completions '{"prompt": "Once", "max_tokens": 2}'
json_holds '.choices[0].text | length > 0'

# ---- the openai package
if command -v node >/dev/null && [ -e "${OPENAI_NODE_MODULES:-nowhere}/openai/package.json" ]; then
  node tests/network/serve_openai.mjs "$OPENAI_NODE_MODULES" "$base/v1" >"$work/out" 2>"$work/err" || report "the openai package"
  cat "$work/out"
else
  echo "skipped: the openai package: OPENAI_NODE_MODULES names no node_modules with openai in it (npm install openai), or there is no node"
fi
exit $failed
