#!/bin/bash
# The chat template goes with a checkpoint: astra-train and astra-quantize keep its files, of a GGUF file its own template, and a chat uses
# it.
# Usage: tests/cli/chat-template.sh; programs in $BUILD/bin (build/bin). limit: 120
stories=$PWD/tests/golden/stories260K
. tests/cli/helpers.sh astra-train
maker=$(realpath "$root/${BUILD:-build}/tests/infer/make_gguf")
cp -R "$stories" model
printf '{"bos_token": "<s>", "chat_template": "{{ raise_exception(\x27this template was used\x27) }}"}' >model/tokenizer_config.json
for _ in $(seq 400); do echo "Once upon a time there was a little girl who liked to play in the park."; done >text.txt

expect "a training" 0 --model model --init model --dataset text:text.txt --groups 0 --context 32 --max-steps 1 --out tuned --quiet
cmp -s model/tokenizer_config.json tuned/tokenizer_config.json || report "tokenizer_config.json is not beside the new checkpoint"
printf '{{ raise_exception("the file was used") }}' >tuned/chat_template.jinja
mkdir tuned/additional_chat_templates && printf '{{ raise_exception("the named file was used") }}' >tuned/additional_chat_templates/tools.jinja
expect "it goes on" 0 --resume tuned --max-steps 2 --quiet
mkdir -p "$ASTRA_HOME/checkpoints" && cp -R model "$ASTRA_HOME/checkpoints/somebodys-chat"
cp -R "$stories" bare
expect "with the tokenizer of an installed checkpoint" 0 --model bare --tokenizer somebodys-chat --dataset text:text.txt --groups 0 --context 32 --max-steps 1 --out named --quiet
cmp -s model/tokenizer_config.json named/tokenizer_config.json || report "tokenizer_config.json is not beside the new checkpoint"
expect "with that of a file" 0 --model bare --tokenizer model/tok512.bin --dataset text:text.txt --groups 0 --context 32 --max-steps 1 --out filed --quiet
cmp -s model/tokenizer_config.json filed/tokenizer_config.json || report "tokenizer_config.json is not beside the new checkpoint"
mkdir one-file && "$maker" "$stories" one-file/model.gguf F32 "{{ raise_exception('of the GGUF file, ' ~ bos_token) }}" || exit 1
cp model/tokenizer_config.json one-file/
echo "{{ raise_exception('a file beside it') }}" >one-file/chat_template.jinja
expect "from a GGUF file" 0 --model one-file/model.gguf --dataset text:text.txt --groups 0 --context 32 --max-steps 1 --out of-gguf --quiet
[ ! -e of-gguf/chat_template.jinja ] || report "a file beside the GGUF file was taken for its template"
run "quantised" 0 "$bin/astra-quantize" --checkpoint tuned --out small
for file in tokenizer_config.json chat_template.jinja; do cmp -s tuned/$file small/$file || report "$file is not beside the quantised checkpoint"; done
named=additional_chat_templates/tools.jinja
cmp -s tuned/$named small/$named || report "$named is not beside the quantised checkpoint"
expect "from a checkpoint with a template that has a name" 0 --model tuned --init tuned --dataset text:text.txt --groups 0 --context 32 --max-steps 1 --keep-best --out again --quiet
for folder in again again/best; do cmp -s tuned/$named $folder/$named || report "$named is not in $folder"; done
echo more >small/additional_chat_templates/rag.jinja
run "quantised again" 0 "$bin/astra-quantize" --checkpoint tuned --out small --overwrite
[ "$(ls small/additional_chat_templates)" = tools.jinja ] || report "templates of the checkpoint before are left: $(ls small/additional_chat_templates)"
cp -R small stale && echo more >stale/$named
run "quantised, without templates" 0 "$bin/astra-quantize" --checkpoint model --out stale --overwrite
[ ! -e stale/additional_chat_templates ] || report "templates of the checkpoint before are left: $(ls stale/additional_chat_templates)"
mkdir apart && cp -R tuned apart/adapter && ln -s ../apart small/best # what lies behind a link may be kept for something else
run "quantised beside a link" 0 "$bin/astra-quantize" --checkpoint tuned --out small --overwrite
[ ! -e small/best ] && cmp -s tuned/$named apart/adapter/$named || report "what lies behind the link is gone"
rm -r again/training
run "quantised from the best one in it" 0 "$bin/astra-quantize" --checkpoint again/best --out again --overwrite
for folder in again again/best; do cmp -s tuned/$named $folder/$named || report "$named is not in $folder any more"; done
echo hello >line; input=line
run "a chat" 1 "$bin/astra-chat" -c model -n 1; err "this template was used"
run "a chat with the file" 1 "$bin/astra-chat" -c small -n 1; err "the file was used"
run "a chat with the file by its name" 1 "$bin/astra-chat" -c small -n 1 --chat-template default; err "the file was used"
run "a chat with a named file" 1 "$bin/astra-chat" -c small -n 1 --chat-template tools; err "the named file was used"
run "a chat with a template that is not there" 1 "$bin/astra-chat" -c small -n 1 --chat-template rag; err "neither a file additional_chat_templates/NAME.jinja"
run "a chat with a path for a name" 1 "$bin/astra-chat" -c small -n 1 --chat-template ../rag; err "a name is wanted, no path"
run "a chat with what was trained from a GGUF file" 1 "$bin/astra-chat" -c of-gguf -n 1; err "of the GGUF file, <s>"
[ $failed = 0 ] && echo "chat templates: kept and used"
exit $failed
