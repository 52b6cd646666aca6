#!/bin/bash
# Writes C source that holds files as arrays, for src/serve/page.c: embed-page.sh FILE... >page_data.c
# Each file's tag is the beginning of its SHA-256, so that browsers keep a file for as long as it is the same.
set -eu
echo '/* Made by tools/embed-page.sh from src/serve/page. */'
echo '#include "serve/page.h"'
index=0
for file in "$@"; do
  echo "static const unsigned char file_$index[] = {"
  od -An -v -tx1 "$file" | sed 's/ *\([0-9a-f][0-9a-f]\)/0x\1,/g'
  echo '0};'
  index=$((index + 1))
done
echo 'const PageFile page_files[] = {'
index=0
for file in "$@"; do
  case $file in
    *.html) type='text/html; charset=utf-8' ;;
    *.css) type='text/css; charset=utf-8' ;;
    *.js) type='text/javascript; charset=utf-8' ;;
    *.svg) type='image/svg+xml' ;;
    *) echo "embed-page: $file: no type is known for this kind of file" >&2; exit 1 ;;
  esac
  name=${file##*/} tag=$(sha256sum <"$file")
  [ "$name" != index.html ] || name=
  echo "{\"/$name\", \"$type\", file_$index, sizeof file_$index - 1, \"\\\"${tag:0:16}\\\"\"},"
  index=$((index + 1))
done
echo '{0}};'
