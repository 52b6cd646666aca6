#!/bin/bash
# limit: 240
# astra-train as a job of several ranks: the loss of one process, the same bits from the same ranks, divided optimizer states, 16 bits on the
# wire, going on with another number of ranks, and what is left when a rank is lost.
. tests/network/helpers.sh
program=$(realpath "$build/bin/astra-train")
export ASTRA_HOME="$work/home"

command -v mpirun >/dev/null || { echo "skipped: no mpirun"; exit 77; }
# Open MPI keeps at its end what it has taken, which the address sanitizer would count as leaks of ours.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

mkdir "$work/tiny"
cat >"$work/tiny/config.json" <<'END'
{"model_type": "vit", "hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 96,
 "image_size": 32, "patch_size": 8, "num_labels": 100}
END
shared=(--init random --dataset cifar100-sample --data-dir datasets --eval-samples 50 --threads 1 --batch 12 --log-every 1 --learning-rate 1e-3)
plain=(--model "$work/tiny" --groups 0 "${shared[@]}")
astra=(--model "$work/tiny" --groups 4 --codebook-size 16 --kmeans-samples 256 --devices 2-4 --dead-below 0.9 --codebook-decay 0.8 --drop-path 0.2
  --token-loss 0.1,span:4 "${shared[@]}")

ranks() { # COUNT ARGUMENTS...
  timeout 60 mpirun -n "$1" --oversubscribe --allow-run-as-root "$program" "${@:2}" >"$work/out" 2>"$work/err" </dev/null
}
train() { # NAME RANKS OUT ARGUMENTS...; RANKS 0: one process without a job
  if [ "$2" = 0 ]; then "$program" --out "$work/$3" "${@:4}" >"$work/out" 2>"$work/err" </dev/null; else ranks "$2" --out "$work/$3" "${@:4}"; fi ||
    report "$1: exit code $?"
}
report() { # WHAT
  echo "FAILED: $1"
  sanitizers
  for file in out err; do tail -n 12 "$work/$file" 2>/dev/null | cut -c -300 | sed "s/^/    $file: /"; done
  failed=1
}
# The largest difference of the losses of two runs, step by step, and how many steps there are in both: is it at most MOST over STEPS?
near() { # NAME OUT OUT MOST STEPS
  paste -d, <(awk -F, '$3 != "" { print $1 "," $3 }' "$work/$2/metrics.csv") <(awk -F, '$3 != "" { print $1 "," $3 }' "$work/$3/metrics.csv") |
    awk -F, -v most="$4" -v steps="$5" 'NR > 1 { d = $2 - $4; if (d < 0) d = -d; if (d > worst) worst = d; if ($1 == $3) n++ }
      END { print n, worst > "/dev/stderr"; exit !(n == steps && worst <= most) }' 2>"$work/out" || report "$1: not within $4 over $5 steps"
}
same() { cmp -s "$work/$2" "$work/$3" || report "$1: $2 and $3 differ"; }
state=training/state.safetensors

# ---- a program without MPI says so
if ! ranks 2 --help; then report "--help in a job: exit code"; fi
ranks 2 "${plain[@]}" --out "$work/none" --max-steps 1
if grep -q 'built without MPI' "$work/err"; then
  grep -q 'libopenmpi-dev' "$work/err" || report "without MPI"
  [ $failed -eq 0 ] || exit 1
  echo "skipped: the program was built without MPI"
  exit 77
fi

# ---- the same loss as one process, with codebooks, noise and revived codewords; the ranks compare their codebooks at every line
train "one process" 0 one "${astra[@]}" --max-steps 50
train "two ranks" 2 two "${astra[@]}" --max-steps 50
grep -q '2 ranks on 1 machine with 1 thread each; gradients travel in fp32' "$work/err" || report "two ranks: not said"
[ "$(grep -c 'step 50/50' "$work/err")" = 1 ] || report "two ranks: more than one speaks"
near "two ranks" one two 1e-3 50
train "five ranks, uneven shares" 5 five "${astra[@]}" --max-steps 50
near "five ranks" one five 1e-3 50
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "codewords_revived") c = i } NR > 1 { n += $c } END { exit !(n > 0) }' \
  "$work/two/metrics.csv" || report "no codeword was revived: the test shows less than it says"

train "several bit rates, one process" 0 rates1 "${astra[@]}" --groups 1,4 --max-steps 20
train "several bit rates" 2 rates2 "${astra[@]}" --groups 1,4 --max-steps 20
near "several bit rates" rates1 rates2 1e-3 20

