#!/usr/bin/python3
"""Speed and memory of this toolkit beside PyTorch and scikit-learn, in turns on one machine. Needs Python's standard library; the peers need
/usr/bin/python3 with Debian's python3-torch, python3-sklearn and python3-faiss. Never part of `make test`.

    tests/bench/peers/compare.py step --preset vit-base --batch 4 --precision bf16 --turns 3
    tests/bench/peers/compare.py forward --preset gpt2 --length 1024 --decode 64
    tests/bench/peers/compare.py kmeans --samples 50000 --width 24
    tests/bench/peers/compare.py all                # every row of docs/results/speed.md that has a peer; goes on where it was interrupted
    tests/bench/peers/compare.py table FILE.csv     # the rows of `all` as Markdown

A turn runs each side once, one process after the other, so that whatever the machine does to one it does to the other; ratios are of one
turn. Before each process the machine has to be quiet (--busy); what others took of it meanwhile stands in the CSV. PyTorch runs *tuned*:
MALLOC_MMAP_THRESHOLD_=8G MALLOC_TRIM_THRESHOLD_=16G, threads bound (OMP_PROC_BIND=true), OpenBLAS's OpenMP build where it is installed
(libopenblas0-openmp), OPENBLAS_CORETYPE unset."""
import argparse
import csv
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
PYTHON = "/usr/bin/python3"  # Debian's packages are there
OPENMP_BLAS = "/usr/lib/%s-linux-gnu/openblas-openmp" % platform.machine()
COLUMNS = ["work", "side", "turn", "milliseconds", "units_per_second", "decode_milliseconds", "decode_units_per_second", "resident_mib",
           "parameters", "astra_ratio", "product_percent", "peak_percent", "peak_gflops", "memory_read", "decode_read_percent", "distortion",
           "others_percent", "command"]


# ---------------------------------------------------------------- commands

def bench():
    return os.path.join(os.environ.get("BUILD", os.path.join(ROOT, "build")), "bin", "astra-bench")


_help = {}


def knows(command, option):
    """Whether this build's astra-bench COMMAND takes the option."""
    if command not in _help:
        _help[command] = subprocess.run([bench(), command, "--help"], capture_output=True, text=True).stdout
    return option + " " in _help[command]


class Missing(Exception):
    """What a side needs and this build or machine lacks."""


def ours(command, *arguments, precision="fp32", weights="fp32", threads=2):
    line = [bench(), command, *map(str, arguments), "--threads", str(threads), "--json"]
    for option, value in (("--precision", precision), ("--weights", weights)):
        if knows(command, option):
            line += [option, value]
        elif value != "fp32":
            raise Missing("astra-bench %s has no %s %s" % (command, option, value))
    return line


def peer(script, *arguments, threads=2):
    path = os.path.join(HERE, script)
    if not os.path.exists(path):
        raise Missing("there is no %s" % script)
    return [PYTHON, path, *map(str, arguments), "--threads", str(threads)]


def environment(command, threads):
    values = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "ASTRA_KERNELS", "ASTRA_BACKEND")}
    if command[0] == PYTHON:
        values.update(OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads), OMP_PROC_BIND="true",
                      MALLOC_MMAP_THRESHOLD_=str(8 << 30), MALLOC_TRIM_THRESHOLD_=str(16 << 30))
        if os.path.isdir(OPENMP_BLAS):
            values["LD_LIBRARY_PATH"] = OPENMP_BLAS
    return values


# ---------------------------------------------------------------- the machine

def processor_time():
    """Seconds that all processors were busy, or taken away by the host, since the start."""
    with open("/proc/stat") as file:
        user, nice, system, idle, wait, irq, soft, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def busy_share(seconds=1.0):
    before = processor_time()
    time.sleep(seconds)
    return (processor_time() - before) / seconds / os.cpu_count()


def wait_until_quiet(options):
    if options.busy >= 100:
        return
    until = time.monotonic() + options.wait
    busy = busy_share()
    while busy > options.busy / 100 and time.monotonic() < until:
        busy = busy_share()
    if busy > options.busy / 100:
        print("  the machine is %.0f%% busy with other things: these figures are worth little" % (100 * busy), flush=True)


