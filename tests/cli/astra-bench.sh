#!/bin/bash
# astra-bench from outside: what it prints of a tiny model, and that the figures fit each other. Says nothing about speed.
# Usage: tests/cli/astra-bench.sh; programs in $BUILD/bin (build/bin). limit: 60
. tests/cli/helpers.sh astra-bench
figure() { sed -n "s/^  $1  *\([0-9.]*\).*/\1/p" "$work/out"; } # of the plain model

mkdir model
cat >model/config.json <<'END'
{"model_type": "vit", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64, "image_size": 16,
 "patch_size": 4, "num_channels": 3, "hidden_act": "gelu", "layer_norm_eps": 1e-12}
END
tiny=(step --model model --batch 4 --steps 3 --threads 2)

expect "help" 0 --help; out "^usage: astra-bench"; out "^  step "; silent err
expect "version" 0 --version; out "^astra-bench [0-9]"
expect "help of step" 0 step --help; out "^usage: astra-bench step"; out "--groups"; out "--forward"; out "--profile"; silent err
expect "nothing" 2; err "no command given"; err "step"
expect "no model" 2 step; err "--model is missing"
expect "unknown model" 2 step --model vit-huge; err "vit-huge"; err "vit-base"
expect "unknown option" 2 "${tiny[@]}" --dataset cifar100; err "--dataset"
expect "no steps" 2 "${tiny[@]}" --steps 0; err "--steps"
expect "more devices than tokens" 2 "${tiny[@]}" --groups 4 --devices 17; err "--devices 17"; err "16 tokens"

expect "plain" 0 "${tiny[@]}"; out "^machine: 2 threads"; out "^model:   model, 16x16, batch 4"; silent err
out "^memory:  read [1-9][0-9.]* GB/s on one thread, [1-9][0-9.]* on all; copy [1-9]"
holds "$(figure '  middle half of steps, +-%') >= 0"
holds "$(figure 'milliseconds, median') >= $(figure 'milliseconds, min') && $(figure 'milliseconds, min') > 0"
holds "$(figure 'time inside matrix products, %') > 0 && $(figure 'time inside matrix products, %') <= 100"
holds "$(figure 'MiB of activations') > 0 && $(figure 'peak resident MiB until then') > 1"
! grep -q astra "$work/out" || report "ASTRA without --groups"
expect "both" 0 "${tiny[@]}" --groups 4 --codebook-size 16 --devices 2 --profile; out "^astra:   the paper's recipe, 4 groups of 16 codewords, 2-2 devices"
out " ratio$"; out "linear  *backward"; out "nearest codewords  *forward"; out "noise moments  *around"; out "optimizer  *around"
out "^  inside products [0-9.]*% of a step, at [0-9.]*% of the best rate; outside [0-9.]*%$"
shares=$(sed -n 's/^  inside products \([0-9.]*\)% .* outside \([0-9.]*\)%$/\1 + \2/p' "$work/out" | head -n 1)
holds "($shares) > 99.8 && ($shares) < 100.2"
# The rows of the plain model, with what is between them, make up its mean step.
awk '/^plain / { on = 1; next } /^  mean step/ { seen = 1; bad = !(sum > 0 && sum - $NF < 2 && $NF - sum < 2); exit }
  on && NF > 5 { sum += /between operations/ ? $NF : $(NF - 1) } END { exit bad || !seen }' "$work/out" || report "rows that do not add up to a step"
expect "forward as JSON" 0 "${tiny[@]}" --forward --json
json '^\{"schema":1,"model":"model","image_size":16,"batch":4,"forward":true,"precision":"fp32","parameters":[0-9]+,"threads":2,.*"plain":\{"milliseconds":[0-9.]+,.*"training_mib":0\.0,.*\}\}$'
expect "a language model" 0 step --model gpt2-mini --context 32 --batch 2 --steps 1 --threads 1 -g 8 -k 16; out "gpt2-mini, 32 tokens, batch 2"; out "tokens per second"
expect "in bf16" 0 "${tiny[@]}" -g 4 -k 16 --precision bf16 --json; json '"precision":"bf16",.*"astra":\{'
expect "its length" 0 step --model gpt2-mini --length 32 --batch 1 --steps 1 --forward --threads 1; out "gpt2-mini, 32 tokens, batch 1"
expect "the same as JSON" 0 step --model llama-mini --context 16 --batch 1 --steps 1 --forward --json; json '"context":16,.*"tokens_per_second":[0-9.]+'
expect "images of a language model" 2 step --model gpt2-mini --image-size 32; err "--image-size is for images"
expect "both as JSON" 0 "${tiny[@]}" -g 4 -k 16 --image-size 32 --forward --profile --json; json '"image_size":32'; json '"astra":\{'; json '"ratio":[0-9.]+\}$'
! grep -q backward "$work/out" || report "a forward pass ran backward"

