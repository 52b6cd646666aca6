# The opening of the scripts beside it: a folder to work in that goes at the end, and what is expected of a program. Sourced from the
# repository's root, not run:
#   . tests/cli/helpers.sh PROGRAM [COMMAND...]    what `expect` calls, of $BUILD/bin (build/bin): astra-infer plan, say
# shellcheck shell=bash disable=SC2034
set -u
root=$PWD
bin=$(realpath "${BUILD:-build}/bin")
program=$bin/$1
called=("$program" "${@:2}")
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export ASTRA_HOME="$work/home" HOME="$work/nobody" ASTRA_PEAK=quick
cd "$work" || exit 1
failed=0
. "$root/tests/helpers.sh"

# run NAME EXIT-CODE PROGRAM ARGUMENTS... : keeps the output in $work/out and $work/err
run() {
  name=$1 code=$2
  shift 2
  "$@" >"$work/out" 2>"$work/err" <"${input:-/dev/null}"
  got=$?
  # Not part of what a test compares: whoever runs the tests may have chosen slower kernels.
  grep 'warning: the environment forces slower kernels' "$work/err" >"$work/slow"
  sed -i '/warning: the environment forces slower kernels/d; /warning: OpenBLAS does not know this processor/d' "$work/err"
  [ "$got" = "$code" ] || report "exit code $got, expected $code"
}
expect() { run "$1" "$2" "${called[@]}" "${@:3}"; } # NAME EXIT-CODE ARGUMENTS...
# Prints what sanitizers wrote, by which tests/run.sh knows a crash, before the last lines of the output.
report() { echo "FAILED: $name: $1"; sanitizers; tail -n 20 "$work/out" "$work/err" ${server_log:+"$server_log"} | cut -c -400 | sed 's/^/    /'; failed=1; }
out() { grep -q -e "$1" "$work/out" || report "stdout lacks '$1'"; }
err() { grep -q -e "$1" "$work/err" || report "stderr lacks '$1'"; }
silent() { [ ! -s "$work/$1" ] || report "std$1 is not empty"; }
json() { tail -n 1 "$work/out" | grep -q -E "$1" || report "the last line of stdout lacks '$1'"; }
# awk takes a word that it does not know, as jq and printf write numbers that are none, for 0.
holds() { { [[ ! $1 =~ null|nan|inf ]] && awk "BEGIN { exit !($1) }"; } || report "$1 does not hold"; }

# A model of texts that --weights int4 takes seconds to load: slow_model DIR
slow_model() {
  "$bin/astra-train" --model llama-mini --tokenizer "$root/tests/golden/stories260K" --init random --blocks 32 --groups 0 --max-steps 1 --batch 1 \
    --context 16 --dataset "text:$root/datasets/enwiki-sample" --eval-samples 1 --quiet --out "$1" >"$work/out" 2>"$work/err" || report "no model to load"
}
# Waits until the process maps the model's weights: loads PID DIR
loads() {
  for _ in $(seq 300); do
    grep -qs "$2/model.safetensors" "/proc/$1/maps" && return
    sleep 0.1
  done
  report "it loads nothing"
}
