#!/bin/bash
# astra-chat: with a checkpoint and with a service, which answer the same; lines from a pipe and from a terminal; commands; a stop by SIGINT;
# what is refused.
# Usage: tests/cli/astra-chat.sh; programs in $BUILD/bin (build/bin). limit: 200
stories=$PWD/tests/golden/stories260K
. tests/cli/helpers.sh astra-chat

service=
trap 'for pid in $service $server; do kill "$pid" 2>/dev/null; done; wait; rm -rf "$work"' EXIT
greedy=(--temperature 0 --max-new-tokens 24)

expect "neither model nor service" 2; err "give --checkpoint DIR or --url URL"
expect "two to chat with" 2 -c "$stories" -u http://127.0.0.1:1; err "cannot be combined"
expect "an option of the other kind" 2 -c "$stories" --model x; err "is for --url"
expect "a time limit of the other kind" 2 -c "$stories" --answer-timeout 5s; err "--answer-timeout is for --url"
expect "a template of a service" 2 -u http://127.0.0.1:1 --chat-template x; err "is for --checkpoint"
expect "devices of a service" 2 -u http://127.0.0.1:1 --quiet --nodes 4; err "--nodes is for --checkpoint"
expect "no address" 2 -u 127.0.0.1:1; err "give http://HOST:PORT"; err "for example --url http://127.0.0.1:8080"
expect "nobody there" 1 -u http://127.0.0.1:1; err "is astra-serve running there"
expect "no checkpoint there" 1 -c nowhere; err nowhere
for option in layout batch; do expect "--$option, which is for images" 2 -c "$stories" -n 1 --$option 3; err "unknown option --$option"; done
expect "a strategy that cannot decode" 2 -c "$stories" -n 2 --strategy tp; err "strategy tp .*cannot continue a prompt"
expect "parts of a prompt" 2 -c "$stories" -n 1 --parts 4; err "parts 4: the blocks of a prompt are not computed in parts"
expect "a context that the model does not have" 2 -c "$stories" -n 1 --max-context 9999; err "takes at most"

cat >lines <<'END'
Once upon a time
/save first.json
/reset 
Once upon a time
/system Be kind.
//slash \
and more
/save second.json
END
ln -s kept.json first.json
input=lines
expect "a checkpoint" 0 -c "$stories" -n 1 "${greedy[@]}" --verbose
err "^machine: kernels"; err "^node 0 is pid"
cp out checkpoint.out
[ "$(jq -c 'map(.role)' first.json)" = '["user","assistant"]' ] || report "/save: $(cat first.json)"
[ -L first.json ] && [ -f kept.json ] || report "/save replaced a link"
[ "$(jq -r '.[0].content' second.json)" = "Be kind." ] || report "/system: $(cat second.json)"
[ "$(jq -r '.[1].content' second.json)" = $'/slash \nand more' ] || report "a line that goes on: $(cat second.json)"
# After /reset the same question has the same answer, which stands on stdout as it is in the file.
answer=$(jq -r '.[1].content' first.json)
[ -n "$answer" ] || report "an empty answer"
[ "$(head -n $(($(wc -l <<<"$answer"))) out)" = "$answer" ] || report "stdout differs from the conversation"
holds "$(grep -cF "$(head -n 1 <<<"$answer")" out) >= 2"

start_service -c one="$stories" --nodes 1 --listen "unix:$work/socket" --no-log
service=$server
expect "a service" 0 -u "unix:$work/socket" "${greedy[@]}"
cmp -s out checkpoint.out || report "service and checkpoint answer differently"
# What astra-infer and the service accept of a sampling, the chat does.
expect "other limits" 0 -u "unix:$work/socket" --temperature 100 --top-k 2147483647 --max-new-tokens 4
expect "a limit" 2 -u "unix:$work/socket" --temperature 100.1; err "--temperature: .*from 0 to 100"
expect "another limit" 2 -u "unix:$work/socket" --top-k 2147483648; err "--top-k: .*from 0 to 2147483647"
expect "another model of it" 1 -u "unix:$work/socket" --model two; err "no language model two, but one"
# A system message of the command line, which /reset keeps.
printf 'Once upon a time\n/save third.json\n/reset\nOnce upon a time\n/save fourth.json\n' >reset; input=reset
expect "a system message" 0 -c "$stories" -n 1 "${greedy[@]}" -s "Be kind."
[ "$(jq -c 'map(.role)' third.json)" = '["system","user","assistant"]' ] && [ "$(jq -r '.[0].content' third.json)" = "Be kind." ] || report "--system: $(cat third.json)"
cmp -s third.json fourth.json || report "/reset: $(cat fourth.json)"
[ "$(jq -r '.[2].content' third.json)" != "$answer" ] || report "the model is not told the system message"
input=
printf '/nope\n' >command; input=command
expect "no command" 1 -u "unix:$work/socket"; err "/nope is no command; /help lists them"
printf '/quit now\n' >command
expect "a command with too much" 1 -u "unix:$work/socket"; err "/quit takes nothing behind it"
printf '/help\n/save\n' >command
expect "/help, and /save without a file" 1 -u "unix:$work/socket"; out '^/reset'; err "name of a file is missing"
printf 'a\0b\n' >command
input=command expect "a message with a NUL" 1 -u "unix:$work/socket"; err "a NUL byte"
input=/ expect "a directory to read from" 1 -u "unix:$work/socket"; err "standard input cannot be read"
printf 'a\xff\n' >command
expect "a message that is no text" 1 -u "unix:$work/socket"; err "not valid UTF-8"
input=

