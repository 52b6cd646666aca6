#!/bin/bash
# The runner that sets astra-bench beside other programs (tests/bench/peers/compare.py), with stand-ins for both sides: turns, ratios, what is
# left out, and that a run goes on where it was interrupted. Runs no PyTorch and says nothing about speed.
# Usage: tests/cli/compare.sh; needs /usr/bin/python3. limit: 60
. tests/cli/helpers.sh astra-bench
[ -x /usr/bin/python3 ] || { echo "skipped: no /usr/bin/python3 for tests/bench/peers/compare.py"; exit 77; }
mkdir -p tree/tests/bench tree/build/bin
cp -r "$root/tests/bench/peers" tree/tests/bench/ && cd tree || exit 1
compare() { run "$1" "$2" env BUILD="$PWD/build" /usr/bin/python3 tests/bench/peers/compare.py "${@:3}" --busy 100; }

# Ours: 100 ms, and 110 ms in bf16; of K-means 10 ms. The peer's: 250 ms, then 150 ms.
cat >build/bin/astra-bench <<'END'
#!/bin/bash
echo "$*" >>calls
case "$*" in
*--help) echo "  --threads N  --precision P  " ;;
kmeans*) echo '{"iteration": {"milliseconds": 10, "vectors_per_second": 5}, "resident_mib": 3}' ;;
*bf16*) echo '{"parameters": 85875556.0, "plain": {"milliseconds": 110, "images_per_second": 36, "resident_mib": 50, "product_percent": 91}}' ;;
*) echo '{"parameters": 85875556.0, "plain": {"milliseconds": 100, "images_per_second": 40, "resident_mib": 80, "product_percent": 95}}' ;;
esac
END
chmod +x build/bin/astra-bench
cat >tests/bench/peers/torch_step.py <<'END'
import os
turn = len(open("calls").read().split("theirs")) if os.path.exists("calls") else 1
open("calls", "a").write("theirs %s\n" % os.environ.get("OMP_PROC_BIND"))
print('{"milliseconds": %d, "units_per_second": 1, "resident_mib": 160, "parameters": %s}' % (250 if turn == 1 else 150, os.environ["PARAMETERS"]))
END
rm -f tests/bench/peers/kmeans.py

export PARAMETERS=85875556
compare "two turns" 0 step --preset vit-base --batch 4 --turns 2
out "^PyTorch / ours, time: 2.00 (1.50-2.50) in 2 turns$"; out "^PyTorch / ours, memory: 2.00 (2.00-2.00)"; out "^work,side,turn,milliseconds,"
! grep -q "different numbers" "$work/out" || report "the same number of parameters, and it complains"
[ "$(grep -c . calls)" = 5 ] && [ "$(grep -v help calls | cut -d' ' -f1 | tr '\n' ' ')" = "step theirs step theirs " ] || report "not in turns: $(cat calls)"
grep -q "theirs true" calls || report "PyTorch's threads are not bound"
PARAMETERS=85875557 compare "another model" 0 step --turns 1; out "different numbers of parameters: 85875556, 85875557$"
compare "no peer" 0 kmeans --turns 1; out "left out: there is no kmeans.py"; out "^ours  *10.0 ms"

rm -f calls
compare "a row of all" 0 all --only vit-base-4 --turns 2 --csv some.csv
out "ViT-Base step, batch 4, bf16, against PyTorch .*| 1.36 (1.36-1.36) | >= 1.5 | no |"; out "ViT-Base step, batch 4, fp32, against PyTorch .*| yes |"; out "K-means .*not measured"; out "ViT-Base step, batch 4: memory, .*| 0.31 (0.31-0.31) | <= 0.6 | yes |"
compare "the same again" 0 all --only vit-base-4 --turns 2 --csv some.csv
[ "$(grep -vc help calls)" = 8 ] || report "measured again: $(cat calls)"
! grep -q "different numbers" "$work/out" || report "the parameters that the CSV holds are not those that were measured"
grep -q ",85875556," some.csv || report "a whole number was rounded: $(cat some.csv)"
compare "another turn" 0 all --only vit-base-4 --turns 3 --csv some.csv
[ "$(grep -vc help calls)" = 12 ] || report "not one more turn: $(cat calls)"
compare "the table" 0 table some.csv; out "^| --- |"; out "^| ViT-Base step, batch 4, fp32, against PyTorch | PyTorch fp32: .* ms; ours fp32: 100 ms | .* | >= 1.2 | yes |"

[ $failed = 0 ] && echo "compare: turns, ratios, what is missing, going on"
exit $failed
