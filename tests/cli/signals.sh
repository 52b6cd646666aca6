#!/bin/bash
# Signals and broken pipes: what asks a training to end leaves a checkpoint however often and by whom it is sent, programs outlive what reads
# their log, and a service that ends does not take the path of the one that follows it.  limit: 120
# Usage: tests/cli/signals.sh, from the repository root.
. tests/cli/helpers.sh astra-train
stories=$root/tests/golden/stories260K classifier=$root/checkpoints/vit-cifar-g8
running=
trap '[ -z "$running" ] || kill -KILL $running 2>/dev/null; wait; rm -rf "$work"' EXIT
usual=(env "--default-signal=HUP,PIPE") # whoever runs the tests may have them ignored
train=("${usual[@]}" "$program" --model llama-mini --tokenizer "$stories" --init random --blocks 1 --groups 0 --batch 1 --context 16
  --dataset "text:$root/datasets/enwiki-sample" --eval-samples 1)

# saved OUT CODE: the training has ended so, with a checkpoint that a run goes on from
saved() {
  [ "$code" = "$2" ] || report "exit code $code, expected $2"
  expect "$name: it goes on" 0 --resume "$1" --max-steps 1 -q
}
# A training that would not end, once it is under way: begin OUT
begin() {
  "${train[@]}" --max-steps 100000000 --out "$1" </dev/null >out 2>err &
  running=$!
  await "$1/metrics.csv" '^[1-9]' $running || report "it does not begin"
}

name="SIGTERM twice, as timeout sends it"; begin twice; kill -TERM $running; kill -TERM $running 2>/dev/null; wait $running; code=$?; saved twice 1
name="a terminal that is closed"; begin closed; kill -HUP $running; wait $running; code=$?; saved closed 1
name="nothing reads the log any more"
{ "${train[@]}" --max-steps 30 --log-every 1 --out unread </dev/null; echo $? >code; } 2>&1 >/dev/null | head -n 1 >/dev/null
code=$(cat code); saved unread 0

name="a worker whose log nothing reads"
"${usual[@]}" "$bin/astra-infer" worker -c "$classifier" --listen "unix:$work/worker" --once > >(head -n 1 >first) 2>&1 &
running=$!
for _ in $(seq 300); do [ -s first ] && [ -S worker ] && break; sleep 0.1; done
run "$name" 0 "$bin/astra-infer" -c "$classifier" --peers "unix:$work/worker" --quiet "$root/datasets/pictures/apple_0614.png"
wait $running || report "exit code $?"
running=

# A request whose body is not whole yet keeps the first service while the second one already listens.
name="a service that ends while another takes its path"
serve() { "${usual[@]}" "$bin/astra-serve" -c one="$stories" --nodes 1 --listen "unix:$work/socket" --no-log 2>"$1.log" 3>&- & }
says() { await "$1.log" "$2" || report "$1 does not say '$2': $(cat "$1.log")"; }
serve first; first=$!; running=$first; says first 'listening on'
mkfifo body
curl -sS --unix-socket socket http://astra/v1/completions -X POST -H 'Content-Type: application/json' -T body >answer 2>err &
client=$!
exec 3<>body
printf '{"prompt": "Once", ' >&3
for _ in $(seq 300); do
  curl -sS --unix-socket socket http://astra/metrics | grep -q '^astra_http_requests_active [2-9]' && break
  sleep 0.1
done
kill -TERM $first; kill -TERM $first # one request to end, as timeout sends it
says first 'stopping: [12] request' # that for metrics may not have ended yet
serve second; second=$!; running="$first $second"; says second 'listening on'
printf '"max_tokens": 1}' >&3; exec 3>&-
wait $client; grep -q '"choices"' answer || report "the request was cut short: $(cat answer)"
wait $first || report "exit code $?"
[ -S socket ] || report "the path of the second service is gone"
curl -sS --unix-socket socket http://astra/health >out 2>err || report "nobody answers"
kill -HUP $second; wait $second || report "exit code $? at the end of its terminal"; running=
[ ! -e socket ] || report "the path is still there"

[ $failed = 0 ] && echo "signals: ok"
exit $failed
