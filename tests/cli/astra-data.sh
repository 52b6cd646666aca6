#!/bin/bash
# astra-data from outside: exit codes and the lines people rely on. Usage: tests/cli/astra-data.sh; needs no network.
. tests/cli/helpers.sh astra-data
sample=$root/datasets/enwiki-sample

expect "help" 0 --help; out "^usage: astra-data"; out "^  get "; out "^  list "; out "^  show "; out "Exit codes"; silent err
[ "$(wc -l <"$work/out")" -le 24 ] || report "--help does not fit a screen"
expect "short help" 0 -h; out "^usage: astra-data"
expect "version" 0 --version; out "^astra-data [0-9]*\.[0-9]*\.[0-9]*$"
for command in get list show tokenizer encode decode; do
  expect "help of $command" 0 $command --help; out "^usage: astra-data $command"; out "--json"; silent err
done

expect "nothing" 2; err "no command given"; err "get, list, show"; silent out
expect "unknown command" 2 fetch; err "unknown command 'fetch'"; err "get, list, show"
expect "unknown name" 2 get cifar1000; err "'cifar1000' is not in the catalogue"; err "cifar100, cifar10, vit-base"; silent out
expect "no name" 2 get; err "no NAME"
expect "second name unknown: nothing is fetched" 2 get cifar100 nonsense; err "nonsense"
[ ! -e "$ASTRA_HOME" ] || report "something was made"
expect "unknown option" 2 list --colour; err "--colour"
expect "unexpected argument" 2 list cifar100; err 'unexpected argument "cifar100"'
expect "bad choice" 2 show cifar100 --part middle; err "--part"; err "train"
expect "bad number" 2 show cifar100 --count many; err "--count"; err "1 to 64"
expect "two sets" 2 show a b; err "one DATASET"
expect "unknown set" 2 show mnist; err "mnist"; err "cifar100"
expect "missing set" 1 show cifar100; err "is not installed"; err "astra-data get cifar100"; err "--data-dir"; silent out
expect "unwritable place" 1 get cifar100 --dir /dev/null/x; err "/dev/null"

expect "list" 0 list; out "^cifar100  *datasets"; out "^vit-base  *checkpoints"; out "not stored here"
mkdir -p "$ASTRA_HOME/checkpoints/vit-tiny"
touch "$ASTRA_HOME/checkpoints/vit-tiny/"{config.json,preprocessor_config.json}
expect "list, half of it there" 0 list --json; tail -n 1 "$work/out" | grep -q '"name":"vit-tiny",[^}]*"stored":null' || report "half a checkpoint counts"
touch "$ASTRA_HOME/checkpoints/vit-tiny/model.safetensors"
expect "list, stored" 0 list; out "stored in $ASTRA_HOME/checkpoints/vit-tiny"
mkdir -p "$ASTRA_HOME/checkpoints/"{empty,no_model} "$work/mine"
printf '{"weights": 1}' >"$ASTRA_HOME/checkpoints/no_model/config.json"; touch "$ASTRA_HOME/checkpoints/no_model/model.safetensors"
cp -r "$root/checkpoints/vit-cifar-g8" "$work/mine/mine-g8"
expect "list, installed" 0 list --data-dir "$work/mine"
out "^mine-g8  *checkpoints  *ViT, 6 blocks of width 192, 100 classes; 8 groups, 4 devices"; out "stored in $work/mine/mine-g8"
out "^gpt2-mini  *checkpoints  *GPT-2, 6 blocks of width 256$"
! grep -q "^no_model\|^empty " "$work/out" || report "a folder without a model is listed"
[ "$(grep -c "^vit-tiny " "$work/out")" = 1 ] || report "what can be fetched is listed twice"
mkdir "$work/mine/vit-cifar" # --model vit-cifar would find it first
expect "list, hidden" 0 list --data-dir "$work/mine"; ! grep -q "^vit-cifar " "$work/out" || report "a name is listed that finds something else"
expect "list, installed, as JSON" 0 list --data-dir "$work/mine" --json
jq -e --arg in "$work/mine/mine-g8" '.items[] | select(.name == "mine-g8" and .stored == $in and .kind == "checkpoints" and .licence == null)' \
  "$work/out" >/dev/null || report "the installed checkpoint is not in the JSON"