# ---------------------------------------------------------------- one process

def unpack(answer):
    """The columns of what astra-bench or a peer has printed."""
    row = dict(answer)
    main = next((answer[name] for name in ("plain", "forward", "prefill", "iteration") if name in answer), None)
    if main is not None:
        row.update(main)
        row["astra_ratio"] = answer.get("ratio", "")
        row["resident_mib"] = main.get("resident_mib", answer.get("resident_mib", ""))
        row["units_per_second"] = next((v for k, v in main.items() if k.endswith("_per_second") and not k.startswith(("gflop", "read"))), "")
        if "astra" in answer:
            row["resident_mib"] = answer["astra"]["resident_mib"]
    if "decode" in answer:
        row["decode_milliseconds"] = answer["decode"]["milliseconds"]
        row["decode_units_per_second"] = answer["decode"]["tokens_per_second"]
        row["decode_read_percent"] = answer["decode"]["read_percent"]
    return {name: row.get(name, "") for name in COLUMNS}


def run_once(work, side, turn, command, options):
    wait_until_quiet(options)
    begun, before = time.monotonic(), processor_time()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(command, stdout=out, stderr=err, env=environment(command, options.threads), cwd=ROOT)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        text, message = out.read(), err.read()
    if child.returncode != 0:
        raise Missing("%s ended with %d: %s" % (shlex.join(command), child.returncode, message.strip().splitlines()[-1:] or ""))
    taken, spent = time.monotonic() - begun, usage.ru_utime + usage.ru_stime
    row = unpack(json.loads(text.strip().splitlines()[-1]))
    row.update(work=work, side=side, turn=turn, others_percent=max(0.0, 100 * (processor_time() - before - spent) / taken / os.cpu_count()),
               command=shlex.join([os.path.relpath(part, ROOT) if part.startswith(ROOT) else part for part in command]))
    return row


# ---------------------------------------------------------------- works: what is run in turns

def step(preset, batch, length, precision, groups=0, steps=3, threads=2):
    arguments = ["--model", preset, "--batch", batch, "--steps", steps, "--warm-up", 1] + (["--length", length] if length else [])
    return ours("step", *arguments, *(["--groups", groups] if groups else []), precision=precision, threads=threads)


def torch_step(preset, batch, length, precision, steps=3, threads=2):
    return peer("torch_step.py", "--preset", preset, "--batch", batch, "--length", length, "--precision", precision, "--steps", steps,
                threads=threads)


def forward(preset, length, precision="fp32", weights="fp32", decode=0, output="answer", repeats=5, threads=2):
    return ours("forward", "--model", preset, "--length", length, "--decode", decode, "--output", output, "--repeats", repeats,
                precision=precision, weights=weights, threads=threads)


def torch_forward(preset, length, precision="fp32", decode=0, output="answer", repeats=5, threads=2):
    return peer("torch_forward.py", "--preset", preset, "--length", length, "--decode", decode, "--output", output, "--precision", precision,
                "--repeats", repeats, threads=threads)


def kmeans(width, samples=50000, entries=1024, iterations=5, threads=2):
    return ours("kmeans", "--samples", samples, "--width", width, "--entries", entries, "--iterations", iterations, threads=threads)


def kmeans_peer(library, width, samples=50000, entries=1024, iterations=5, threads=2):
    return peer("kmeans.py", "--library", library, "--samples", samples, "--width", width, "--entries", entries, "--iterations", iterations,
                threads=threads)


def both_precisions(preset, batch, length=0, steps=3):
    return [("ours fp32", lambda: step(preset, batch, length, "fp32", steps=steps)),
            ("PyTorch fp32", lambda: torch_step(preset, batch, length, "fp32", steps=steps)),
            ("ours bf16", lambda: step(preset, batch, length, "bf16", steps=steps)),
            ("PyTorch bf16", lambda: torch_step(preset, batch, length, "bf16", steps=steps))]


