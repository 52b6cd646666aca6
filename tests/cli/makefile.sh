#!/bin/bash
# What make builds again in a folder that was built before: everything with other flags, a library without a source that was removed or with
# one that came, else nothing. The Makefile is the real one; the source tree has three small files. Usage: tests/cli/makefile.sh
. tests/cli/helpers.sh astra-data

mkdir -p tree/src/base tree/src/vq tree/build
ln -s "$root/Makefile" "$root/tools" tree
# source_file FOLDER NAME
source_file() { echo "int $2(void); int $2(void) { return 1; }" >"tree/src/$1/$2.c"; }
source_file base one
source_file base two
source_file vq three
touch tree/build/deps.checked
# builds NAME FILES ASSIGNMENT...: what make writes of objects and libraries
builds() {
  find tree -type f -exec touch -d '1 hour ago' {} +
  touch mark
  touch -d '1 day' tree/build/deps.checked # or make would run tools/deps.sh install
  run "$1" 0 make -C tree BUILD=build CFLAGS=-O0 CI= "${@:3}" build/float/lib{base,vq}.a
  local written
  written=$(cd tree/build/float && find . -name '*.[oa]' -newer "$work/mark" -printf '%f\n' | sort | xargs)
  [ "$written" = "$2" ] || report "it wrote '$written', not '$2'"
}
builds "a new folder" "libbase.a libvq.a one.o three.o two.o"
builds "the same once more" ""
builds "another number of jobs, and whole commands" "" JOBS=3 V=1
builds "other flags" "libbase.a libvq.a one.o three.o two.o" CFLAGS="-O1 -DWORD='\"a word\"'"
builds "the same flags" "" CFLAGS="-O1 -DWORD='\"a word\"'"
builds "warnings as errors" "libbase.a libvq.a one.o three.o two.o" CI=1
rm tree/Makefile
sed 's/^%\/lowbit_avx2.o: FILE_FLAGS := .*/& -O1/' "$root/Makefile" >tree/Makefile
builds "a Makefile with other flags of a file" "libbase.a libvq.a one.o three.o two.o" CI=1
rm tree/src/base/two.c
builds "a source less" "libbase.a" CI=1
[ "$(ar t tree/build/float/libbase.a)" = one.o ] || report "the library has $(ar t tree/build/float/libbase.a | xargs)"
source_file vq four
builds "a source more, in another folder" "four.o libvq.a" CI=1
exit $failed