expect "get what is there" 0 get vit-tiny --json; err "there already"; tail -n 1 "$work/out" | grep -q '^{"schema":1,"items":\[{"name":"vit-tiny"' || report "no JSON at the end"
expect "the same, quietly" 0 get -q vit-tiny; silent err

# Two records of CIFAR-100: coarse label, fine label, 3072 bytes of pixels.
mkdir -p "$work/set"
{ printf '\001\007'; head -c 3072 /dev/zero; printf '\002\011'; head -c 3072 /dev/zero | tr '\0' '\377'; } >"$work/set/test.bin"
expect "show" 0 show cifar100 --data-dir "$work/set" --part test --sheet "$work/sheet.png"
out "2 images of 32x32"; out "^       1  LABEL_7$"; out "^       0  LABEL_8$"; out "^sheet of 2 images"
expect "show as JSON" 0 show cifar100 --data-dir "$work/set" --part test --json
tail -n 1 "$work/out" | grep -q '^{"schema":1,"dataset":"cifar100","part":"test".*"images":2.*"broken":0.*}$' || report "no JSON at the end"
[ "$(head -c 4 "$work/sheet.png" | tail -c 3)" = PNG ] || report "the sheet is no PNG"
ln -s sheet.png "$work/linked.png"; mkfifo "$work/pipe.png"
expect "a sheet in place of a directory" 1 show cifar100 --data-dir "$work/set" --part test --sheet "$work"; err "it is a directory; give the name of a file"; silent out
expect "a folder that is not there" 2 show cifar100 --data-dir "$work/absent"; err "--data-dir .*/absent: there is no such directory"
expect "a sheet behind a link" 0 show cifar100 --data-dir "$work/set" --part test --sheet "$work/linked.png"
[ -L "$work/linked.png" ] || report "the link was replaced"
expect "a sheet that is a pipe" 1 show cifar100 --data-dir "$work/set" --part test --sheet "$work/pipe.png"; err "pipe.png is a device or a pipe"
[ -p "$work/pipe.png" ] || report "it was replaced"
expect "sheet in no folder" 1 show cifar100 --data-dir "$work/set" --part test --sheet "$work/none/sheet.png"; err "none/sheet.png"; ! grep -q LABEL_7 "$work/out" || report "it read the data set before it looked"
head -c 3000 /dev/zero >"$work/set/test.bin"
expect "cut file" 1 show cifar100 --data-dir "$work/set" --part test; err "test.bin"; err "3000"