# ---- ranks with different numbers of threads, whose products round differently (with these kernels, if the processor has them)
uneven=("${astra[@]}" --groups 1,4 --prediction --exchange-blocks 1 --max-steps 20)
(
  grep -qw avx2 /proc/cpuinfo && export OPENBLAS_CORETYPE=Haswell
  train "uneven threads, one process" 0 uneven1 "${uneven[@]}"
  one_and_two() { # ARGUMENTS...: a rank with one thread and one with two
    timeout 60 mpirun --oversubscribe --allow-run-as-root -n 1 "$program" "$@" : -n 1 "$program" "$@" --threads 2 >"$work/out" 2>"$work/err" </dev/null
  }
  one_and_two --out "$work/uneven2" "${uneven[@]}" || report "uneven threads: exit code $?"
  near "uneven threads" uneven1 uneven2 1e-3 20
  one_and_two --out "$work/no" "${plain[@]}" --max-steps 1 --optimizer muon
  code=$?
  [ $code -eq 2 ] && grep -q 'rank 1 has another number of threads than rank 0' "$work/err" || report "uneven threads with Muon: exit code $code"
  train "Muon" 2 muon "${plain[@]}" --max-steps 2 --optimizer muon
  exit $failed
) || failed=1

# ---- distillation by the recipe: rows are compared with the teacher's relative to those of the whole batch, not of a rank's share
train "a teacher" 0 teacher "${plain[@]}" --max-steps 10
taught=(--model "$work/teacher" --groups 4 --codebook-size 16 --kmeans-samples 256 --devices 2-4 --distill-hidden 20 --mixup 0 "${shared[@]:2}") # images are mixed within ranks
train "taught, one process" 0 taught1 "${taught[@]}" --max-steps 20
grep -q 'distillation (--recipe tuned)' "$work/err" || report "taught: not by the recipe"
train "taught" 5 taught5 "${taught[@]}" --max-steps 20
near "taught" taught1 taught5 1e-3 20
train "taught, blocks computed twice" 2 taught2 "${taught[@]}" --max-steps 20 --recompute
near "taught, blocks computed twice" taught1 taught2 1e-3 20

# ---- the same ranks, the same bits; divided states as well
train "again" 3 three "${astra[@]}" --max-steps 6 --ema-decay 0.9
train "again" 3 again "${astra[@]}" --max-steps 6 --ema-decay 0.9
same "three ranks twice" three/$state again/$state
train "divided states" 3 divided "${astra[@]}" --max-steps 6 --ema-decay 0.9 --shard-optimizer
same "divided states" three/$state divided/$state
same "divided states" three/model.safetensors divided/model.safetensors
train "moments in 8 bits" 3 bytes "${plain[@]}" --max-steps 6 --optimizer-bits 8
train "moments in 8 bits, divided" 3 bytesd "${plain[@]}" --max-steps 6 --optimizer-bits 8 --shard-optimizer
same "moments in 8 bits, divided" bytes/$state bytesd/$state
train "bf16 arithmetic, one process" 0 narrow1 "${astra[@]}" --max-steps 20 --precision bf16
train "bf16 arithmetic" 2 narrow2 "${astra[@]}" --max-steps 20 --precision bf16
near "bf16 arithmetic" narrow1 narrow2 0.02 20
train "accumulated, one process" 0 sum1 "${plain[@]}" --max-steps 6 --accumulate 2
train "accumulated" 2 sum2 "${plain[@]}" --max-steps 6 --accumulate 2
near "accumulated" sum1 sum2 1e-3 6

# ---- 16 bits on the wire
train "bf16" 2 bf16 "${plain[@]}" --max-steps 20 --wire bf16
grep -q 'gradients travel in bf16' "$work/err" || report "bf16: not said"
train "fp32" 2 fp32 "${plain[@]}" --max-steps 20
near "bf16" fp32 bf16 0.02 20
! cmp -s "$work/fp32/$state" "$work/bf16/$state" || report "bf16: it changes nothing"
train "bf16 divided" 2 bf16d "${plain[@]}" --max-steps 20 --wire bf16 --shard-optimizer
same "bf16 divided" bf16/$state bf16d/$state

# ---- texts, whose batches have widths of their own
text=(--model "$work/gpt2" --dataset tsv:"$work/texts.tsv" --init random --groups 4 --codebook-size 16 --kmeans-samples 128 --threads 1 --batch 6
  --log-every 1 --learning-rate 1e-3 --eval-samples 13 --max-steps 20)
make_checkpoint "$work/gpt2" tiny-gpt2 4 50 4
cp tests/golden/stories260K/tok512.bin "$work/gpt2/"
printf 'text\tlabel\n' >"$work/texts.tsv"
for ((i = 0; i < 60; i++)); do
  for ((w = 0; w <= i % 7; w++)); do printf 'the dog was %s ' "$([ $((i % 2)) = 0 ] && echo happy || echo sad)"; done
  printf '\t%d\n' $((i % 2))
done >>"$work/texts.tsv"
train "texts, one process" 0 text1 "${text[@]}"
train "texts" 4 text4 "${text[@]}"
near "texts" text1 text4 1e-3 20

# ---- going on with another number of ranks: 2, then 4, then one process
constant=(--warmup 0 --rate-floor 1)
train "the first part" 2 on "${astra[@]}" "${constant[@]}" --max-steps 20 --shard-optimizer
ranks 4 --resume "$work/on" --max-steps 35 || report "going on with four ranks: exit code $?"
"$program" --resume "$work/on" --max-steps 50 >"$work/out" 2>"$work/err" || report "going on with one: exit code $?"
train "without a rest" 0 straight "${astra[@]}" "${constant[@]}" --max-steps 50
near "going on" straight on 1e-3 50

