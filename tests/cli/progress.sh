#!/bin/bash
# What people see on a terminal: one live line within its width, an evaluation in one line, what Ctrl-C in K-means leaves.  limit: 120
# Usage: tests/cli/progress.sh, from the repository root; what needs a terminal is left out where util-linux's script is absent.
. tests/cli/helpers.sh astra-train
running=
trap '[ -z "$running" ] || kill -KILL "$running" 2>/dev/null; rm -rf "$work"' EXIT
mkdir tiny
cat >tiny/config.json <<'END'
{"model_type": "vit", "hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 96,
 "image_size": 32, "patch_size": 8, "num_labels": 100}
END
tiny=(--model tiny --init random --dataset synthetic:32x32:4:256 --threads 1 --codebook-size 16 --groups 4)

# ---- an evaluation is one line unless --verbose

expect "an evaluation" 0 "${tiny[@]}" --max-steps 2 --batch 8 --out plain
err "evaluation at step 2: accuracy"; ! grep -q "^astra-train:   block 0: distortion" err || report "codebooks are told of"
expect "an evaluation, with more" 0 "${tiny[@]}" --max-steps 2 --batch 8 --out verbose --verbose; err "  block 0: distortion"; err "  block 1: distortion"
same_weights=$(cmp plain/model.safetensors verbose/model.safetensors 2>&1) || report "--verbose changes the weights: $same_weights"

# ---- Ctrl-C in K-means

# interrupt NAME WORDS COMMAND...: a K-means that would take minutes is ended by SIGINT, or by $signal
signal=INT
interrupt() {
  name=$1
  local words=$2
  shift 2
  : >err # of the one before, which would be taken for this one's until it has begun
  env --default-signal="$signal" "$@" --kmeans-samples 1000000 --kmeans-iterations 1000000 --kmeans-restarts 1000 --codebook-size 256 >out 2>err </dev/null &
  running=$!
  until grep -q "^embeddings 100%" err || ! kill -0 "$running" 2>/dev/null; do sleep 0.02; done
  sleep 0.1
  kill -"$signal" "$running"
  wait "$running"
  [ $? = $((128 + $(kill -l "$signal"))) ] || report "it did not end by SIG$signal"
  running=
  err "$words"
}
interrupt "Ctrl-C before training" "nothing is kept. Start it again with the same command" "$program" "${tiny[@]}" --dataset synthetic:32x32:4:2000 --out early
[ ! -e early ] || report "a folder is left: $(find early | tr '\n' ' ')"
expect "and the same command again" 0 "${tiny[@]}" --max-steps 1 --batch 8 --out early -q
interrupt "Ctrl-C in astra-kmeans" "nothing new is kept, and what lay in --out is as it was" "$bin/astra-kmeans" init "${tiny[@]}" --dataset synthetic:32x32:4:2000 --out books
[ ! -e books ] || report "a folder is left: $(find books | tr '\n' ' ')"
mkdir prepared
interrupt "Ctrl-C in astra-kmeans with a folder that was there" "what lay in --out is as it was" "$bin/astra-kmeans" init "${tiny[@]}" --dataset synthetic:32x32:4:2000 --out prepared
[ -d prepared ] || report "the folder that was there is gone"
interrupt "Ctrl-C before training with a folder that was there" "nothing is kept" "$program" "${tiny[@]}" --dataset synthetic:32x32:4:2000 --out prepared
[ -d prepared ] && [ -z "$(ls -A prepared)" ] || report "the folder that was there is gone, or not empty"
expect "too few samples, with a folder that was there" 2 "${tiny[@]}" --codebook-size 5000 --out prepared
[ -d prepared ] && [ -z "$(ls -A prepared)" ] || report "the folder that was there is gone, or not empty"
run "too few samples in astra-kmeans" 2 "$bin/astra-kmeans" init "${tiny[@]}" --codebook-size 5000 --out prepared
[ -d prepared ] && [ -z "$(ls -A prepared)" ] || report "the folder that was there is gone, or not empty"
mkdir notes elsewhere
touch notes/mine
ln -s elsewhere link
interrupt "Ctrl-C before training into a link" "nothing is kept" "$program" "${tiny[@]}" --dataset synthetic:32x32:4:2000 --out link
[ -L link ] && [ -d elsewhere ] || report "the link, or what it leads to, is gone"
signal=HUP
interrupt "a terminal closed before training" "nothing is kept" "$program" "${tiny[@]}" --dataset synthetic:32x32:4:2000 --out closed
[ ! -e closed ] || report "a folder is left: $(find closed | tr '\n' ' ')"
interrupt "Ctrl-C before training, beside other files" "nothing is kept" "$program" "${tiny[@]}" --dataset synthetic:32x32:4:2000 --out notes
[ "$(ls notes)" = mine ] || report "not the file alone that was there: $(find notes | tr '\n' ' ')"

# ---- a terminal

if ! command -v script >/dev/null; then
  [ $failed = 0 ] && echo "progress: lines as expected"
  echo "skipped: no terminal: util-linux's script is not there"
  exit $failed
fi

# on_terminal COLUMNS ARGUMENTS... : what astra-train draws on a terminal of that width, a line for each state of the bar, without codes
on_terminal() {
  name="a terminal of $1 columns"
  local columns=$1
  shift
  printf 'stty cols %s\nexec %q' "$columns" "$program" >command
  printf ' %q' "$@" >>command
  TERM=xterm COLUMNS='' script -qec "bash ./command" typescript >out 2>err </dev/null || report "exit code $?"
  tr '\r' '\n' <typescript | sed 's/\x1b\[[0-9;?]*[a-zA-Z]//g' >states
}
for columns in 80 40 200; do
  on_terminal $columns "${tiny[@]}" --dataset synthetic:32x32:4:20000 --max-steps 300 --batch 32 --eval-samples 4000 --kmeans-samples 20000 --codebook-size 256 --out "terminal-$columns"
  grep -q "^training .*%.*ETA " states || report "there is no bar of training"
  [ "$columns" = 40 ] || grep -q "^training \[[#.]*\] .*loss [0-9.]*  rate [0-9.e-]*  ETA " states || report "the bar lacks loss and rate"
  grep -q "^embeddings .*%" states || report "there is no bar of embeddings"
  grep -q "^k-means 1 of 2 .*%" states || report "there is no bar of K-means"
  grep -q "^evaluating.*%" states || report "there is no bar of the evaluation"
  wide=$(grep -E '^(training|embeddings|k-means [0-9]+ of|evaluating)' states | awk -v most=$((columns < 80 ? columns : 80)) 'length > most')
  [ -z "$wide" ] || report "wider than the terminal: $wide"
  ! grep -q "step 20/" states || report "lines of intervals beside the bar"
  grep -q "evaluation at step 300: accuracy" states || report "the evaluation is not told of"
done

name="a terminal that obeys no escape sequences"
printf '%q ' "$program" "${tiny[@]}" --max-steps 2 --batch 8 --out dumb >command
TERM=dumb script -qec "bash ./command" typescript >out 2>err </dev/null || report "exit code $?"
! grep -q $'\033' typescript || report "escape sequences: $(grep -m 1 $'\033' typescript | cat -v)"
for line in "embeddings 100%" "astra-train: step 2/2" "astra-train: evaluation at step 2: accuracy"; do grep -q "^$line" typescript || report "no line '$line'"; done

[ $failed = 0 ] && echo "progress: bars, lines and last words as expected"
exit $failed