def encoder(length):
    return [("ours fp32", lambda: forward("vit-base", length, output="all")),
            ("PyTorch fp32", lambda: torch_forward("vit-base", length)),
            ("ours bf16", lambda: forward("vit-base", length, "bf16", output="all")),
            ("PyTorch bf16", lambda: torch_forward("vit-base", length, "bf16")),
            ("ours int8", lambda: forward("vit-base", length, weights="int8", precision="bf16", output="all"))]


WORKS = {
    "vit-base-4": both_precisions("vit-base", 4),
    "vit-base-8": both_precisions("vit-base", 8, steps=2),
    "gpt2-4x64": both_precisions("gpt2", 4, 64),
    "gpt2-4x256": both_precisions("gpt2", 4, 256, steps=2),
    "gpt2-1x1024": both_precisions("gpt2", 1, 1024, steps=2),
    "vit-cifar-128": both_precisions("vit-cifar", 128, steps=5),
    "encoder-197": encoder(197),
    "encoder-1024": encoder(1024),
    "prefill-1024": [("ours fp32", lambda: forward("gpt2", 1024, repeats=3)),
                     ("PyTorch fp32", lambda: torch_forward("gpt2", 1024, repeats=3)),
                     ("ours bf16", lambda: forward("gpt2", 1024, "bf16", repeats=3)),
                     ("PyTorch bf16", lambda: torch_forward("gpt2", 1024, "bf16", repeats=2)),
                     ("ours int8", lambda: forward("gpt2", 1024, weights="int8", repeats=3)),
                     ("ours int4", lambda: forward("gpt2", 1024, weights="int4", repeats=3))],
    "decode-64": [("ours fp32", lambda: forward("gpt2", 64, decode=64, repeats=3)),
                  ("PyTorch fp32", lambda: torch_forward("gpt2", 64, decode=64, repeats=3)),
                  ("ours bf16", lambda: forward("gpt2", 64, "bf16", decode=64, repeats=3)),
                  ("ours int8", lambda: forward("gpt2", 64, weights="int8", decode=64, repeats=3)),
                  ("ours int4", lambda: forward("gpt2", 64, weights="int4", decode=64, repeats=3))],
    "astra-vit-base-8": [("ours fp32", lambda: step("vit-base", 8, 0, "fp32", groups=32)),
                         ("ours bf16", lambda: step("vit-base", 8, 0, "bf16", groups=32))],
    "astra-vit-cifar-128": [("ours fp32", lambda: step("vit-cifar", 128, 0, "fp32", groups=32)),
                            ("ours bf16", lambda: step("vit-cifar", 128, 0, "bf16", groups=32))],
    "kmeans-768": [("ours", lambda: kmeans(768)), ("scikit-learn", lambda: kmeans_peer("sklearn", 768)),
                   ("faiss", lambda: kmeans_peer("faiss", 768))],
    "kmeans-24": [("ours", lambda: kmeans(24)), ("scikit-learn", lambda: kmeans_peer("sklearn", 24)),
                   ("faiss", lambda: kmeans_peer("faiss", 24))],
}


# ---------------------------------------------------------------- results: ratios of one turn, and aims

class Figures:
    """What the CSV holds, by work and side and turn."""

    def __init__(self, rows):
        self.rows = {(row["work"], row["side"], int(row["turn"])): row for row in rows}

    def values(self, work, side, column="milliseconds"):
        found = sorted((turn, row[column]) for (w, s, turn), row in self.rows.items() if (w, s) == (work, side))
        return {turn: float(value) for turn, value in found if value not in ("", None)}

    def ratios(self, over, under):
        """Of each turn that has both; a number in place of a side is a recorded figure."""
        a, b = (self.values(*x) if isinstance(x, tuple) else x for x in (over, under))
        if isinstance(a, dict) and isinstance(b, dict):
            return [a[turn] / b[turn] for turn in a if turn in b]
        return [value / b for value in a.values()] if isinstance(a, dict) else [a / value for value in b.values()]


def pair(text, aim, work, other, own, column="milliseconds"):
    """The other side's time over ours: how many times as fast we are."""
    return text, aim, (work, other, column), (work, own, column)