# A folder of images, one of them broken: named, counted, not fatal.
mkdir -p "$work/pictures/"{train,test}/{black,bad}
for part in train test; do cp "$work/sheet.png" "$work/pictures/$part/black/a.png"; done
cp "$work/sheet.png" "$work/pictures/train/bad/c.png"
echo "no image" >"$work/pictures/test/bad/b.png"
expect "broken image" 0 show "folder:$work/pictures" --part test; out "^broken: .*bad/b.png"; out "^1 of 2 images cannot be read and is left out of evaluations$"
cp "$work/pictures/test/bad/b.png" "$work/pictures/train/bad"
expect "broken image to learn from" 0 show "folder:$work/pictures"; out "^1 of 3 images cannot be read and is skipped in training$"
# Text: a corpus with a part cut off, labelled rows, and what is wrong with them.
seq -f "line number %g" 1 100 >"$work/numbers.txt"
expect "corpus" 0 show "text:$work/numbers.txt"; out "^train text, 1 file, from .* (without its last 5%)$"; out "^begins with \"line number 1 line"; out "^1 document, 95 lines, 285 words"
expect "corpus as JSON" 0 show "text:$work/numbers.txt" --json
tail -n 1 "$work/out" | grep -q '^{"schema":1,"dataset":"text:.*"documents":1,"lines":95,"words":285,"bytes":[0-9]*}$' || report "no JSON at the end"
expect "its other part" 0 show "text-lines:$work/numbers.txt" --part test; out "^5 documents, 5 lines, 15 words, 71 bytes$"
mkdir "$work/parts"
for part in train:1 valid:2 test:3; do seq "${part#*:}" >"$work/parts/${part%:*}.txt"; done
expect "the test part" 0 show "text:$work/parts" --part test; out "^test text"; out "^1 document, 3 lines, 3 words, 6 bytes$"
expect "the training part" 0 show "text:$work/parts" --part train; out "^1 document, 1 line, 1 word, 2 bytes$"
rm "$work/parts/test.txt"
expect "no test file" 0 show "text:$work/parts" --part test; out "^1 document, 2 lines, 2 words, 4 bytes$"
expect "no such corpus" 1 show "text:$work/none"; err "no text at $work/none"
expect "no corpus of that name" 1 show "text:wikitext-none"; err "$ASTRA_HOME/datasets/wikitext-none"
printf 'a\0b' >"$work/nul.txt"
expect "no text" 1 show "text:$work/nul.txt"; err "nul.txt, line 1: a NUL byte"
for option in --count --seed; do expect "$option without a sheet" 2 show cifar100 --data-dir "$work/set" $option 3; err "$option is of the sheet of images"; done
expect "no images" 2 show "text:$work/numbers.txt" --sheet x.png; err "--sheet"
printf 'body,kind\n"one, two",good\nthree,bad\n' >"$work/rows.csv"
expect "labelled rows" 0 show "csv:$work/rows.csv:text=body:label=kind:test=$work/rows.csv"; out "CSV train, 2 texts, 2 classes"; out '^       1  good  *"one, two"$'
expect "labelled rows as JSON" 0 show "csv:$work/rows.csv:text=body:label=kind:test=$work/rows.csv" --json
tail -n 1 "$work/out" | grep -q '"classes":\[{"label":"bad","count":1},{"label":"good","count":1}\]' || report "no JSON at the end"
expect "column that is missing" 1 show "csv:$work/rows.csv:text=words:label=kind"; err "rows.csv, line 1: no column \"words\""
mkdir -p "$ASTRA_HOME/datasets/wikitext-2/wikitext-2"
expect "list, text stored" 0 list; out "stored in $ASTRA_HOME/datasets/wikitext-2"

# A tokenizer from text, plain and packed; the merges follow from counting by hand: "ab" four times, "abab" twice, then nothing twice but " abab".
printf 'abab abab\n' >"$work/text.txt"
gzip -c "$work/text.txt" >"$work/more.txt.gz"
expect "tokenizer" 0 tokenizer --vocab 259 --out "$work/tokenizer" "$work/text.txt" "$work/more.txt.gz"
out "tokenizer of 259 pieces, trained on 20 bytes"; err "merging 100% 2/2"
expect "tokenizer as JSON" 0 tokenizer --overwrite --vocab 259 --out "$work/tokenizer" "$work/text.txt" "$work/more.txt.gz" --json
tail -n 1 "$work/out" | grep -q '^{"schema":1,"out":".*/tokenizer","pieces":259,"bytes":20,.*"fingerprint":"[0-9a-f]\{64\}"' || report "no JSON at the end"
[ "$(cat "$work/tokenizer/merges.txt")" = $'#version: 0.2\na b\nab ab' ] || report "the merges are not those expected"
grep -q '"<|endoftext|>": 258' "$work/tokenizer/vocab.json" || report "end of text is not the last piece"
grep -q '"type": "BPE"' "$work/tokenizer/tokenizer.json" || report "tokenizer.json lacks its model"
expect "tokenizer over another" 1 tokenizer -q -v 259 -o "$work/tokenizer" "$work/text.txt"; err "holds finished work already (merges.txt)"
for file in tok512.bin tokenizer.model vocab.bpe; do # tokenizer.json would be taken before them
  mkdir "$work/of-$file" && touch "$work/of-$file/$file"
  expect "tokenizer over $file" 1 tokenizer -q -v 259 -o "$work/of-$file" "$work/text.txt"; err "holds finished work already ($file)"
  [ "$(ls "$work/of-$file")" = "$file" ] || report "it left $(ls "$work/of-$file")"
