#!/bin/bash
# mostly waits
# limit: 300
# Texts on four nodes of which one is killed or stopped, or whose leader is interrupted: in the middle of a perplexity, and between the start
# and a prompt. The error names the node, exit code 1, soon, and no process stays behind. Where a failure may be survived, the perplexity is
# that of all tokens again, or says how much of it is missing.
. tests/network/helpers.sh
export XDG_CACHE_HOME=$work/cache
stories=tests/golden/stories260K
make_checkpoint "$work/model" tiny-gpt2 4 50 4
cp "$stories/tok512.bin" "$work/model/"
cat "$stories/golden_stdout.txt" >"$work/text.txt"
for ((i = 0; i < 12; i++)); do cat "$work/text.txt" "$work/text.txt" >"$work/twice" && mv "$work/twice" "$work/text.txt"; done # 1.9 MB
"$program" eval -c "$work/model" -d "text:$work/text.txt" -n 1 --samples 1 -q >"$work/out" 2>"$work/err" || report "tokens are not cached"

evaluate() { # ARGUMENTS...: a perplexity is under way
  rm -f "$work/out" "$work/err"
  "$program" eval --checkpoint "$work/model" --dataset "text:$work/text.txt" --nodes 4 --verbose "$@" >"$work/out" 2>"$work/err" &
  leader=$!
  wait_for_nodes 4
}

generate() { # ARGUMENTS...: four nodes wait for a prompt, which standard input still owes
  rm -f "$work/out" "$work/err" "$work/pipe"
  mkfifo "$work/pipe"
  "$program" --checkpoint "$work/model" --prompt-file - --nodes 4 --verbose "$@" <"$work/pipe" >"$work/out" 2>"$work/err" &
  leader=$!
  exec 3>"$work/pipe"
  wait_for_nodes 4
}
give_prompt() { # the leader alone reads the pipe, or the end would never come
  echo "Once upon a time there was a dog" >&3
  exec 3>&-
}

ends_with_error() { # WHAT SECONDS PATTERN
  local begin=$SECONDS code
  wait "$leader"
  code=$?
  [ $code -eq 1 ] || report "$1: exit code $code, expected 1"
  [ $((SECONDS - begin)) -le $(($2 * ${TIME_SCALE:-1})) ] || report "$1: took $((SECONDS - begin)) s"
  grep -q "$3" "$work/err" || report "$1: the error does not say '$3'"
  no_orphans
}

for node in 0 2 3; do
  evaluate
  kill -KILL "${pids[$node]}"
  ends_with_error "node $node killed" 10 "node $node (pid ${pids[$node]}) died: signal 9"
done
for node in 0 3; do
  evaluate --timeout 2
  kill -STOP "${pids[$node]}"
  ends_with_error "node $node stopped" 12 "node $node.* did not answer within 2 s"
done

evaluate
kill -KILL "$leader"
wait "$leader" 2>/dev/null
no_orphans # nobody told them: they notice by themselves

evaluate
kill -INT "$leader"
ends_with_error "interrupted" 10 interrupted

# Those that remain go on: with all tokens (the last node cannot be masked, its tokens are the answer), or without the labels of the lost one.
field() { tail -1 "$work/out" | grep -oE "\"$1\":[0-9]+" | head -1 | sed 's/.*://'; } # NAME: of the JSON answer
evaluate --samples 6000 --json
wait "$leader" || report "undisturbed: exit code"
whole=$(field tokens)
for case in "rerun 1" "rerun 3" "mask 1" "mask 1" "mask 1 suspended" "mask 3"; do
  read -r policy node suspended <<<"$case"
  evaluate --samples 6000 --json --on-failure "$policy"
  computes "${pids[$node]}" 10
  if [ -n "$suspended" ]; then # until the others wait for it: node 1 may have answered all that it was asked, long before they have
    kill -STOP "${pids[$node]}"
    sleep 1
  fi
  kill -KILL "${pids[$node]}"
  wait "$leader" || report "$case: exit code"
  grep -q "node $node (pid ${pids[$node]}).*continuing without it" "$work/err" || report "$case: the device that was lost is not named"
  if [ "$(field incomplete_answers)" = 0 ]; then
    [ -z "$suspended" ] || report "$case: nothing was masked"
    [ "$(field tokens)" = "$whole" ] || report "$case: $(field tokens) tokens of $whole, and no answer is incomplete"
  else
    [ "$policy $node" = "mask 1" ] || report "$case: an incomplete answer"
    [ "$(field tokens)" -lt "$whole" ] || report "$case: an answer is incomplete, and all tokens count"
    tail -1 "$work/out" | jq -e '.bits_per_byte == null and .perplexity > 1' >"$work/checked" || report "$case: a part of the loss, divided by all bytes"
  fi
  no_orphans
done

for node in 1 3; do
  generate
  kill -KILL "${pids[$node]}"
  give_prompt
  ends_with_error "node $node killed before the prompt" 10 "node $node (pid ${pids[$node]}) died: signal 9"
done
generate --timeout 2
kill -STOP "${pids[0]}"
give_prompt
ends_with_error "node 0 stopped before the prompt" 12 "node 0.* did not answer within 2 s"
generate
give_prompt
wait "$leader" || report "left alone, it fails"
grep -q "new tokens on node 3" "$work/err" || report "left alone, it makes no text"
exit $failed