def recorded(text, aim, milliseconds, work, side="ours fp32", column="milliseconds"):
    return text, aim, milliseconds, (work, side, column)


def plain(text, aim, work, side, column, unit=1):
    return text, aim, (work, side, column), unit


def both_pairs(text, work, aim, aim_bf16):
    """Against PyTorch, each precision by itself."""
    return [pair("%s, %s, against PyTorch" % (text, side), bound, work, "PyTorch " + side, "ours " + side)
            for side, bound in (("fp32", aim), ("bf16", aim_bf16))]


RESULTS = [
    *both_pairs("ViT-Base step, batch 4", "vit-base-4", ">= 1.2", ">= 1.5"),
    *both_pairs("ViT-Base step, batch 8", "vit-base-8", ">= 1.2", ">= 1.5"),
    *both_pairs("GPT-2 small step, 4 x 64", "gpt2-4x64", ">= 1.35", ">= 1.4"),
    *both_pairs("GPT-2 small step, 4 x 256", "gpt2-4x256", ">= 1.25", ">= 1.4"),
    *both_pairs("GPT-2 small step, 1 x 1024", "gpt2-1x1024", ">= 1.4", ">= 1.4"),
    *both_pairs("vit-cifar step, batch 128", "vit-cifar-128", "", ">= 1.5"),
    *(pair("ViT-Base step, batch %d: memory, ours bf16 / PyTorch bf16" % batch, "<= 0.6", "vit-base-%d" % batch, "ours bf16", "PyTorch bf16",
           "resident_mib") for batch in (4, 8)),
    pair("ViT-Base step, batch 8, our bf16 against our fp32", ">= 1.7 (AMX 3.5)", "vit-base-8", "ours fp32", "ours bf16"),
    *both_pairs("encoder 12 x 768, 197 tokens", "encoder-197", ">= 1.3", ">= 1.3"),
    *both_pairs("encoder 12 x 768, 1,024 tokens", "encoder-1024", ">= 1.3", ">= 1.3"),
    pair("encoder, 197 tokens: time of int8 / our bf16", "<= 0.55", "encoder-197", "ours int8", "ours bf16"),
    pair("encoder, 1,024 tokens: time of int8 / our bf16", "<= 0.55", "encoder-1024", "ours int8", "ours bf16"),
    recorded("encoder, 197 tokens, int8, against llama.cpp Q4_0 (recorded, Zen 4: 176 ms)", ">= 1.3", 176, "encoder-197", "ours int8"),
    *both_pairs("GPT-2 small prefill, 1,024 tokens", "prefill-1024", "", ""),
    *(plain("GPT-2 small prefill, %s, tokens/s" % side, aim, "prefill-1024", "ours " + side, "units_per_second")
      for side, aim in (("fp32", ">= 880"), ("bf16", ">= 1,500"), ("int8", ">= 1,800"))),
    *(plain("  over llama.cpp %s (recorded, Zen 4: %d tokens/s)" % (name, rate), "", "prefill-1024", "ours " + side, "units_per_second", rate)
      for name, rate, side in (("F32", 660, "fp32"), ("BF16", 985, "bf16"), ("Q8_0", 848, "int8"), ("Q4_0", 944, "int4"))),
    pair("GPT-2 small decoding, fp32, against PyTorch", "", "decode-64", "PyTorch fp32", "ours fp32", "decode_milliseconds"),
    pair("GPT-2 small decoding, int4 against our fp32", ">= 3", "decode-64", "ours fp32", "ours int4", "decode_milliseconds"),
    plain("  weights read in int4, % of the memory's rate", ">= 80", "decode-64", "ours int4", "decode_read_percent"),
    *(plain("ASTRA / plain step, %s, %s" % (name, side), aim, work, "ours " + side, "astra_ratio")
      for name, work, aim in (("ViT-Base, batch 8", "astra-vit-base-8", "<= 1.25"), ("vit-cifar, batch 128", "astra-vit-cifar-128", "<= 1.4"))
      for side in ("fp32", "bf16")),
    *(plain(text % side, ">= 90", "vit-base-8", "ours " + side, column) for side in ("fp32", "bf16")
      for text, column in (("ViT-Base step, batch 8, %s: %% inside products", "product_percent"),
                           ("  their rate in %s, %% of the measured peak", "peak_percent"))),
    *(pair("K-means iteration, 50,000 x %d, K = 1024, against %s" % (width, peer), aim, "kmeans-%d" % width, peer, "ours")
      for width, aim in ((768, ">= 1.2"), (24, ">= 4")) for peer in ("scikit-learn", "faiss")),
    recorded("  against faiss, 768 (recorded, Zen 4: 0.52 s)", "", 520, "kmeans-768", "ours"),
    recorded("  against faiss, 24 (recorded, Zen 4: 0.113 s)", "", 113, "kmeans-24", "ours"),
    recorded("GPT-2 small step, 4 x 64, against llm.c (recorded, Zen 4: 4.29 s)", ">= 4", 4290, "gpt2-4x64"),
    recorded("GPT-2 small step, 1 x 1024, against llm.c (recorded, Zen 4: 39.9 s)", ">= 8", 39900, "gpt2-1x1024"),
]


