#!/bin/bash
# What counts the tests: tests/run.sh runs them at a time or alone, fails one that leaves files behind, and clears them away; tests/kernels.sh
# names a combination of kernels that fails, and does not count one where other kernels run; tools/fuzz.sh ends a target that hangs. Usage: tests/cli/runner.sh
. tests/cli/helpers.sh astra-data
cd "$root" || exit 1
export TMPDIR=$work/tmp
mkdir "$TMPDIR"
cat >"$work/tidy.sh" <<'END'
work=$(mktemp -d); touch "$work/.hidden"; rm -r "$work"
END
cat >"$work/untidy.sh" <<'END'
touch "$TMPDIR/.hidden"; mkdir -p "$TMPDIR/kept/locked"; chmod 0 "$TMPDIR/kept/locked"
END
echo 'touch "$TMPDIR/kept"; exit 3' >"$work/broken.sh"
echo 'touch "$TMPDIR/kept"; exit 77' >"$work/skips.sh"

run "tidy" 0 tests/run.sh "$work/tidy.sh"; out "^1 passed, 0 failed, 0 skipped$"
run "untidy" 1 tests/run.sh "$work/untidy.sh" "$work/tidy.sh"
out "untidy.sh .* 0 passed, 1 failed .*left behind in TMPDIR: .hidden kept)"; out "^1 passed, 1 failed, 0 skipped$"
run "broken" 1 tests/run.sh "$work/broken.sh"; out "(exit status 3)$"; out "^0 passed, 1 failed, 0 skipped$"
echo 'echo "skipped: a part"; echo "2 files skipped: images"' >"$work/partly.sh"
run "a test that leaves out a part" 0 tests/run.sh "$work/partly.sh"
out "^ok .* 1 passed"; out "^    skipped: a part$"; ! grep -q "files skipped" "$work/out" || report "a line that says nothing of it is shown"
printf '#!/bin/sh\nprintf "skipped: a case\\n[  SKIPPED ] case\\n[  PASSED  ] 1 test(s).\\n[  SKIPPED ] 1 test(s), listed below:\\n"\n' >"$work/cases"; chmod +x "$work/cases"
run "a program that leaves out a case" 0 tests/run.sh "$work/cases"
out "^ok .* 1 passed, 1 skipped"; [ "$(grep '^    ' "$work/out")" = "    skipped: a case" ] || report "shown is not that line alone"
echo 'no_such_check "1 == 1"; exit 0' >"$work/unknown.sh"
run "a check that does not exist" 1 tests/run.sh "$work/unknown.sh"; out "(it calls a command that does not exist)$"; out "no_such_check: command not found"
run "skips" 1 tests/run.sh "$work/skips.sh"; out "left behind in TMPDIR: kept)"
[ -z "$(ls -A "$TMPDIR")" ] || report "files are left: $(ls -A "$TMPDIR")"

# Numbers have points in every locale.
echo '[ "$LC_ALL" = C ] && [ "$(printf %.1f 0.5)" = 0.5 ]' >"$work/points.sh"
run "locale" 0 env LC_ALL=de_DE.UTF-8 tests/run.sh "$work/points.sh"

# Nothing of the user's comes between tests and their own servers, or is read and written by them: proxies, certificates, data, caches.
cat >"$work/own.sh" <<'END'
for name in {http,https,all}_proxy {HTTP,HTTPS,ALL}_PROXY CURL_CA_BUNDLE SSL_CERT_FILE ASTRA_HOME; do [ -z "${!name+set}" ] || { echo "$name is set"; exit 1; }; done
[ -d "$HOME" ] && [ -z "$(ls -A "$HOME")" ] && [ ! -e "$XDG_CACHE_HOME" ] && mkdir "$XDG_CACHE_HOME" && touch "$HOME/file" "$XDG_CACHE_HOME/file"
END
of_user=()
for variable in {http,https,all}_proxy {HTTP,HTTPS,ALL}_PROXY; do of_user+=("$variable=http://127.0.0.1:9"); done
for variable in CURL_CA_BUNDLE SSL_CERT_FILE ASTRA_HOME HOME XDG_CACHE_HOME; do of_user+=("$variable=$work/of-user"); done
mkdir "$work/of-user"
run "the user's environment" 0 env "${of_user[@]}" tests/run.sh "$work/own.sh" "$work/own.sh"
[ -z "$(ls -A "$work/of-user")" ] || report "the user's folder has $(ls -A "$work/of-user")"