done
mkdir "$work/tokenizer/additional_chat_templates"
for file in tokenizer_config.json chat_template.jinja added_tokens.json additional_chat_templates/mine.jinja; do echo before >"$work/tokenizer/$file"; done
expect "tokenizer, quietly" 0 tokenizer -q -v 259 -o "$work/tokenizer" --overwrite "$work/text.txt"; silent err
[ "$(ls "$work/tokenizer" | xargs)" = "merges.txt tokenizer.json vocab.json" ] || report "it left $(ls "$work/tokenizer")"
# The bundled text: enough for the usual vocabulary, and the same files each time.
expect "tokenizer of the bundled text" 0 tokenizer --out "$work/sample" "$sample/train.txt" "$sample/valid.txt"
out "tokenizer of 4096 pieces, trained on 464677 bytes"; err "counting 100% 2/2"; err "merging 100% 3839/3839"
[ "$(wc -l <"$work/sample/merges.txt")" = 3840 ] || report "merges.txt has not a line for each merge and its heading"
expect "and again" 0 tokenizer -q -o "$work/same" "$sample/train.txt" "$sample/valid.txt"; silent err
for file in vocab.json merges.txt tokenizer.json; do cmp -s "$work/sample/$file" "$work/same/$file" || report "$file is another one"; done
expect "the bundled text" 0 show "text:$sample" --part test; out "^1 document, .* 77781 bytes$"
expect "tokenizer, too little text" 1 tokenizer --out "$work/none" "$work/text.txt"; err "it allows 25[0-9]"; [ ! -e "$work/none" ] || report "something was made"
expect "tokenizer of a missing file" 1 tokenizer --out "$work/none" "$work/nothing.txt"; err "nothing.txt"
mkdir "$work/own"; expect "tokenizer in a folder that is there" 1 tokenizer --out "$work/own" "$work/nothing.txt"; [ -d "$work/own" ] || report "the folder is gone"
expect "tokenizer of a folder" 1 tokenizer --out "$work/none" "$work"; err "directory"
expect "tokenizer to nowhere" 2 tokenizer "$work/text.txt"; err "--out"
expect "tokenizer to a file" 1 tokenizer --out "$work/text.txt/none" "$work/text.txt"; err "out .*text.txt/none"
! grep -q "counting" "$work/err" || report "it trains before it looks at --out"
expect "tokenizer of nothing" 2 tokenizer --out "$work/none"; err "no FILE"
expect "tokenizer too small" 2 tokenizer --vocab 256 --out "$work/none" "$work/text.txt"; err "--vocab"; err "257 to 1000000"
# Ids of texts, and texts of ids. The vocabulary of 259: bytes in GPT-2's order, then ab (256), abab (257), <|endoftext|> (258).
expect "the tokenizer of an installed checkpoint" 0 encode --tokenizer gpt2-mini "The history"; silent err
expect "encode" 0 encode --tokenizer "$work/tokenizer" "abab ab"; silent err
[ "$(cat "$work/out")" = "257 220 256" ] || report "not the ids expected"
expect "encode, a line each" 0 encode -t "$work/tokenizer/vocab.json" --lines --end abab ab
[ "$(cat "$work/out")" = $'257\n220\n256\n258' ] || report "not the ids expected"
expect "special tokens are text" 0 encode -t "$work/tokenizer" "ab<|endoftext|>"; [ "$(wc -w <"$work/out")" = 14 ] || report "not 14 ids"
expect "special tokens" 0 encode -t "$work/tokenizer" --special "ab<|endoftext|>"; out "^256 258$"
expect "encode as JSON" 0 encode -t "$work/tokenizer" --json "abab"; json '^\{"schema":1,"ids":\[257\],"tokens":1,"bytes":4,"vocabulary":259,"fingerprint":"[0-9a-f]{64}"\}$'
expect "decode" 0 decode -t "$work/tokenizer" 257 220 256; printf 'abab ab' | cmp -s - "$work/out" || report "not the text expected"
expect "decode a JSON list" 0 decode -t "$work/tokenizer" "[257, 220,256]"; printf 'abab ab' | cmp -s - "$work/out" || report "not the text expected"
expect "half a character as JSON" 0 decode -t "$work/tokenizer" --json 256 "$("$program" encode -t "$work/tokenizer" $'\xc3')"; out $'"text":"ab\xef\xbf\xbd"'
printf '%b' "$(awk 'BEGIN { srand(1); for (i = 0; i < 3000; i++) printf "\\0%03o", int(256 * rand()) }')" >"$work/bytes"
input=$work/bytes expect "any bytes" 0 encode -t "$work/sample"; cp "$work/out" "$work/ids"
input=$work/ids expect "and back" 0 decode -t "$work/sample"; cmp -s "$work/bytes" "$work/out" || report "not the bytes that were encoded"
expect "encode a file" 0 encode -t "$work/sample" --file "$work/bytes"; cmp -s "$work/ids" "$work/out" || report "not the ids of standard input"
expect "encode nothing" 0 encode -t "$work/sample"; [ -z "$(cat "$work/out")" ] || report "ids of no text"
expect "encode with a checkpoint" 0 encode -t "$root/checkpoints/gpt2-mini" "The history of the city"; cp "$work/out" "$work/ids"
expect "and back" 0 decode -t "$root/checkpoints/gpt2-mini" -f "$work/ids"; [ "$(cat "$work/out")" = "The history of the city" ] || report "another text"
expect "encode without a tokenizer" 2 encode text; err "--tokenizer PATH"
expect "encode with none there" 1 encode -t "$work/nothing" text; err "nothing"
expect "encode two things" 2 encode -t "$work/sample" -f "$work/bytes" text; err "cannot be combined"
expect "encode a missing file" 1 encode -t "$work/sample" -f "$work/nothing"; err "nothing"
expect "no begin" 1 encode -t "$work/sample" --begin text; err "--begin"
expect "no id" 1 decode -t "$work/tokenizer" 256 259; err "'259' is no id"; err "0 to 258"
expect "no number" 1 decode -t "$work/tokenizer" 1x; err "'1x' is no id"
# The texts of the models' own tokenizers, each against the ids of its line.
vectors=$root/tests/golden/tokenizers
mkdir -p "$work/gpt2"
for file in encoder.json vocab.bpe; do gzip -dc "$vectors/gpt2/$file.gz" >"$work/gpt2/$file"; done
awk -v to="$work/case." 'BEGIN { n = 1 } /^__ggml_vocab_test__$/ { if (held) printf "%s", text >(to n); else printf "" >(to n); close(to n); n++; held = 0; text = ""; next }
  { text = held ? text "\n" $0 : $0; held = 1 }' "$vectors/cases.inp"
total=$(wc -l <"$vectors/gpt2.out")
for i in 1 2 3 4 11 16 19 20 22 30 40 "$total"; do # each loads the tokenizer: a dozen of them show that the command does what the library does
  expect "vector $i" 0 encode -t "$work/gpt2" -f "$work/case.$i"
  [ "$(cat "$work/out")" = "$(sed -n "${i}s/^ *//;${i}s/ *$//p" "$vectors/gpt2.out")" ] || report "not the ids of line $i"
done
name="full output"; "$program" list >/dev/full 2>"$work/err"; [ $? = 1 ] || report "a full disk under stdout is not noticed"; err "standard output"

[ $failed = 0 ] && echo "astra-data: command line as expected"
exit $failed
