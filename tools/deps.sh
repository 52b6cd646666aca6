#!/bin/bash
# Says which build dependencies are missing and installs them through the system's package manager.
#   tools/deps.sh check     lists what is missing; exit status 1 if something required is
#   tools/deps.sh install   installs what is missing; does nothing (and takes a moment) when nothing is
#   tools/deps.sh install-ci  the same, and what .ci/run uses besides where it can be installed
set -u

# What to look for: a command, a header, a library (cblas.h comes with other libraries too) or a folder that is not empty; then the package that
# brings it, for each package manager (- : not packaged). stdbuf stands for GNU's coreutils: the tools need their timeout and realpath, and
# busybox has both without the long options.
required='
gcc              gcc                  gcc              gcc             gcc        gcc
make             make                 make             make            make       make
-lopenblas       libopenblas-dev      openblas-devel   openblas-dev    openblas   openblas
png.h            libpng-dev           libpng-devel     libpng-dev      libpng     libpng
stb/stb_image.h  libstb-dev           stb-devel        stb             stb        -
csv.h            libcsv-dev           libcsv-devel     libcsv-dev      libcsv     libcsv
jansson.h        libjansson-dev       jansson-devel    jansson-dev     jansson    jansson
curl/curl.h      libcurl4-openssl-dev libcurl-devel    curl-dev        curl       curl
archive.h        libarchive-dev       libarchive-devel libarchive-dev  libarchive libarchive
zlib.h           zlib1g-dev           zlib-devel       zlib-dev        zlib       zlib
-lpcre2-8        libpcre2-dev         pcre2-devel      pcre2-dev       pcre2      pcre2
xxhash.h         libxxhash-dev        xxhash-devel     xxhash-dev      xxhash     xxhash
microhttpd.h     libmicrohttpd-dev    libmicrohttpd-devel libmicrohttpd-dev libmicrohttpd libmicrohttpd
histedit.h       libedit-dev          libedit-devel    libedit-dev     libedit    libedit
openssl/evp.h    libssl-dev           openssl-devel    openssl-dev     openssl    openssl@3
cmocka.h         libcmocka-dev        libcmocka-devel  cmocka-dev      cmocka     cmocka
jq               jq                   jq               jq              jq         jq
curl             curl                 curl             curl            curl       curl
pgrep            procps               procps-ng        procps-ng       procps-ng  -
linux/tcp.h      linux-libc-dev       kernel-headers   linux-headers   linux-api-headers -
stdbuf           coreutils            coreutils        coreutils       coreutils  coreutils
/etc/ssl/certs/  ca-certificates      ca-certificates  ca-certificates ca-certificates ca-certificates
'
# The build and the tests leave out what needs these, and say so, where they cannot be installed.
optional='
mpicc               libopenmpi-dev   openmpi-devel    openmpi-dev     openmpi    open-mpi
mpirun              openmpi-bin      openmpi          openmpi         openmpi    open-mpi
dnnl.h              libdnnl-dev      onednn-devel     -               onednn     onednn
libexif/exif-data.h libexif-dev      libexif-devel    libexif-dev     libexif    libexif
webp/decode.h       libwebp-dev      libwebp-devel    libwebp-dev     libwebp    webp
tiffio.h            libtiff-dev      libtiff-devel    tiff-dev        libtiff    libtiff
avahi-client/client.h libavahi-client-dev avahi-devel avahi-dev       avahi      -
'
# What .ci/run leaves out, and says so, where they cannot be installed.
checkers='
clang           clang            clang            clang           clang      llvm
clang-format    clang-format     clang-tools-extra clang-extra-tools clang   clang-format
node            nodejs           nodejs           nodejs          nodejs     node
chromium        chromium         chromium         chromium        chromium   -
avahi-daemon    avahi-daemon     avahi            avahi           avahi      -
'
PATH=$PATH:${OPENMPI_BIN:-/usr/lib64/openmpi/bin} # where Fedora keeps Open MPI

