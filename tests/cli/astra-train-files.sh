#!/bin/bash
# What a training leaves when something goes wrong with its files: what a killed run was writing is removed by the next one, and a curve that
# cannot be drawn does not end a run.
. tests/cli/helpers.sh astra-train
picture=$root/datasets/pictures/apple_0614.png
for class in a b; do mkdir -p "pictures/$class"; for i in 1 2 3 4 5 6; do cp "$picture" "pictures/$class/$i.png"; done; done
data=(--model vit-cifar --dataset "folder:$work/pictures" --batch 2 --groups 0 --threads 1)

# ---- a run that was killed while it wrote; a file that is being written, and one that is none of ours
mkdir -p run/training
head -c 3000000 /dev/zero >run/model.safetensors.tmp-123
head -c 1000 /dev/zero >run/training/state.safetensors.tmp-99999999
: >run/notes.tmp-old
: >run/metrics.csv.tmp-77
exec 5<run/metrics.csv.tmp-77
flock -x 5
expect "a first run" 0 "${data[@]}" --max-steps 1 --out run
err "run: removed 1 unfinished file (3.0 MB) of a run that was killed"; err "run/training: removed 1 unfinished file"
[ ! -e run/model.safetensors.tmp-123 ] && [ ! -e run/training/state.safetensors.tmp-99999999 ] || report "unfinished files are left"
[ -e run/notes.tmp-old ] && [ -e run/metrics.csv.tmp-77 ] || report "files are gone that are not abandoned"
exec 5<&-
expect "one that goes on" 0 --resume run --max-steps 2
[ ! -e run/metrics.csv.tmp-77 ] && [ -e run/notes.tmp-old ] || report "what is not locked any more is left"

# ---- a plot that cannot be written: a directory has its name
rm run/curves.png; mkdir run/curves.png
expect "no plot" 0 --resume run --max-steps 4; err "warning: cannot write run/curves.png: .*; the run goes on, and draws again later"
rmdir run/curves.png
expect "a plot again" 0 --resume run --max-steps 5
[ -s run/curves.png ] || report "there is no plot"
# ---- a table of answers that cannot be written: a directory has its name
mkdir -p answers/confusion.png
expect "no table of answers" 0 "${data[@]}" --max-steps 2 --eval-every 1 --out answers; err "warning: cannot write answers/confusion.png: .*; the run goes on, and tries again later"
[ "$(grep -c 'cannot write answers/confusion.png' "$work/err")" = 1 ] || report "it is said for each evaluation"
rmdir answers/confusion.png
expect "a table again" 0 --resume answers --max-steps 3
[ -s answers/confusion.png ] || report "there is no table"

# ---- a run that goes on with other data: held-out samples would be learnt from
# resume_refused RUN NAME PARTS
resume_refused() { expect "$1, on other data" 1 --resume "$1" --max-steps 3; err "error: --$2 holds other data ($3 part) than when the run was saved in $1/training/state.safetensors: put back"; err "with --init $1 and another --out$"; }
cp -r run older # without the digest, as states of before
sed -i 's/"data":/"dota":/' older/training/state.safetensors; unseal older/training/state.safetensors
cp "$picture" pictures/a/7.png
resume_refused run "dataset folder:$work/pictures" "training"
mv pictures/a/7.png pictures/a/0.png # before those that were there: another one is the fifth
resume_refused run "dataset folder:$work/pictures" "training and test"
expect "a run that does not know" 0 --resume older --max-steps 6
rm pictures/a/0.png
expect "the data that it had" 0 --resume run --max-steps 6
mv pictures moved && ln -s moved pictures
expect "moved data" 0 --resume run --max-steps 7 --eval-samples 1
rm pictures && mv moved pictures