# A line says how long a test took, and how much of that it computed.
echo 'for ((i = 0; i < 200000; i++)); do :; done; sleep 0.5' >"$work/both.sh"
run "times" 0 tests/run.sh "$work/both.sh"
read -r took busy < <(sed -nE 's/^ok .* 1 passed  ([0-9.]+) s, ([0-9.]+) s CPU$/\1 \2/p' "$work/out")
awk "BEGIN { exit !(${busy:-0} > 0.05 && ${took:-0} > ${busy:-0} + 0.3) }" || report "took ${took:-?} s, of which ${busy:-?} s on a processor"

# A sanitizer's report counts whoever of a test's processes it is of, and whatever the test says.
echo 'echo "ERROR: AddressSanitizer: of a session" >"${ASAN_OPTIONS##*log_path=}.1"' >"$work/session.sh"
echo 'echo "Aborted"; exit 77' >"$work/aborted.sh"
run "reports of sanitizers" 1 tests/run.sh "$work/session.sh" "$work/aborted.sh"; out "^    ERROR: AddressSanitizer: of a session$"; out "^0 passed, 2 failed, 0 skipped$"

# What fails beside others runs once more, alone; what crashes, or fails again, is a failure.
echo '[ -e "'"$work"'/seen" ] || { touch "'"$work"'/seen"; exit 1; }' >"$work/crowded.sh"
echo 'echo again >>"'"$work"'/crashes"; kill -SEGV $$' >"$work/crash.sh"
echo 'echo again >>"'"$work"'/crashes"; echo "Test failed with exception: Segmentation fault(11)"; exit 1' >"$work/caught.sh"
run "again" 1 tests/run.sh "$work/crowded.sh" "$work/crash.sh" "$work/caught.sh" "$work/broken.sh"
out "^passed only alone, after a failure beside others: $work/crowded.sh$"; out "^1 passed, 3 failed, 0 skipped$"
[ "$(tail -n 2 "$work/out" | sed -n 's/^failed: //p' | tr ' ' '\n' | sort | tr '\n' ' ')" = "$work/broken.sh $work/caught.sh $work/crash.sh " ] || report "the last lines do not name them"
[ "$(wc -l <"$work/crashes")" = 2 ] || report "a crash was tried again"

# Two wait for each other, which only tests that run at a time can; a third asks not to be run beside them.
for me in one two; do
  [ $me = one ] && other=two || other=one
  cat >"$work/$me.sh" <<END
touch "$work/$me.here"
for ((i = 0; i < 200; i++)); do [ -e "$work/$other.here" ] && break; sleep 0.05; done
[ -e "$work/$other.here" ] && sleep 0.2 && touch "$work/$me.done"
END
done
cat >"$work/three.sh" <<END
# This one runs alone.
[ -e "$work/one.done" ] && [ -e "$work/two.done" ]
END
sed -i '1i# This one mostly waits.' "$work/one.sh" # and so takes no place of JOBS
JOBS=1 run "at a time" 0 tests/run.sh "$work/three.sh" "$work/one.sh" "$work/two.sh"
out "^3 passed, 0 failed, 0 skipped$"; [ "$(grep -c "^ok " "$work/out")" = 3 ] || report "not a line each"
tail -n 2 "$work/out" | grep -q "three.sh" || report "what runs alone was not the last"

# An interrupted run leaves no process and no file.
echo 'echo $$ >"'"$work"'/pid"; sleep 60' >"$work/sleeper.sh"
JOBS=2 tests/run.sh "$work/sleeper.sh" "$work/one.sh" >"$work/out" 2>"$work/err" &
started=$! name="interrupted"
for ((i = 0; i < 200; i++)); do [ -s "$work/pid" ] && break; sleep 0.05; done
kill -TERM $started
wait $started
[ $? = 130 ] || report "not exit code 130"
for ((i = 0; i < 100; i++)); do kill -0 "$(cat "$work/pid")" 2>/dev/null || break; sleep 0.05; done
! kill -0 "$(cat "$work/pid")" 2>/dev/null || report "the test goes on"
[ -z "$(ls -A "$TMPDIR")" ] || report "files are left: $(ls -A "$TMPDIR")"

