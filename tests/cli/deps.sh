#!/bin/bash
# What is installed for a build: a missing library is asked of the package manager by its name there; without a required one there is no
# build, without an optional one there is. The package managers and the compiler are stand-ins. Usage: tests/cli/deps.sh
. tests/cli/helpers.sh astra-data

mkdir "$work/bin"
for tool in bash cat env id ln ls mkdir rm sort touch make jq curl pgrep stdbuf; do ln -s "$(command -v $tool)" "$work/bin/$tool"; done
# Finds each header and library whose package is there: a file of its name in $work/have.
cat >"$work/bin/gcc" <<EOF
#!/bin/bash
source=\$(cat)
case "\$source \$*" in
  *xxhash*) [ -e "$work/have/xxhash" ] ;;
  *linux/tcp.h*) [ ! -e "$work/lacks-linux" ] ;;
  *tiffio*) [ -e "$work/have/tiff" ] ;;
esac
EOF
chmod +x "$work/bin/gcc"

# manager NAME FAILS-ON: notes what it is asked for and puts it there, unless it is asked for what it does not have
manager() {
  rm -rf "$work/have" "$work/bin/"{apt-get,dnf,apk,mpicc,mpirun} "$work/asked"
  mkdir "$work/have"
  cat >"$work/bin/$1" <<EOF
#!/bin/bash
echo "\$*" >>"$work/asked"
for package in "\$@"; do case \$package in $2) exit 1 ;; esac; done
for package in "\$@"; do
  case \$package in
    libxxhash-dev | xxhash-devel | xxhash-dev) touch "$work/have/xxhash" ;;
    libtiff-dev | libtiff-devel) touch "$work/have/tiff" ;;
    libopenmpi-dev | openmpi-devel) ln -sf /bin/true "$work/bin/mpicc" ;;
    openmpi-bin | openmpi) ln -sf /bin/true "$work/bin/mpirun" ;;
    curl) ln -sf /bin/true "$work/bin/curl" ;;
    linux-headers) rm -f "$work/lacks-linux" ;;
    coreutils) ln -sf /bin/true "$work/bin/stdbuf" ;;
    procps) ln -sf /bin/true "$work/bin/pgrep" ;;
  esac
done
EOF
  chmod +x "$work/bin/$1"
}
deps() { run "$1" "$2" env PATH="$work/bin" OPENMPI_BIN=/nowhere "$root/tools/deps.sh" "$3"; } # NAME EXIT-CODE check|install|install-ci
asked() { grep -qx -e "$1" "$work/asked" || report "the package manager was not asked to '$1' but to: $(cat "$work/asked")"; }

if [ "$(id -u)" -ne 0 ]; then printf '#!/bin/bash\nexec "$@"\n' >"$work/bin/sudo"; chmod +x "$work/bin/sudo"; fi

manager apt-get none
deps "what is missing" 1 check
err '^deps: missing: xxhash.h$'; [ ! -e "$work/asked" ] || report "a check installs something"
deps "Debian" 0 install
asked 'install -q -y --no-install-recommends libxxhash-dev'
asked 'install -q -y --no-install-recommends libopenmpi-dev openmpi-bin libtiff-dev'
deps "nothing is missing any more" 0 check; silent err
deps "for .ci/run" 0 install-ci
asked 'install -q -y --no-install-recommends clang clang-format nodejs chromium avahi-daemon'
deps "not for a build" 0 install; silent err
rm "$work/bin/curl" "$work/bin/pgrep"
deps "what the tests call" 0 install
asked 'install -q -y --no-install-recommends curl procps'
rm "$work/bin/mpirun"
deps "an optional one is missing" 0 check; err '^deps: missing, optional: mpirun$'

manager dnf none
deps "Fedora" 0 install
asked 'install -y xxhash-devel'; asked 'install -y openmpi-devel openmpi libtiff-devel'

manager apk none; touch "$work/lacks-linux"; rm "$work/bin/stdbuf"
deps "Alpine" 0 install
asked 'add -U xxhash-dev linux-headers coreutils'

manager apt-get libxxhash-dev
deps "a required one cannot be installed" 1 install
err '^deps: apt-get failed; install these by hand and run make again: libxxhash-dev$'

manager apt-get libopenmpi-dev # the others are installed all the same
deps "an optional one cannot be installed" 0 install
asked 'install -q -y --no-install-recommends libtiff-dev'; [ -e "$work/have/tiff" ] || report "libtiff is not there"
err '^deps: building without the optional mpicc$'
manager apt-get update # of a source that is not there any more
deps "a source of packages fails" 0 install
asked 'install -q -y --no-install-recommends libxxhash-dev'

manager apt-get none
mv "$work/bin/gcc" "$work/bin/clang"
export CC="clang -m64"
deps "another compiler" 0 install
asked 'install -q -y --no-install-recommends libxxhash-dev'
unset CC
deps "no compiler" 1 check; err '^deps: missing: gcc '
mv "$work/bin/clang" "$work/bin/gcc"

manager apt-get none; touch "$work/have/xxhash"
printf '#!/bin/bash\necho "$*" >>"%s"\nexit 1\n' "$work/sudo" >"$work/bin/sudo"; printf '#!/bin/bash\necho 1000\n' >"$work/bin/id.new"
chmod +x "$work/bin/sudo" "$work/bin/id.new"; mv "$work/bin/id.new" "$work/bin/id"
deps "who may not use sudo" 0 install
err '^deps: sudo refuses. Ask an administrator for: apt-get install libopenmpi-dev openmpi-bin libtiff-dev'; err '^deps: building without'
[ "$(cat "$work/sudo")" = -v ] || report "sudo was asked: $(cat "$work/sudo")"
ln -sf "$(command -v id)" "$work/bin/id"
rm "$work/have/xxhash"; manager apt-get libopenmpi-dev; rm "$work/bin/apt-get"
deps "no package manager" 1 install; err '^deps: no package manager found .*: libxxhash-dev$'

exit $failed