# The threads of one process are too many for each of two ranks, which share its cores; those that are asked for are taken.
cores=$(nproc)
"$program" "${plain[@]}" --out "$work/wide" --threads "$cores" --max-steps 1 >"$work/out" 2>"$work/err" || report "all cores: exit code $?"
ranks 2 --resume "$work/wide" --max-steps 2
most=$(((cores + 1) / 2))
each=$(sed -n 's/.*2 ranks on 1 machine with \([0-9]*\) threads\{0,1\} each.*/\1/p' "$work/err")
[ "${each:-$((most + 1))}" -le "$most" ] || report "threads of two ranks: $(grep ranks "$work/err")"
ranks 2 --resume "$work/wide" --max-steps 3 --threads 3
grep -q "2 ranks on 1 machine with 3 threads each" "$work/err" || report "threads that are asked for: $(grep ranks "$work/err")"

# ---- what cannot be
refused() { # NAME CODE WORDS ARGUMENTS...
  ranks 2 "${@:4}"
  local got=$?
  [ $got -eq "$2" ] && grep -q -- "$3" "$work/err" || report "$1: exit code $got"
  [ "$(grep -c 'error:' "$work/err")" = 1 ] || report "$1: said by more than one"
}
refused "a batch of one" 2 "--batch 1: each of 2 ranks" "${plain[@]}" --batch 1 --out "$work/no"
refused "mixing of one image" 2 "--mixup 0.2 mixes pairs of images of each rank's share of a batch, and a batch has 3 images: give --batch 4 or more" "${plain[@]}" --mixup 0.2 --batch 3 --out "$work/no"
refused "a plan" 2 "--dry-run runs in one process" "${plain[@]}" --dry-run
refused "no such option" 2 "unknown option --zzz" --zzz
refused "no such data" 1 "nowhere" "${plain[@]}" --dataset folder:nowhere --out "$work/no"
refused "a finished run" 1 "two holds finished work already" "${plain[@]}" --out "$work/two"
refused "numbers that run away" 1 "not a finite number\|not a number\|diverged" "${plain[@]}" --out "$work/far" --learning-rate 90 --clip 0 --warmup 0 \
  --max-steps 300 --beta2 0

# ---- the benchmark of a job
timeout 60 mpirun -n 2 --oversubscribe --allow-run-as-root "$build/bin/astra-bench" scaling --model vit-cifar --batch 4 --groups 4 --steps 1 \
  --threads 1 --json >"$work/out" 2>"$work/err" </dev/null || report "the benchmark: exit code $?"
name="the benchmark" json_holds '.ranks == 2 and .measured_seconds > 0 and .predicted_seconds > .computed_seconds'

# ---- told to stop, all stop behind the same step
start() { # RANKS ARGUMENTS...: in the background; sets run
  mpirun -n "$1" --oversubscribe --allow-run-as-root "$program" "${@:2}" >"$work/out" 2>"$work/err" </dev/null &
  run=$!
}
until_step() { # STEP
  for ((i = 0; i < 300; i++)); do grep -q "step $1/" "$work/err" && return; sleep 0.1; done
  report "step $1 did not come"
}
start 2 "${astra[@]}" --out "$work/stopped" --max-steps 100000
until_step 5
kill -USR1 $run
wait $run
code=$?
[ $code -eq 1 ] && grep -q 'interrupted after step .*--resume' "$work/err" || report "told to stop: exit code $code"
ranks 3 --resume "$work/stopped" --max-steps "$(($(tail -n 1 "$work/stopped/metrics.csv" | cut -d, -f1) + 3))" || report "told to stop: it does not go on"

# ---- a rank that is killed ends the job; the last checkpoint is whole
start 3 "${astra[@]}" --out "$work/killed" --max-steps 100000 --checkpoint-every 5
until_step 12
mapfile -t pids < <(pgrep -f "^$program .*--out $work/killed")
[ ${#pids[@]} -eq 3 ] || report "a rank that is killed: found ${#pids[@]} of 3"
kill -KILL "${pids[1]}"
wait $run
code=$?
[ $code -ne 0 ] && [ $code -ne 124 ] || report "a rank that is killed: exit code $code"
grep -q 'rank 1' "$work/err" || report "a rank that is killed: it is not named"
grep -q "last checkpoint, of step .* is intact in $work/killed; .*--resume" "$work/err" || report "a rank that is killed: nothing about the checkpoint"
no_orphans
"$build/bin/astra-data" verify "$work/killed" >"$work/out" 2>&1 || report "a rank that is killed: the checkpoint is damaged"
ranks 2 --resume "$work/killed" --max-steps 20 --quiet
code=$?
[ $code -eq 0 ] || report "a rank that is killed: it does not go on (exit code $code)"
exit $failed