# Training on several machines, predicted; measured under mpirun in tests/network/train_ranks.sh.
scaling=(scaling --model vit-cifar --batch 2 --steps 1 --threads 1)
expect "scaling" 0 "${scaling[@]}" --ranks 1,64 --link 10mbit,1ms; out "^ *1 .* 100.0%"; out "^ *64 "; out "^ *ranks .* images/s  *efficiency$"
expect "scaling of a language model" 0 scaling --model gpt2-mini --context 32 --batch 2 --steps 1 --threads 1 --ranks 1; out "^ *ranks .* tokens/s  *efficiency$"
expect "more ranks than samples" 2 "${scaling[@]}" --ranks 1,4 --strong; err "every rank needs one of the 2 samples"
expect "nor by default" 0 "${scaling[@]}" --strong; out "^ *2 "; ! grep -q "^ *4 " "$work/out" || report "four ranks share two samples"
expect "scaling as JSON" 0 "${scaling[@]}" --batch 4 --ranks 1,2,4 --strong --link 1gbit,0.1ms --wire bf16 --shard-optimizer --json
json '"rows":\[\{"ranks":1,.*"efficiency":1\.0\},\{"ranks":2,"batch":2,.*\{"ranks":4,"batch":1,'
expect "a link without a latency" 2 "${scaling[@]}" --link 1gbit; err "1gbit,0.1ms"
expect "no ranks" 2 "${scaling[@]}" --ranks 0; err "from 1 to 4096"
expect "no batch to scale" 2 "${scaling[@]}" --batch 0 --strong; err "batch"; err "from 1 to 65536"
expect "no such model to scale" 2 scaling --model nosuch; err "no model is called 'nosuch'"

# Which kernels run; slower ones than the processor has are warned of, once, beside the results and not among them.
slowed() { [ "$(wc -l <"$work/slow")" = "$1" ] || report "$(wc -l <"$work/slow") warnings of slower kernels instead of $1"; }
unset OPENBLAS_CORETYPE ASTRA_KERNELS
expect "kernels" 0 "${tiny[@]}"; slowed 0
out "^machine: 2 threads, kernels [a-z0-9]*, .*BLAS kernels [A-Za-z0-9_]* (OpenBLAS [0-9][0-9.]*[^ ]*); "
fastest=$(sed -n 's/^machine: .*, kernels \([a-z0-9]*\),.*/\1/p' "$work/out") core=$(sed -n 's/^machine: .*BLAS kernels \([^ ]*\) .*/\1/p' "$work/out")
export ASTRA_KERNELS=portable
expect "portable kernels" 0 "${tiny[@]}" --json; json '"kernels":"portable"'; [ "$(wc -l <"$work/out")" = 1 ] || report "more than JSON"; silent err
if [ "$fastest" != portable ] || grep -q asimddp /proc/cpuinfo; then slowed 1; grep -q "ASTRA_KERNELS=portable; unset it" "$work/slow" || report "the warning does not name it"; else slowed 0; fi
unset ASTRA_KERNELS
export OPENBLAS_CORETYPE=Prescott # of every x86-64 processor, where OpenBLAS can choose at all
expect "Prescott" 0 "${tiny[@]}"; silent err
if grep -q 'BLAS kernels Prescott ' "$work/out" && [ "$fastest" != portable ]; then
  slowed 1; grep -q "OPENBLAS_CORETYPE=Prescott; unset it" "$work/slow" || report "the warning does not name it"
else
  slowed 0
fi
if [ "$core" != Prescott ]; then # which an OpenBLAS older than the processor chooses, and a name in the environment is all that the warning knows
  export OPENBLAS_CORETYPE=$core
  expect "those that OpenBLAS chooses" 0 "${tiny[@]}"; slowed 0
fi
unset OPENBLAS_CORETYPE

[ $failed = 0 ] && echo "astra-bench: command line and figures as expected"
exit $failed