# A full context is called so by both, though a service has one word for it and for the limit of tokens.
start_service -c "$stories" --nodes 1 --max-context 64 --listen "unix:$work/small" --no-log
echo "Once upon a time" >once; input=once
for partner in "-c $stories -n 1 --max-context 64" "-u unix:$work/small"; do
  # shellcheck disable=SC2086
  expect "a full context with $partner" 0 $partner --temperature 0 --max-new-tokens 100; err "the context is full: /reset begins anew"
  # shellcheck disable=SC2086
  expect "enough with $partner" 0 $partner --temperature 0 --max-new-tokens 5; err "ended after 5 tokens (--max-new-tokens)"
  # shellcheck disable=SC2086
  expect "a token with $partner" 0 $partner --temperature 0 --max-new-tokens 1; err "ended after 1 token (--max-new-tokens)"
done
input=
kill $server; wait $server; server=

# The file of the service's keys serves its clients, too: what is no key there is none here.
printf '# keys of this service\n\n  \r\nfirst-key-of-two\t\r\nsecond-key-of-two\n' >keys; chmod 600 keys
printf '# of another service\na-key-of-nobody\n' >strange
printf '\n# none\n' >comments
start_service -c "$stories" --nodes 1 --api-key-file keys --listen "unix:$work/small" --no-log
expect "the service's own keys" 0 -u "unix:$work/small" --api-key-file keys
expect "no key" 1 -u "unix:$work/small"; err "it requires a valid API key: give --api-key-file FILE"
expect "a key of another service" 1 -u "unix:$work/small" --api-key-file strange; err "it does not accept the key in strange,"
! grep 'give --api-key-file' err || report "it asks for what was given"
expect "a file without a key" 1 -u "unix:$work/small" --api-key-file comments; err "comments: no key in it"
kill $server; wait $server; server=

# Ctrl-C ends one answer of many, not the program; it may come just between two, so that it is tried again.
for _ in $(seq 12); do printf 'Once upon a time\n/reset\n'; done >many
echo "/save $work/last.json" >>many
for partner in "-c $stories -n 1" "-u unix:$work/socket"; do
  name="SIGINT with $partner"
  for try in 1 2 3 4 5 6 7 8 9; do
    rm -f last.json
    # shellcheck disable=SC2086
    "$program" $partner --temperature 0 --max-new-tokens 400 <many >out 2>err &
    chat=$!
    for _ in $(seq 200); do [ -s out ] && break; sleep 0.05; done
    sleep 0.0$try # not always as an answer ends
    kill -INT $chat
    wait $chat; code=$?
    grep -q 'astra-chat: stopped' err && break
  done
  [ $code = 0 ] || report "exit code $code"
  [ "$(grep -c 'astra-chat: stopped' err)" = 1 ] || report "no answer was stopped"
  [ -s last.json ] || report "it did not go on to the last line"
done

# SIGINT again and again, since the first may come too early, until the chat ends as interrupted. None before this script's child has become
# the chat: it would end as this script does, which removes $work.
interrupt() {
  for _ in $(seq 100); do [ "$(cat /proc/$chat/comm)" = "$(cat /proc/$$/comm)" ] || break; sleep 0.1; done
  for _ in $(seq 100); do kill -INT $chat 2>/dev/null || break; sleep 0.1; done
  kill -KILL $chat 2>/dev/null && report "it does not end"
  wait $chat; code=$?
  [ $code = 1 ] || report "exit code $code"
  err interrupted
}
name="SIGINT while nothing is said"
mkfifo fifo
"$program" -u "unix:$work/socket" <fifo >out 2>err &
chat=$!
exec 3>fifo
echo /help >&3
for _ in $(seq 300); do [ -s out ] && break; sleep 0.1; done # it has begun, and reads the next line
interrupt
exec 3>&-

name="SIGINT while a service does not answer"
kill -STOP $service
"$program" -u "unix:$work/socket" </dev/null >out 2>err &
chat=$!
interrupt
kill -CONT $service

