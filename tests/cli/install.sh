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
for file in share/man/man1/astra-infer.1 share/doc/astra/LICENSE share/doc/astra/docs/FORMATS.md \
  share/doc/astra/docs/results/README.md share/astra/checkpoints/vit-cifar-g8/model.safetensors share/astra/experiments/cifar100-groups.json \
  lib/systemd/system/astra-serve.service; do [ -s "$there/$file" ] || report "no $file"; done
grep -q "^ExecStart=\"$prefix/bin/astra-serve\" " "$there/lib/systemd/system/astra-serve.service" || report "the unit starts another program"
# Outside of the source tree experiments find the installed text.
"$there/bin/astra-bench" accuracy --table enwiki-groups --quick --rows untrained --out quick >"$work/out" 2>"$work/err" || report "an experiment of texts fails"
out '^| untrained '
# As an archive, without git: the same files, for all to read, whoever installs.
archive="$work/an archive"
mkdir "$archive"
for file in Makefile LICENSE README.md CHANGELOG.md src tools docs dist tests "${BUILD:-build}"; do ln -s "$root/$file" "$archive/$file"; done
cp -r "$there/share/astra/." "$archive"
for kind in "an archive" "a checkout that git cannot read"; do
  name="install of $kind"
  (umask 077; make -C "$archive" -s -o all BUILD="${BUILD:-build}" DESTDIR="$work/from $kind" PREFIX="$prefix" install) >"$work/out" 2>"$work/err" || report "exit code $?"
  diff <(cd "$there/share/astra" && find . -type f | sort) <(cd "$work/from $kind$prefix/share/astra" && find . -type f | sort) >"$work/out" || report "other files"
  [ -z "$(find "$work/from $kind$prefix/share/astra" -type d ! -perm -755)" ] || report "folders that others cannot read"
  echo "gitdir: /nowhere" >"$archive/.git"
done
mkdir -p "$there/share/astra/checkpoints/mine" && echo mine >"$there/share/astra/checkpoints/mine/model.safetensors"
name=uninstall
make -C "$root" -s BUILD="${BUILD:-build}" DESTDIR="$to" PREFIX="$prefix" uninstall >"$work/out" 2>"$work/err" || report "exit code $?"
[ "$(find "$to" -type f)" = "$there/share/astra/checkpoints/mine/model.safetensors" ] || report "left behind, but for a model of the user's: $(find "$to" -type f | head -n 3)"
rm -r "$there/share/astra/checkpoints/mine"
name="uninstall once more"
make -C "$root" -s BUILD="${BUILD:-build}" DESTDIR="$to" PREFIX="$prefix" uninstall >"$work/out" 2>"$work/err" || report "exit code $?"
[ ! -e "$there/share/astra" ] || report "an empty folder is left"
make -C "$root" -s BUILD="${BUILD:-build}" DESTDIR="$to" PREFIX="$prefix" uninstall >"$work/out" 2>"$work/err" || report "exit code $? where nothing is"
for folder in "$work/elsewhere" out/build build/ . .. "two words" "build build-two" docs ""; do
  run "a build in '$folder'" 2 make -C "$root" -n BUILD="$folder" help; err 'BUILD=.*: build or build-NAME is needed, a folder in the source tree'
done
run "a build in another folder" 0 make -C "$root" -n BUILD=build-other help
exit $failed
