#!/bin/bash
# make install into a folder with spaces in its name, and uninstall: programs that run, with their data, and nothing that stays.
. tests/cli/helpers.sh astra-infer
to="$work/to there" prefix="/opt/a b"
there="$to$prefix"
name=install
make -C "$root" -s -o all BUILD="${BUILD:-build}" DESTDIR="$to" PREFIX="$prefix" install >"$work/out" 2>"$work/err" || report "exit code $?"
"$there/bin/astra-infer" --version >"$work/out" 2>"$work/err" || report "astra-infer does not run"
# The current directory and ASTRA_HOME have no checkpoints: they are found beside the program.
"$there/bin/astra-infer" selftest -c vit-cifar-g8 >"$work/out" 2>"$work/err" || report "astra-infer does not run its checkpoint"
out '^passed'
for file in share/man/man1/astra-infer.1 share/astra/checkpoints/vit-cifar-g8/model.safetensors share/astra/experiments/cifar100-groups.json \
  lib/systemd/system/astra-serve.service; do [ -s "$there/$file" ] || report "no $file"; done
grep -q "^ExecStart=\"$prefix/bin/astra-serve\" " "$there/lib/systemd/system/astra-serve.service" || report "the unit starts another program"
name=uninstall
make -C "$root" -s BUILD="${BUILD:-build}" DESTDIR="$to" PREFIX="$prefix" uninstall >"$work/out" 2>"$work/err" || report "exit code $?"
[ -z "$(find "$to" -type f)" ] || report "left behind: $(find "$to" -type f | head -n 3)"
exit $failed