words() { seq -f 'a %g b' "$1" "$2"; }
words 1 300 >learnt.txt; words 1 60 >heard.txt; { printf 'sentence\tlabel\n'; for i in $(seq 20); do printf 'text %s\t%s\n' "$i" $((i / 2 % 2)); done; } >rows.tsv
texts=(--model llama-mini --tokenizer "$root/tests/golden/stories260K" --init random --blocks 1 --groups 0 --context 16 --batch 2 --max-steps 1 --eval-samples 2 --threads 1 -q)
expect "a text" 0 "${texts[@]}" --dataset text:learnt.txt --out text; expect "and another" 0 "${texts[@]}" --dataset text:learnt.txt --eval-dataset text:heard.txt --out apart
expect "labelled texts" 0 "${texts[@]}" --dataset tsv:rows.tsv:text=sentence --out rows
words 1 61 >heard.txt; resume_refused apart "eval-dataset text:heard.txt" "valid"
words 2 301 >learnt.txt; resume_refused text "dataset text:learnt.txt" "training and valid"
sed -i 's/text 1\t/taxt 1\t/' rows.tsv; resume_refused rows "dataset tsv:rows.tsv:text=sentence" "training"
sed -i 's/taxt 1\t/text 1\t/' rows.tsv; expect "its own again" 0 --resume rows --max-steps 2

# ---- a run that goes on in another directory than it was begun in
mkdir begun-here && cd begun-here || exit 1
expect "with relative paths" 0 "${data[@]}" --dataset folder:../pictures --max-steps 1 --out own -q
grep -qxF "# begun in $(pwd -P)" own/training/options.txt || report "options.txt does not say where"
cd ..
expect "where they lead nowhere" 1 --resume begun-here/own --max-steps 2
err "error: --resume begun-here/own: relative paths in its options are of .*/begun-here, where the run was begun; resume it there: folder:../pictures: there is no such folder"
cd begun-here || exit 1
expect "where it was begun" 0 --resume own --max-steps 2 -q; grep -qxF "# begun in $(pwd -P)" own/training/options.txt || report "options.txt does not say where any more"
sed -i '/^# /d' own/training/options.txt
expect "a run that did not say where" 0 --resume own --max-steps 3 -q; ! grep -q "begun in" own/training/options.txt || report "it says where, and does not know"
cd ..

# ---- a run in the place of another one: TensorBoard would show both
expect "in its place" 0 "${data[@]}" --max-steps 1 --out answers --overwrite -q
[ "$(find answers -name 'events.out.tfevents.*' | wc -l)" = 1 ] || report "events of the run before are left"

# ---- a state whose checkpoint was never written
mkdir -p begun && cp -r answers/training begun
expect "where a run has begun" 1 "${data[@]}" --max-steps 1 --out begun; err "begun holds a training whose checkpoint has not been written: .astra-train --resume begun. goes on with it"
[ -s begun/training/state.safetensors ] || report "the state is gone"
expect "begun anew" 0 "${data[@]}" --max-steps 1 --out begun --overwrite -q

# ---- a command line that --resume could not read again
# shellcheck disable=SC2046
expect "too many arguments" 2 "${data[@]}" $(yes -- '--seed 1' | head -n 110) --out never; err "arguments and [0-9]* bytes can be remembered for --resume"
[ ! -e never ] || report "it has begun"

# ---- a run that found --out free, and then another one trained there to its end
# It waits before it takes the lock: its first messages go to a pipe that is full.
mkfifo messages
exec 6<>messages
timeout 20 dd if=/dev/zero of=/proc/self/fd/6 bs=4096 count=100000 oflag=nonblock 2>dd.err
sleeps() { [[ $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) =~ ^S ]]; }
"$program" "${data[@]}" --max-steps 1 --out late >late.out 2>&6 6>&- </dev/null &
late=$!
for _ in $(seq 100); do # asleep in two looks one after the other: it has come to its messages
  sleep 0.2; sleeps $late || continue
  sleep 0.2; sleeps $late && break
done
[ ! -e late/training/lock ] || report "it has the lock already"
expect "the earlier one" 0 "${data[@]}" --max-steps 1 --seed 2 --out late -q
cp late/model.safetensors earlier.safetensors
cat <&6 >late.err & reader=$!
wait $late
got=$?
refused='error: --out late holds finished work already (.*), which would be replaced: give another --out'
for _ in $(seq 50); do grep -aq "$refused" late.err && break; sleep 0.1; done
kill $reader
[ $got = 1 ] || report "exit code $got of the later one"
grep -aq "$refused" late.err || report "it does not say what it found"
cmp -s late/model.safetensors earlier.safetensors || report "the earlier one's checkpoint is gone"
exit $failed
