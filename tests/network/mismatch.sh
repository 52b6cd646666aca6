#!/bin/bash
# Devices that must not compute together: another model, another codebook, another release. Each is refused with both values named, and the
# worker is there for the next leader.
. tests/network/helpers.sh
"$program" keygen "$work/key" 2>/dev/null || report "keygen"
make_checkpoint "$work/model" tiny 4 50 4
make_checkpoint "$work/model-2" tiny 4 50 4
make_checkpoint "$work/books" tiny 4 50 4
make_picture "$work/1.ppm" 16

# Changes one byte of a tensor, the lowest of a number in its middle: spoil DIR TENSOR
spoil() {
  local file=$1/model.safetensors header begin
  unseal "$file"
  header=$(od -An -tu8 -N8 "$file" | tr -d ' ')
  begin=$(head -c $((8 + header)) "$file" | tail -c "$header" | grep -oE "\"$2\":\{[^}]*\}" | sed 's/.*"data_offsets":\[\([0-9]*\),.*/\1/')
  [ -n "$begin" ] || report "no tensor $2"
  byte=$(od -An -tu1 -j $((8 + header + begin + 40)) -N1 "$file")
  printf "\\x$(printf %x $((byte ^ 1)))" | dd of="$file" bs=1 seek=$((8 + header + begin + 40)) conv=notrunc status=none
}
spoil "$work/model-2" 'classifier.weight'
spoil "$work/books" 'astra.layers.1.x.codebook'

start_worker w 127.0.0.1:0 --key-file "$work/key" -c "$work/model"
refused() { # WHAT CHECKPOINT PATTERN
  timeout 60 "$program" -c "$2" --peers "${address[w]}" --key-file "$work/key" "$work/1.ppm" --threads 1 >"$work/out" 2>"$work/err"
  [ $? -eq 1 ] || report "$1: exit code"
  grep -qE "worker ${address[w]}: another $3: [0-9a-f]{16} there, [0-9a-f]{16} here \(--checkpoint, --weights and --precision must be the same" "$work/err" ||
    report "$1: both values are not named"
  there=$(grep -oE '[0-9a-f]{16} there' "$work/err") here=$(grep -oE '[0-9a-f]{16} here' "$work/err")
  [ "${there%% *}" != "${here%% *}" ] || report "$1: the values are equal"
  [ ! -s "$work/out" ] || report "$1: something was computed"
}
refused "another model" "$work/model-2" model
refused "another codebook" "$work/books" codebook

# Another release says so in its first bytes, and gets the worker's own back: magic, version 7.
exec 4<>"/dev/tcp/127.0.0.1/${address[w]##*:}"
printf 'STRA\11\1\0\0sixteen bytes...' >&4
[ "$(timeout 10 head -c 5 <&4 | od -An -tx1)" = " 53 54 52 41 07" ] || report "another release is not answered"
exec 4>&-

timeout 60 "$program" -c "$work/model" --peers "${address[w]}" --key-file "$work/key" "$work/1.ppm" --threads 1 >"$work/out" 2>"$work/err" || report "the same model is refused"
stop_worker w
exit $failed
