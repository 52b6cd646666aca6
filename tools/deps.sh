#!/bin/bash
# Says which build dependencies are missing and installs them through the system's package manager.
#   tools/deps.sh check     lists what is missing; exit status 1 if something is
#   tools/deps.sh install   installs what is missing; does nothing (and takes a moment) when nothing is
set -u

# What to look for: a command, a header, a library (cblas.h comes with other libraries too) or a folder that is not empty; then the package that
# brings it, for each package manager (- : not packaged).
table='
gcc              gcc                  gcc              gcc             gcc        gcc
make             make                 make             make            make       make
-lopenblas       libopenblas-dev      openblas-devel   openblas-dev    openblas   openblas
png.h            libpng-dev           libpng-devel     libpng-dev      libpng     libpng
stb/stb_image.h  libstb-dev           stb-devel        stb             stb        -
csv.h            libcsv-dev           libcsv-devel     libcsv-dev      libcsv     libcsv
jansson.h        libjansson-dev       jansson-devel    jansson-dev     jansson    jansson
curl/curl.h      libcurl4-openssl-dev libcurl-devel    curl-dev        curl       curl
archive.h        libarchive-dev       libarchive-devel libarchive-dev  libarchive libarchive
-lpcre2-8        libpcre2-dev         pcre2-devel      pcre2-dev       pcre2      pcre2
openssl/evp.h    libssl-dev           openssl-devel    openssl-dev     openssl    openssl@3
cmocka.h         libcmocka-dev        libcmocka-devel  cmocka-dev      cmocka     cmocka
jq               jq                   jq               jq              jq         jq
/etc/ssl/certs/  ca-certificates      ca-certificates  ca-certificates ca-certificates ca-certificates
'

manager=none column=2
for candidate in apt-get:2 dnf:3 apk:4 pacman:5 brew:6; do
  if command -v "${candidate%:*}" >/dev/null; then
    manager=${candidate%:*} column=${candidate#*:}
    break
  fi
done

has() { # NAME: a header the compiler finds, a library it links, a command, or a folder with something in it
  case $1 in
    *.h) command -v gcc >/dev/null && echo "#include <$1>" | gcc -E -include stddef.h -include stdarg.h -include setjmp.h - >/dev/null 2>&1 ;;
    -l*) command -v gcc >/dev/null && echo 'int main(void) { return 0; }' | gcc -x c - -x none "$1" -o /dev/null >/dev/null 2>&1 ;;
    */) [ -n "$(ls -A "$1" 2>/dev/null)" ] ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

missing_packages() {
  local row
  while read -r -a row; do
    [ ${#row[@]} -eq 0 ] || has "${row[0]}" || echo "${row[0]}" "${row[column - 1]}"
  done <<<"$table"
}

missing=$(missing_packages)
[ -n "$missing" ] || exit 0

names=() packages=()
while read -r name package; do
  names+=("$name")
  if [ "$package" = - ]; then
    echo "deps: $name has no package for $manager: put it where the compiler finds it" >&2
    exit 1
  fi
  packages+=("$package")
done <<<"$missing"
# Without a compiler no header could be looked for, and the C library's own headers are missing as well.
if [[ " ${names[*]} " == *" gcc "* ]]; then
  case $manager in
    apt-get) packages+=(libc6-dev) ;;
    dnf) packages+=(glibc-devel) ;;
    apk) packages+=(musl-dev) ;;
  esac
fi
echo "deps: missing: ${names[*]}" >&2
[ "${1:-check}" = install ] || exit 1

if [ "$manager" = none ]; then
  echo "deps: no package manager found (apt-get, dnf, apk, pacman, brew). Install by hand what Debian calls: ${packages[*]}" >&2
  exit 1
fi

root=()
if [ "$(id -u)" -ne 0 ] && [ "$manager" != brew ]; then
  if ! command -v sudo >/dev/null; then
    echo "deps: run this as root, or install sudo: $manager install ${packages[*]}" >&2
    exit 1
  fi
  root=(sudo)
fi
# `env` carries the setting through sudo.
as_root() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive "$@"; }

echo "deps: installing with $manager: ${packages[*]}" >&2
case $manager in
  apt-get) as_root apt-get update -q && as_root apt-get install -q -y --no-install-recommends "${packages[@]}" ;;
  dnf) as_root dnf install -y "${packages[@]}" ;;
  apk) as_root apk add "${packages[@]}" ;;
  pacman) as_root pacman -S --needed --noconfirm "${packages[@]}" ;;
  brew) brew install "${packages[@]}" ;;
esac >&2 || {
  echo "deps: $manager failed; install these by hand and run make again: ${packages[*]}" >&2
  exit 1
}

missing=$(missing_packages)
if [ -n "$missing" ]; then
  echo "deps: still missing after the installation: ${missing//$'\n'/, }" >&2
  exit 1
fi
