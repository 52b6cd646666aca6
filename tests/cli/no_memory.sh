#!/bin/bash
# limit: 300
# Without memory: each program is run again and again, and each time another of the requests for memory that its own code makes fails, spread
# over the whole run. It ends with 0, where it can do without, and has made the same, or with 1 and a message that memory is lacking, never by a
# signal, and does not hang.
# Usage: tests/cli/no_memory.sh; programs in $BUILD/bin (build/bin)
. tests/cli/helpers.sh astra-infer
library=${bin%/bin}/tests/cli/fail_allocations.so
if [ ! -e "$library" ] || ! LD_PRELOAD=$library true 2>>"$work/err"; then
  echo "skipped: no allocator that fails was built: sanitizers have their own, and it needs glibc"
  exit 77
fi
stories=$root/tests/golden/stories260K images=$root/tests/golden/resize vit=$root/checkpoints/vit-cifar-g8

# attempt REQUEST PROGRAM ARGUMENT...: with this request for memory failing, -1: none; its exit code in $got
attempt() {
  head -c 64 /dev/zero >count
  FAIL_COUNT=$work/count FAIL_AT=$1 LD_PRELOAD=$library timeout $((20 * ${TIME_SCALE:-1})) "$bin/$2" "${@:3}" >out 2>err </dev/null
  got=$?
}

# result WHAT: what the last attempt has made: out, a file of a directory that it writes, or, by a path of jq, a part of the JSON in out
result() { if [[ $1 == .* ]]; then jq "$1" out; else cat "$1"; fi; }

# without NAME RUNS WHAT PROGRAM ARGUMENT...; WHAT is empty where each run makes something else
without() {
  local title=$1 runs=$2 what=$3 total request refused=0
  shift 3
  name=$title
  attempt -1 "$@"
  total=$(od -An -td8 -N8 count | tr -d ' ')
  if [ $got != 0 ] || [ "$total" -lt 10 ]; then
    report "exit code $got after $total requests for memory, none of which failed"
    return
  fi
  [ -z "$what" ] || result "$what" >whole
  ((runs < total)) || runs=$total
  for ((i = 0; i < runs; i++)); do
    request=$((i * total / runs))
    [[ $what != */* ]] || : >"$what" # what the run before has made is not this one's
    attempt $request "$@"
    name="$title, request $request of $total"
    case $got in
      0) [ -z "$what" ] || result "$what" | cmp -s - whole || report "it ends with 0 and has made something else" ;;
      1)
        ((++refused))
        grep -E -i -q 'no memory|out of memory|cannot allocate memory|no address space' err || report "the message does not say that memory is lacking"
        ;;
      *) report "exit code $got" ;;
    esac
  done
  name=$title
  [ $refused -gt $((runs / 4)) ] || report "$refused of $runs runs failed: it seems that requests do not"
}

for ((i = 0; i < 300; i++)); do echo "Lily saw a cat and a dog, number $((i % 7)). They had fun."; done >text.txt

without "tokens of a text" 12 out astra-data encode --tokenizer "$stories" "Lily saw a cat"
without "classes of an image, two devices" 30 out astra-infer --checkpoint "$vit" --nodes 2 --quiet "$images/in0.png"
without "continuation of a text" 30 '.prompts[].ids' astra-infer --checkpoint "$stories" --nodes 1 --prompt Lily --max-new-tokens 4 --json
without "products of panels that are widened to floats" 1000 out astra-infer --checkpoint "$stories" --nodes 1 --prompt Lily --max-new-tokens 1 --quiet \
  --precision bf16 --backend openblas
without "perplexity" 20 .perplexity astra-infer eval --checkpoint "$stories" --dataset text:text.txt --nodes 1 --samples 3 --json
without "8-bit weights" 20 quantised/model.safetensors astra-quantize --checkpoint "$stories" --out quantised --weights int8 --overwrite
# oneDNN leaves a product that it has no memory for to OpenBLAS, which rounds otherwise.
without "training" 30 trained/model.safetensors astra-train --model "$stories" --dataset text:text.txt --context 16 --groups 4 --codebook-size 16 --kmeans-samples 512 \
  --kmeans-iterations 2 --batch 2 --max-steps 2 --quiet --out trained --overwrite --backend openblas
without "plan" 20 "" astra-infer plan --model vit-base --nodes 2,4 --json
without "experiments" 20 out astra-bench accuracy --list

[ $failed = 0 ] && echo "no memory: no program ends by a signal, and those that fail say why"
exit $failed