# ---------------------------------------------------------------- running and writing

def read_rows(path):
    if not os.path.exists(path):
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def written(value):
    """Whole numbers whole, however large; others with six digits."""
    if not isinstance(value, float):
        return value
    return "%d" % value if value.is_integer() else "%.6g" % value


def append_row(path, row):
    fresh = not os.path.exists(path) or os.path.getsize(path) == 0
    with open(path, "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if fresh:
            writer.writeheader()
        writer.writerow({name: written(value) for name, value in row.items()})


def number(text):
    return float(text) if text not in ("", None) else float("nan")


def run_work(work, sides, options, rows):
    """Turn after turn, each side once; what the CSV has already is not run again."""
    done = {(row["work"], row["side"], int(row["turn"])) for row in rows}
    missing = set()
    for turn in range(1, options.turns + 1):
        for side, command in sides:
            if (work, side, turn) in done or side in missing:
                continue
            try:
                row = run_once(work, side, turn, command(), options)
            except Missing as reason:
                print("  %-14s %-14s left out: %s" % (work, side, reason), flush=True)
                missing.add(side)
                continue
            append_row(options.csv, row)
            rows.append({name: str(written(value)) for name, value in row.items()})
            print("  %-14s %-14s turn %d  %10.1f ms  %8.0f MiB  others %.0f%%" %
                  (work, side, turn, number(row["milliseconds"]), number(row["resident_mib"]), row["others_percent"]), flush=True)
    counts = {row["parameters"] for row in rows if row["work"] == work and row["parameters"] not in ("", None)}
    if len({float(count) for count in counts}) > 1:
        print("  %s: the sides have different numbers of parameters: %s" % (work, ", ".join(sorted(counts))))


def spread(values, digits=2):
    text = "%.*f" % (digits, statistics.median(values))
    return text if len(values) == 1 else "%s (%.*f-%.*f)" % (text, digits, min(values), digits, max(values))


def meets(aim, value):
    parts = aim.split()
    if len(parts) < 2:
        return ""
    bound = float(parts[1].replace(",", ""))
    return "yes" if (value >= bound if parts[0] == ">=" else value <= bound) else "no"


def side_text(figures, side):
    if not isinstance(side, tuple):
        return "" if side == 1 else "%g (recorded)" % side
    values = list(figures.values(*side).values())
    unit = {"milliseconds": " ms", "decode_milliseconds": " ms", "resident_mib": " MiB"}.get(side[2], "")
    return "%s: %.4g%s" % (side[1], statistics.median(values), unit) if values else ""


def table(rows, markdown=True):
    figures = Figures(rows)
    lines = [("work", "figures, medians of turns", "ratio or value: median (min-max)", "aim", "met")]
    for text, aim, over, under in RESULTS:
        ratios = figures.ratios(over, under)
        if not ratios:
            lines.append((text, "", "not measured", aim, ""))
            continue
        both = "; ".join(part for part in (side_text(figures, over), side_text(figures, under)) if part)
        lines.append((text, both, spread(ratios), aim, meets(aim, statistics.median(ratios))))
    if markdown:
        lines.insert(1, ("---",) * len(lines[0]))
    for line in lines:
        print("| " + " | ".join(cell.strip() if markdown else cell for cell in line) + " |")


def summarise(work, sides, rows):
    figures = Figures(rows)
    for side, _ in sides:
        for column, unit in (("milliseconds", "ms"), ("decode_milliseconds", "ms a decoded token"), ("resident_mib", "MiB resident at most")):
            values = list(figures.values(work, side, column).values())
            if values:
                print("%-14s %12s %s" % (side, spread(values, 1), unit))
    own = sides[0][0]
    for other, _ in sides[1:]:
        for column, text in (("milliseconds", "time"), ("decode_milliseconds", "time of a decoded token"), ("resident_mib", "memory")):
            ratios = figures.ratios((work, other, column), (work, own, column))
            if ratios:
                print("%s / %s, %s: %s in %d turns" % (other, own, text, spread(ratios), len(ratios)))


def machine():
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), platform.processor())
    print("%s, %d processors, load %.2f %.2f %.2f, %s" % (model, os.cpu_count(), *os.getloadavg(), time.strftime("%Y-%m-%d %H:%M")))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["step", "forward", "kmeans", "all", "table"])
    parser.add_argument("file", nargs="?", help="of table")
    parser.add_argument("--preset", default="vit-base")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=0)
    parser.add_argument("--decode", type=int, default=0)
    parser.add_argument("--output", default="answer", choices=["answer", "all"], help="of forward")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--steps", type=int, default=3, help="measured steps, passes or iterations of a process")
    parser.add_argument("--samples", type=int, default=50000)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--entries", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=2, help="of step, forward and kmeans; all: 2")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--only", default="", help="of all: works whose name contains this")
    parser.add_argument("--csv", help="where raw numbers go; all (speed.csv) does not measure again what is there")
    parser.add_argument("--busy", type=float, default=5, help="%% of the processors that others may use")
    parser.add_argument("--wait", type=float, default=120, help="seconds to wait for that")
    return parser.parse_args()