manager=none column=2
for candidate in apt-get:2 dnf:3 apk:4 pacman:5 brew:6; do
  if command -v "${candidate%:*}" >/dev/null; then
    manager=${candidate%:*} column=${candidate#*:}
    break
  fi
done

# What looks for headers: gcc, or where it is not there what the build is to use. (That one may be for another kind of machine.)
compiler=(gcc)
command -v gcc >/dev/null || read -r -a compiler <<<"${CC:-gcc}"

has() { # NAME: a header the compiler finds, a library it links, a command (gcc: the compiler), or a folder with something in it
  case $1 in
    gcc) command -v "${compiler[0]}" >/dev/null ;;
    *.h) has gcc && echo "#include <$1>" | "${compiler[@]}" -E -include stddef.h -include stdarg.h -include setjmp.h - >/dev/null 2>&1 ;;
    -l*) has gcc && echo 'int main(void) { return 0; }' | "${compiler[@]}" -x c - -x none "$1" -o /dev/null >/dev/null 2>&1 ;;
    */) [ -n "$(ls -A "$1" 2>/dev/null)" ] ;;
    *) command -v "$1" >/dev/null ;;
  esac
}

# Sets names and packages from the rows whose first column is not there.
find_missing() { # TABLE
  local row
  names=() packages=()
  while read -r -a row; do
    if [ ${#row[@]} -eq 0 ] || has "${row[0]}"; then continue; fi
    names+=("${row[0]}") packages+=("${row[column - 1]}")
  done <<<"$1"
}

root=()
# `env` carries the setting through sudo.
as_root() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive "$@"; }

install_packages() { # PACKAGE...; returns 1 when the package manager fails, 2 when it cannot be run; says so
  [ $# -gt 0 ] || return 0
  if [ "$manager" = none ]; then
    echo "deps: no package manager found (apt-get, dnf, apk, pacman, brew). Install by hand what Debian calls: $*" >&2
    return 2
  fi
  if [ "$(id -u)" -ne 0 ] && [ "$manager" != brew ]; then
    if ! command -v sudo >/dev/null; then
      echo "deps: run this as root, or install sudo: $manager install $*" >&2
      return 2
    fi
    if [ ${#root[@]} -eq 0 ] && ! sudo -v; then # asked once: not again for each package
      echo "deps: sudo refuses. Ask an administrator for: $manager install $*" >&2
      return 2
    fi
    root=(sudo)
  fi
  echo "deps: installing with $manager: $*" >&2
  case $manager in # a source of packages that apt-get cannot reach does not make the others useless
    apt-get) as_root apt-get update -q; as_root apt-get install -q -y --no-install-recommends "$@" ;;
    dnf) as_root dnf install -y "$@" ;;
    apk) as_root apk add -U "$@" ;;
    pacman) as_root pacman -S --needed --noconfirm "$@" ;;
    brew) brew install "$@" ;;
  esac >&2 || {
    echo "deps: $manager failed; install these by hand and run make again: $*" >&2
    return 1
  }
}

install_required() {
  local i
  for i in "${!names[@]}"; do
    [ "${packages[i]}" != - ] || { echo "deps: ${names[i]} has no package for $manager: put it where the compiler finds it" >&2; return 1; }
  done
  # Without a compiler no header could be looked for, and the C library's own headers are missing as well.
  if [[ " ${names[*]} " == *" gcc "* ]]; then
    case $manager in
      apt-get) packages+=(libc6-dev) ;;
      dnf) packages+=(glibc-devel) ;;
      apk) packages+=(musl-dev) ;;
    esac
  fi
  install_packages "${packages[@]}" || return 1
  find_missing "$required"
  [ ${#names[@]} -eq 0 ] || { echo "deps: still missing after the installation: ${names[*]} (${packages[*]})" >&2; return 1; }
}

# When they cannot be installed together, one at a time: a package that this system lacks does not keep the others out.
install_optional() { # TABLE, whose missing rows are in packages
  local package packaged=()
  for package in "${packages[@]}"; do [ "$package" = - ] || packaged+=("$package"); done
  install_packages "${packaged[@]}"
  if [ $? -eq 1 ] && [ ${#packaged[@]} -gt 1 ]; then
    for package in "${packaged[@]}"; do install_packages "$package"; done
  fi
  find_missing "$1"
  [ ${#names[@]} -eq 0 ] || echo "deps: building without the optional ${names[*]}" >&2
}

mode=${1:-check}
find_missing "$required"
if [ ${#names[@]} -gt 0 ]; then
  echo "deps: missing: ${names[*]}" >&2
  [ "$mode" != check ] || exit 1
  install_required || exit 1
fi
extras=$optional
[ "$mode" != install-ci ] || extras+=$checkers
find_missing "$extras"
if [ ${#names[@]} -gt 0 ]; then
  echo "deps: missing, optional: ${names[*]}" >&2
  [ "$mode" = check ] || install_optional "$extras"
fi
exit 0
