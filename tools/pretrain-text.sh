#!/bin/bash
# Trains a plain language model of about 14 M parameters from scratch, in bf16 where that is faster: gpt2 (width 384, 7 blocks, 6 heads) or
# llama (width 384, 8 blocks, 6 heads with 2 for keys and values, rotary positions).
#   tools/pretrain-text.sh gpt2|llama TEXT_DIR OUT_DIR [EPOCHS [OPTION...]]
# TEXT_DIR holds train.txt or train.txt.gz, of which a part is held out by a fixed rule: the log, metrics.csv and OUT_DIR/best go by that, and
# TEXT_DIR/valid.txt is not read. 12 epochs unless given. Options go to astra-train as they are, and the last of two counts (--precision fp32,
# --drop-path 0.2). Started again with the same OUT_DIR, it goes on where it was stopped, with the options that it was started with.
# TOKENIZER names a tokenizer (that of checkpoints/gpt2-mini, 4,096 pieces), SEED the seed (42), THREADS the threads (all cores), BUILD the
# build folder. It runs at low priority (nice).
#
# OUT_DIR has the averaged weights of the last step, OUT_DIR/best those of the best evaluation, OUT_DIR/valid.json what the best ones reach on
# the part that is held out. Once the recipe is chosen:  astra-infer eval -c OUT_DIR/best --dataset text:TEXT_DIR/valid.txt --nodes 1
# The tables llama15m-* of astra-bench accuracy begin with DATA_DIR/llama-15m: a copy of or a link to the llama's OUT_DIR/best.
set -euo pipefail
usage() { echo "usage: $0 gpt2|llama TEXT_DIR OUT_DIR [EPOCHS [OPTION...]]" >&2; exit 2; }
[ $# -ge 3 ] || usage
kind=$1 text=$(realpath "$2") out=$(realpath -m "$3") epochs=${4:-12}
[[ $epochs =~ ^[1-9][0-9]*$ ]] || { echo "$0: EPOCHS is '$epochs'; a whole number from 1 is accepted" >&2; exit 2; }
shift $(($# < 4 ? $# : 4))
cd "$(dirname "$0")/.."
bin=${BUILD:-build}/bin tokenizer=${TOKENIZER:-checkpoints/gpt2-mini}
train=$text/train.txt
[ -e "$train" ] || train=$text/train.txt.gz
[ -e "$train" ] || { echo "$0: $text has neither train.txt nor train.txt.gz" >&2; exit 1; }
case $kind in
gpt2) config='{"model_type": "gpt2", "vocab_size": 4096, "n_embd": 384, "n_layer": 7, "n_head": 6, "n_inner": 1536, "n_positions": 512,
 "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": true}' ;;
llama) config='{"model_type": "llama", "vocab_size": 4096, "hidden_size": 384, "num_hidden_layers": 8, "num_attention_heads": 6,
 "num_key_value_heads": 2, "intermediate_size": 1024, "max_position_embeddings": 512, "rope_theta": 10000, "rms_norm_eps": 1e-5,
 "hidden_act": "silu", "tie_word_embeddings": true}' ;;
*) usage ;;
esac

if [ ! -f "$out/valid.json" ]; then
  if [ -f "$out/training/state.safetensors" ]; then
    nice "$bin/astra-train" --resume "$out" --threads "${THREADS:-0}"
  else
    mkdir -p "$out/described" # stays: a run that goes on reads it again
    echo "$config" >"$out/described/config.json"
    nice "$bin/astra-train" --model "$out/described" --init random --tokenizer "$tokenizer" --groups 0 --dataset "text:$train" --context 512 \
      --epochs "$epochs" --batch 16 --precision auto --learning-rate 1.5e-3 --warmup 300 --rate-floor 0.02 --weight-decay 0.1 --beta2 0.99 \
      --drop-path 0.1 --ema-decay 0.999 --keep-best --eval-samples 256 --log-every 50 --checkpoint-every 250 --threads "${THREADS:-0}" \
      --seed "${SEED:-42}" --out "$out" --overwrite "$@"
  fi
  best=$out/best
  [ -e "$best" ] || best=$out
  nice "$bin/astra-infer" eval --checkpoint "$best" --dataset "text:$train" --eval-part valid --nodes 1 --json | tail -n 1 >"$out/valid.json.part"
  mv "$out/valid.json.part" "$out/valid.json"
fi
sed -E 's/.*"perplexity":([0-9.]+).*"bits_per_byte":([0-9.]+).*/held out: perplexity a token \1, \2 bits a byte/' "$out/valid.json"