def one_work(o):
    if o.command == "step":
        return [("ours", lambda: step(o.preset, o.batch, o.length, o.precision, 0, o.steps, o.threads)),
                ("PyTorch", lambda: torch_step(o.preset, o.batch, o.length, o.precision, o.steps, o.threads))]
    if o.command == "forward":
        # Rows of a given number go through all of the encoder on both sides.
        output = "all" if o.preset.startswith("vit") and o.length else o.output
        return [("ours", lambda: forward(o.preset, o.length, o.precision, "fp32", o.decode, output, o.steps, o.threads)),
                ("PyTorch", lambda: torch_forward(o.preset, o.length, o.precision, o.decode, output, o.steps, o.threads))]
    return [("ours", lambda: kmeans(o.width, o.samples, o.entries, o.steps, o.threads)),
            ("scikit-learn", lambda: kmeans_peer("sklearn", o.width, o.samples, o.entries, o.steps, o.threads)),
            ("faiss", lambda: kmeans_peer("faiss", o.width, o.samples, o.entries, o.steps, o.threads))]


def main():
    options = parse()
    if options.command == "table":
        table(read_rows(options.file or "speed.csv"))
        return 0
    if not os.path.exists(bench()):
        sys.exit("compare.py: %s is not there: run make first" % bench())
    machine()
    if options.command == "all":
        options.csv, options.threads = options.csv or "speed.csv", 2
        rows = read_rows(options.csv)
        for work, sides in WORKS.items():
            if options.only in work:
                run_work(work, sides, options, rows)
        table(rows, markdown=False)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        kept = options.csv is not None
        options.csv = options.csv or os.path.join(folder, "one.csv")
        rows, sides, work = [], one_work(options), options.command
        run_work(work, sides, options, rows)
        summarise(work, sides, rows)
        if not kept:
            with open(options.csv) as file:
                print("\n" + file.read(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
