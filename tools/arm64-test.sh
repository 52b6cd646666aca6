#!/bin/bash
# Builds unit tests for arm64 and runs them under qemu, on a Debian machine of another kind:
#   tools/arm64-test.sh WORD...      tests whose name contains one of the words
# Needs gcc-aarch64-linux-gnu and qemu-user-static. The arm64 libraries are downloaded by apt-get and unpacked into build-arm64-root; no
# package of the machine changes. oneDNN, MPI and the optional image formats are left out.
set -eu
cd "$(dirname "$0")/.."
export BUILD=build-arm64
root=$PWD/$BUILD-root
for tool in aarch64-linux-gnu-gcc qemu-aarch64-static apt-get dpkg-deb; do
  command -v $tool >/dev/null || { echo "arm64-test: $tool is missing: apt-get install gcc-aarch64-linux-gnu qemu-user-static" >&2; exit 1; }
done

programs=()
for source in tests/unit/*/test_*.c; do
  for word in "$@"; do
    [[ $source == *$word* ]] || continue
    name=${source#tests/unit/}
    programs+=("$BUILD/tests/${name%.c}")
    break
  done
done
[ ${#programs[@]} -gt 0 ] || { echo "arm64-test: no unit test has such a name: $*" >&2; exit 1; }

fetch() { # a package index of our own, in which nothing is installed
  local apt=$root/apt options
  rm -rf "$root"
  mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
  options=(-q -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$apt/state" -o Dir::Cache="$apt/cache"
    -o Dir::State::status=/dev/null -o APT::Sandbox::User=root -o Debug::NoLocking=1)
  apt-get "${options[@]}" update
  apt-get "${options[@]}" install -y --no-install-recommends --download-only libcmocka-dev libopenblas-pthread-dev libpng-dev libstb-dev libcsv-dev \
    libjansson-dev libcurl4-openssl-dev libarchive-dev zlib1g-dev libpcre2-dev libxxhash-dev libssl-dev libmicrohttpd-dev libedit-dev
  rm "$apt"/cache/archives/libc6-dev_*.deb # the cross compiler has its own
  for package in "$apt"/cache/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
  find "$root/usr/lib" -type l -lname '/*' -printf '%l %p\n' | while read -r target link; do ln -sf "$root$target" "$link"; done # not this machine's
  rm -rf "$apt"
}

# The last of the list: an older tree may lack it
[ -e "$root/usr/include/histedit.h" ] && [ ! -e "$root/apt" ] || fetch
mkdir -p $BUILD
touch $BUILD/deps.checked # tools/deps.sh would look for this machine's

include=$root/usr/include library=$root/usr/lib/aarch64-linux-gnu
make=(make --no-print-directory -j"$(nproc)" CC=aarch64-linux-gnu-gcc ONEDNN= MPI_FLAGS= MPI_LIBS= IMAGE_EXTRAS= AVAHI=
  CFLAGS="-O3 -g -isystem $include/aarch64-linux-gnu/openblas-pthread -isystem $include/aarch64-linux-gnu -isystem $include"
  LDFLAGS="-L$library/openblas-pthread -L$library -Wl,-rpath-link,$library")
"${make[@]}" "${programs[@]}"
TIME_SCALE=20 RUNNER="qemu-aarch64-static -L $root -E LD_LIBRARY_PATH=$library/openblas-pthread:$library" tests/run.sh "${programs[@]}"
