#!/bin/bash
# Programs that are started with standard input, output or error closed: what is said on these goes into no file, no socket and no device's
# way, and a result that cannot be written is a failure.
. tests/cli/helpers.sh astra-infer
stories=$root/tests/golden/stories260K classifier=$root/checkpoints/vit-cifar-g8 picture=$root/datasets/pictures/apple_0614.png

# ended CODE: the exit code of the command before
ended() { local code=$?; : >"$work/out"; [ $code = "$1" ] || report "exit code $code, expected $1"; }

name="a result for a closed output"; "$program" generate -c "$stories" --prompt Once -m 4 --quiet 2>"$work/err" >&-; ended 1
err 'standard output: cannot be written'
if [ -e /dev/full ]; then
  name="a text for a full disk"; "$program" generate -c "$stories" --prompt Once -m 4 2>"$work/err" >/dev/full; ended 1
  err 'standard output: cannot be written: No space left on device'
  name="a long text for a full disk"; for _ in {1..999}; do printf '%d ' 257 300 400; done >"$work/ids"
  "$bin/astra-data" decode -t "$stories" -f "$work/ids" 2>"$work/err" >/dev/full; ended 1
  err 'standard output: cannot be written: No space left on device'
fi
if [ -e /dev/full ]; then
  name="a chat for a full disk"; printf 'Once\nOnce\nOnce\n' | "$bin/astra-chat" -c "$stories" -n 1 -m 24 2>"$work/err" >/dev/full; ended 1
  err 'standard output: cannot be written: No space left on device'
  ! grep -q 'was ended after' "$work/err" || report "it goes on where nobody reads"
fi
name="a prompt from a closed input"; "$program" generate -c "$stories" --prompt-file - -m 4 --quiet 2>"$work/err" <&-; ended 1
name="two devices and all closed"; "$program" -c "$classifier" --nodes 2 --json "$picture" <&- >&- 2>&-; ended 1
name="two devices"; "$program" -c "$classifier" --nodes 2 --json "$picture" >"$work/json" <&- 2>&-; ended 0
jq -e '.images[0].top | length == 5' "$work/json" >/dev/null || report "no classes in $(cat "$work/json")"

train=("$bin/astra-train" --model llama-mini --tokenizer "$stories" --init random --blocks 1 --groups 0 --max-steps 1 --batch 1 --context 16
  --dataset "text:$root/datasets/enwiki-sample" --eval-samples 1)
"${train[@]}" --out open >"$work/out" 2>"$work/err" || report "it does not train"
name="a log for nobody"; "${train[@]}" --out errors 2>&-; ended 0
[ ! -s errors/training/lock ] || report "the log is in the lock: $(head -n 2 errors/training/lock)"
name="training with all closed"; "${train[@]}" --out all <&- >&- 2>&-; ended 0
for file in training/lock metrics.csv config.json; do
  ! grep -q 'astra-train:' "all/$file" || report "the log is in $file"
done
[ "$(cat all/events.out.* | wc -c)" = "$(cat open/events.out.* | wc -c)" ] || report "events of $(cat all/events.out.* | wc -c) bytes, not $(cat open/events.out.* | wc -c)"

name="a worker"
"$program" worker -c "$stories" --listen "unix:$work/worker" --threads 1 >&- 2>&- &
worker=$!
for _ in $(seq 300); do [ ! -S "$work/worker" ] || break; sleep 0.1; done
for n in 1 2; do run "a request to it, $n" 0 "$program" generate -c "$stories" --strategy single --peers "unix:$work/worker" --no-local --prompt Once -m 4 --quiet; done
name="a worker"; kill -TERM $worker; wait $worker; ended 0

name="a service"
"$bin/astra-serve" -c "$classifier" --nodes 2 --listen "unix:$work/socket" --log <&- >&- 2>&- &
server=$!
for _ in $(seq 300); do [ ! -S "$work/socket" ] || break; sleep 0.1; done
ask() { curl -sS -m 60 --retry 5 --retry-connrefused --unix-socket "$work/socket" "http://unix$1" "${@:2}" >"$work/json" 2>"$work/err"; }
for n in 1 2; do ask /v1/images/classify -H 'Content-Type: image/png' --data-binary "@$picture"; done
jq -e '.results[0].classes | length == 5' "$work/json" >/dev/null || report "no classes: $(cat "$work/json" "$work/err")"
ask /v1/cluster
jq -e '[.models[0].devices[] | select(.state == "here" and .failures == 0)] | length == 2' "$work/json" >/dev/null || report "a device is lost: $(cat "$work/json")"
kill -TERM $server; wait $server; ended 0

[ $failed = 0 ] && echo "closed: ok"
exit $failed