name="SIGINT while it waits for a worker that serves another leader"
"$bin/astra-infer" worker -c "$stories" --listen "unix:$work/worker" --threads 1 2>worker.log &
worker=$!
await worker.log "listening on" $worker || { report "the worker does not listen: $(cat worker.log)"; exit 1; }
single=(-c "$stories" --strategy single --peers "unix:$work/worker" --wait 150)
"$program" "${single[@]}" <fifo >out 2>err &
first=$!
exec 3>fifo
for _ in $(seq 300); do grep -qs 'serving the leader' worker.log && break; sleep 0.1; done
"$program" "${single[@]}" </dev/null >out 2>err &
chat=$!
for _ in $(seq 300); do grep -qs 'busy with another leader' err && break; sleep 0.1; done
kill -INT $chat
for _ in $(seq 100); do kill -0 $chat 2>/dev/null || break; sleep 0.1; done
kill -KILL $chat 2>/dev/null && report "it does not end"
wait $chat; code=$?
[ $code = 1 ] || report "exit code $code"
err interrupted
exec 3>&-
wait $first
kill $worker; wait $worker

name="SIGINT while a model is loaded"
slow_model heavy
env --default-signal=INT "$program" -c heavy -n 1 --weights int4 </dev/null >out 2>err & # what runs in the background has it ignored
chat=$!
loads $chat heavy
since=$EPOCHREALTIME
kill -INT $chat; wait $chat; code=$?
holds "$EPOCHREALTIME - $since < ${TIME_SCALE:-1}"
[ $code = 130 ] || report "exit code $code"

# Waits for 30 s at most until so many lines of out, as it grows, have PATTERN: appears COUNT PATTERN
appears() { for ((i = 0; i < 300; i++)); do [ "$(grep -ase "$2" out | wc -l)" -lt "$1" ] || break; sleep 0.1; done; }
answered() { appears 1 'tokens, .* per second, first after'; appears 2 '^> '; } # once, and it asks for the next line

# On a terminal: a prompt, line editing (the backspaces of a typing error), figures below the answer.
if script -qec true /dev/null >/dev/null 2>&1; then
  name="a terminal"
  rm -f out
  { appears 1 '^> '; printf 'Once upon a tome\b\b\bime\r'; answered; printf '/quit\r'; sleep 1; } |
    TERM=xterm timeout 60 script -qec "$program -c $stories -n 1 --temperature 0 -m 24 --history $work/history" /dev/null >out 2>err
  [ "${PIPESTATUS[1]}" = 0 ] || report "the chat failed"
  out '> '; out 'tokens, .* per second, first after'
  grep -q 'Once\\040upon\\040a\\040time' history || report "the history lacks the line: $(cat history)"
  grep -qF "$(head -n 1 <<<"$answer" | cut -c 1-20)" out || report "the answer is not there"
  [ "$(stat -c %a history)" = 600 ] || report "others may read the history"
  for signal in HUP TERM; do
    name="a history of a chat that SIG$signal ends"
    rm -f chat.pid out
    { appears 1 '^> '; printf 'The end of %s\r' $signal; answered; kill -$signal "$(cat chat.pid)"; sleep 1; } |
      TERM=xterm timeout 60 script -qec "echo \$\$ >chat.pid; exec $program -c $stories -n 1 --temperature 0 -m 4 --history $work/history" /dev/null >out 2>err
    grep -q "The\\\\040end\\\\040of\\\\040$signal" history || report "the history lacks the line: $(cat history)"
    grep -q 'Once\\040upon' history || report "the history lacks the line of an earlier chat: $(cat history)"
  done
  name="Ctrl-C before the first line"
  rm -f out
  { appears 1 '^> '; printf '\003'; sleep 5; } | TERM=xterm timeout 60 script -qec "exec $program -c $stories -n 1" /dev/null >out 2>err
  [ "${PIPESTATUS[1]}" = 1 ] || report "it does not end the program"
  out interrupted
  name="a history that cannot be written"
  mkdir full
  rm -f out
  { appears 1 '^> '; rmdir full; printf '/help\r'; appears 2 '^> '; printf '/quit\r'; sleep 1; } |
    TERM=xterm timeout 60 script -qec "$program -c $stories -n 1 --history $work/full/history" /dev/null >out 2>err
  [ "${PIPESTATUS[1]}" = 0 ] || report "the chat failed"
  [ "$(grep -c 'lines from here on are not kept' out)" = 1 ] || report "it is not said once"
  name="a history that is none"
  echo "a letter" >letter
  TERM=xterm timeout 60 script -qec "$program -c $stories -n 1 --history $work/letter" /dev/null >out 2>err </dev/null && report "it was taken"
  out 'history .*letter: it cannot be read, or holds something else'
  [ "$(cat letter)" = "a letter" ] || report "it was replaced"
  name="a history that is a pipe"
  mkfifo pipe
  TERM=xterm timeout 60 script -qec "$program -c $stories -n 1 --history $work/pipe" /dev/null >out 2>err </dev/null && report "it was taken"
  out 'history .*pipe: it is not a regular file'
  [ -p pipe ] || report "it was replaced"
else
  echo "skipped: a terminal: util-linux's script is not there, or gets none"
fi
[ $failed = 0 ] && echo "astra-chat: ok"
exit $failed
