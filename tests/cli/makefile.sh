#!/bin/bash
# What make builds again in a folder that was built before: everything with other flags, a library without a source that was removed, else
# nothing. The Makefile is the real one; the source tree has two small files. Usage: tests/cli/makefile.sh
. tests/cli/helpers.sh astra-data

mkdir -p tree/src/base tree/b
ln -s "$root/Makefile" "$root/tools" tree
for word in one two; do echo "int $word(void); int $word(void) { return 1; }" >tree/src/base/$word.c; done
touch tree/b/deps.checked
# builds NAME FILES ASSIGNMENT...: what make writes of objects and libraries
builds() {
  find tree -type f -exec touch -d '1 hour ago' {} +
  touch mark
  touch -d '1 day' tree/b/deps.checked # or make would run tools/deps.sh install
  run "$1" 0 make -C tree BUILD=b CFLAGS=-O0 CI= "${@:3}" b/float/libbase.a
  local written
  written=$(cd tree/b/float && find . -name '*.[oa]' -newer "$work/mark" -printf '%f\n' | sort | xargs)
  [ "$written" = "$2" ] || report "it wrote '$written', not '$2'"
}
builds "a new folder" "libbase.a one.o two.o"
builds "the same once more" ""
builds "another number of jobs, and whole commands" "" JOBS=3 V=1
builds "other flags" "libbase.a one.o two.o" CFLAGS="-O1 -DWORD='\"a word\"'"
builds "the same flags" "" CFLAGS="-O1 -DWORD='\"a word\"'"
builds "warnings as errors" "libbase.a one.o two.o" CI=1
rm tree/src/base/two.c
builds "a source less" "libbase.a" CI=1
[ "$(ar t tree/b/float/libbase.a)" = one.o ] || report "the library has $(ar t tree/b/float/libbase.a | xargs)"
exit $failed