# An OpenBLAS that chooses Zen, has no Prescott, and is wrong as Nehalem; its test says which kernels it runs with.
[ "$(uname -m)" = x86_64 ] || { echo "skipped: kernels of x86-64"; exit $((failed ? failed : 77)); }
mkdir -p "$work/build/tests/autograd"
cat >"$work/build/tests/autograd/say_kernels" <<'END'
#!/bin/bash
core=${OPENBLAS_CORETYPE:-Zen}
echo "${core/Prescott/Zen} ${ASTRA_KERNELS:-portable}"
END
cat >"$work/build/tests/autograd/test_sum" <<END
#!/bin/bash
echo "\${OPENBLAS_CORETYPE:-none} \$ASTRA_KERNELS" >>"$work/ran"
case "\${OPENBLAS_CORETYPE:-} \$ASTRA_KERNELS" in
  "Nehalem portable") echo '[  PASSED  ] 2 test(s).'; echo '[  FAILED  ] 1 test(s), listed below:'; exit 1 ;;
  *) echo '[  PASSED  ] 3 test(s).' ;;
esac
END
cp "$work/build/tests/autograd/test_sum" "$work/build/tests/autograd/test_sum_double"
sed -i 's/ran"/ran_double"/; s/"Nehalem portable")/none)/' "$work/build/tests/autograd/test_sum_double"
chmod +x "$work"/build/tests/autograd/*
run "kernels" 1 env BUILD="$work/build" tests/kernels.sh "$work"/build/tests/autograd/test_sum{,_double}
out "^FAILED  *Nehalem x portable  *5 passed, 1 failed"; out "^FAILED  *autograd/test_sum "
[ "$(sort -u "$work/ran" | grep -c Nehalem)" = 1 ] || report "a core runs with more than one of our kernels"
for kernels in portable avx2 avx512; do
  out "^ok  *Zen x $kernels"
  grep -q "^[^n].* $kernels$" "$work/ran" || report "$kernels never run beside a core that OpenBLAS does not choose"
done
out "^skipped Prescott x avx2: OpenBLAS runs Zen instead of it$"; ! grep -q Prescott "$work/ran" || report "other kernels are tested as Prescott's"
out "^ok  *Zen x avx512"; grep -q '^none avx512$' "$work/ran" || report "OpenBLAS's own choice is not tested without the variable"
[ "$(grep -c Nehalem "$work/ran_double")" = 1 ] || report "double builds do not run once for each core"
tail -n 1 "$work/out" | grep -qxE '[0-9]+ passed, 1 failed, [0-9]+ combinations skipped' || report "the last line does not sum up"
rm -f "$work/ran"
PAIRS=all run "all pairs" 1 env BUILD="$work/build" tests/kernels.sh "$work/build/tests/autograd/test_sum"
[ "$(grep -c Nehalem "$work/ran")" = 3 ] || report "not all pairs"
rm -f "$work/ran"
run "no such test" 1 env BUILD="$work/build" tests/kernels.sh; err "no numeric test has such a name"
[ -z "$(ls -A "$TMPDIR")" ] || report "files are left: $(ls -A "$TMPDIR")"

# Without clang; the target hangs, in place of a build.
mkdir -p "$work/fuzz/tools" "$work/fuzz/build-fuzz" "$work/fuzz/tests/fuzz" "$work/fuzz/build-fuzz-replay/tests/fuzz" "$work/stand-ins"
cp tools/fuzz.sh "$work/fuzz/tools"; touch "$work/fuzz/tests/fuzz/fuzz_stuck.c"
printf '#!/bin/sh\nexec sleep 20\n' >"$work/fuzz/build-fuzz-replay/tests/fuzz/replay_stuck"
printf '#!/bin/sh\n' >"$work/stand-ins/make"; printf '#!/bin/sh\nexit 1\n' >"$work/stand-ins/clang"
chmod +x "$work"/stand-ins/* "$work/fuzz/build-fuzz-replay/tests/fuzz/replay_stuck"
run "a fuzz target that hangs" 1 env PATH="$work/stand-ins:$PATH" "$work/fuzz/tools/fuzz.sh" -59 # a minute more: 1 s
out '^FAILED  stuck (exit status 124)'
set -m # Ctrl-C reaches a process group
env PATH="$work/stand-ins:$PATH" "$work/fuzz/tools/fuzz.sh" -40 >"$work/out" 2>"$work/err" &
sleep 1
kill -INT -- -$!
SECONDS=0 name="fuzzing that is interrupted"
wait $!
[ $SECONDS -lt 5 ] || report "it goes on for $SECONDS s"
set +m

[ $failed = 0 ] && echo "runner: counts what it should"
exit $failed
