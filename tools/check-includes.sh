#!/bin/bash
# Fails when a file under src includes what its folder may not (CONTRIBUTING.md), or when two files share a name.
set -u
cd "$(dirname "$0")/.." || exit 1
breaches=0

breach() { # FILE:LINE MESSAGE
  echo "$1: $2" >&2
  breaches=$((breaches + 1))
}

declare -A may_use=(
  [base]="base"
  [autograd]="autograd base"
  [vq]="vq autograd base"
  [nn]="nn autograd base"
  [data]="data base"
  [train]="train nn vq data autograd base"
  [infer]="infer nn vq data autograd base"
  [serve]="serve infer nn vq data autograd base"
  [cli]="cli serve infer train nn vq data autograd base"
)

# The folders within infer; all may include infer/*.h, and infer/*.c any of them.
declare -A infer_may_use=(
  [transport]="transport"
  [strategy]="strategy transport"
  [sim]="sim transport"
  [plan]="plan sim strategy transport"
  [cluster]="cluster plan transport"
)

# A system header that only some files may include: pattern of the header, pattern of the files, in words.
restricted=(
  '^(cblas|openblas_config|[a-z]*mmintrin|immintrin|x86intrin|arm_neon|arm_sve|cpuid)\.h$|^sleef' '^src/autograd/kernels/' 'BLAS and intrinsics belong to autograd/kernels'
  '^(dnnl|omp)\.h$' '^src/autograd/kernels/onednn\.c$' 'oneDNN belongs to autograd/kernels/onednn.c'
  '^(png|csv)\.h$|^stb/' '^src/data/' 'libpng, stb and libcsv belong to data'
  '^(sys/wait|spawn)\.h$' '^src/infer/|^src/base/process\.c$' 'processes belong to infer and base/process.c'
  '^(sys/socket|sys/un|netinet/.*|arpa/inet|netdb)\.h$' '^src/(infer/(cluster/|notify\.c$|sim/packet_work\.c$)|serve/)' 'sockets belong to infer/cluster and serve'
  '^(sys/epoll|poll)\.h$' '^src/(infer|serve)/' 'waiting for descriptors belongs to infer and serve'
  '^libexif/|^webp/|^tiff' '^src/data/' 'libexif, libwebp and libtiff belong to data'
  '^curl/' '^src/(data/|serve/chat_client\.c$)' 'downloads belong to data, requests to serve/chat_client.c'
  '^archive' '^src/data/' 'archives belong to data'
  '^zlib\.h$' '^src/data/' 'unpacking of texts belongs to data'
  '^pcre2\.h$' '^src/data/' 'patterns of tokenizers belong to data'
  '^microhttpd\.h$' '^src/serve/' 'HTTP belongs to serve'
  '^histedit\.h$' '^src/cli/' 'line editing belongs to cli'
  '^jansson\.h$' '^src/(nn|data|train|infer|serve|cli)/' 'JSON stays out of base, autograd and vq'
  '^mpi\.h$' '^src/train/ranks\.c$' 'MPI belongs to train/ranks.c'
  '^openssl/' '^src/(data|infer)/' 'checksums and encryption belong to data and infer'
  '^avahi-' '^src/infer/cluster/discovery\.c$' 'Avahi belongs to infer/cluster/discovery.c'
  '^xxh' '^src/nn/safetensors_convert\.c$' 'digests of tensors belong to nn/safetensors_convert.c'
  '^cmocka\.h$' '^$' 'cmocka belongs to tests'
)

check_own() { # PLACE FILE HEADER
  local folder=${2#src/} target=${3%%/*} inner_folder='' inner=''
  folder=${folder%%/*}
  [[ $2 =~ ^src/infer/([^/]+)/ ]] && inner_folder=${BASH_REMATCH[1]}
  [[ $3 =~ ^infer/([^/]+)/ ]] && inner=${BASH_REMATCH[1]}
  if [[ $3 != */* ]]; then
    breach "$1" "\"$3\" must be included with its folder: \"FOLDER/$3\""
  elif [[ " ${may_use[$folder]:-} " != *" $target "* ]]; then
    breach "$1" "$folder may not include $target (\"$3\")"
  elif [[ -n $inner_folder && -n $inner && " ${infer_may_use[$inner_folder]:-} " != *" $inner "* ]]; then
    breach "$1" "infer/$inner_folder may not include infer/$inner (\"$3\")"
  elif [ ! -f "src/$3" ]; then
    breach "$1" "\"$3\" is not in src"
  fi
}

check_system() { # PLACE FILE HEADER
  local i
  for ((i = 0; i < ${#restricted[@]}; i += 3)); do
    if [[ $3 =~ ${restricted[i]} && ! $2 =~ ${restricted[i + 1]} ]]; then breach "$1" "<$3>: ${restricted[i + 2]}"; fi
  done
}

include='^[[:space:]]*#[[:space:]]*include[[:space:]]*([<"])([^">]+)[">]'
while IFS=: read -r file line text; do
  [[ $text =~ $include ]] || continue
  if [ "${BASH_REMATCH[1]}" = '"' ]; then check_own "$file:$line" "$file" "${BASH_REMATCH[2]}"
  else check_system "$file:$line" "$file" "${BASH_REMATCH[2]}"; fi
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include' src --include='*.[ch]')

# NAME.c and NAME.h of one folder are a pair; the same NAME in two folders is a breach.
declare -A home=()
while read -r file; do
  folder=${file%/*} stem=${file##*/}
  stem=${stem%.*}
  if [ "${home[$stem]:-$folder}" != "$folder" ]; then
    breach "$file" "there is also a $stem in ${home[$stem]}; file names are unique"
  fi
  home[$stem]=$folder
done < <(find src -name '*.[ch]' | sort)

# cmocka's own assert_float_equal takes a NaN for equal to everything.
while read -r file; do
  grep -q '#include "unit/float_equal.h"' "$file" || breach "$file" "assert_float_equal needs \"unit/float_equal.h\""
done < <(grep -rl 'assert_float_equal(' tests/unit --include='*.[ch]' | grep -v '/float_equal.h$')

[ $breaches -eq 0 ] || { echo "check-includes: $breaches breach(es)" >&2; exit 1; }
echo "check-includes: ok"
