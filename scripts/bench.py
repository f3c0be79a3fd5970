#!/usr/bin/env python3
"""Benchmarks of folio on this machine: recording, replay, trace size, peak memory, series 001 and
004.

Rounds are the outer loop, and variants alternate inside a round. Figures are medians with their
minimum and maximum; comparisons are medians of ratios within a round. Times are reported, never
judged. `--smoke` runs everything once and small, as a test. `--base REV` also builds that revision
and compares with it.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KERNEL = "6.18"
MACHINES = ("altra", "cascadelake")


def run(command, env=None):
    """Runs a command: wall seconds, peak resident KiB, standard output."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=output, stderr=errors, env=env)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode()
        if child.returncode != 0:
            errors.seek(0)
            sys.exit(f"{' '.join(map(str, command))}: exit {child.returncode}\n{errors.read().decode()}")
    return seconds, usage.ru_maxrss, text


def compile_input(work, nr_functions):
    """A preprocessed C file of some size, and the command that compiles it."""
    source = work / f"input{nr_functions}.c"
    body = "".join(
        f"int f{i}(int n) {{ int s = {i}; for (int k = 0; k < n; k++) s += s * k ^ {i}; return s; }}\n"
        for i in range(nr_functions)
    )
    source.write_text("#include <stdio.h>\n#include <stdlib.h>\n" + body)
    preprocessed = source.with_suffix(".i")
    subprocess.run(["cc", "-E", source, "-o", preprocessed], check=True)
    compiler = subprocess.run(
        ["cc", "-print-prog-name=cc1"], check=True, capture_output=True, text=True
    ).stdout.strip()
    return [compiler, "-quiet", "-O2", str(preprocessed), "-o", "/dev/null"]


class Series:
    """Figures of one name over the rounds."""

    def __init__(self, unit, digits=1):
        self.unit, self.digits, self.values = unit, digits, []

    def __str__(self):
        d = self.digits
        low, mid, high = min(self.values), statistics.median(self.values), max(self.values)
        return f"{mid:.{d}f} {self.unit}  [{low:.{d}f} .. {high:.{d}f}]  n={len(self.values)}"


def build_base(work, revision):
    """Builds the folio of another revision in a separate work tree."""
    tree = work / "base"
    subprocess.run(["git", "worktree", "add", "--detach", tree, revision], cwd=ROOT, check=True)
    subprocess.run(["cargo", "build", "--release", "--workspace", "--quiet"], cwd=tree, check=True)
    return tree


def one_round(folio, work, command, figures):
    """Records and replays once with one build of folio."""
    trace = work / "bench.folio"
    single = dict(os.environ, RAYON_NUM_THREADS="1")
    native, _, _ = run(command)
    seconds, _, _ = run([folio, "record", "-o", trace, "--", *command])
    info = json.loads(run([folio, "trace", "info", "--json", trace])[2])
    references = info["meta"]["nr_references"]
    figures["record"].values.append(references / seconds / 1e6)
    figures["slowdown"].values.append(seconds / native)
    figures["size"].values.append(trace.stat().st_size / references)
    for machine in MACHINES:
        command = [folio, "predict", trace, "--kernel", KERNEL, "--machine", machine, "--json"]
        seconds, _, _ = run(command, env=single)
        figures[f"replay {machine}"].values.append(references / seconds / 1e6)
    return references


def memory(folio, work, scale):
    """Peak memory of a replay by trace length, with all else equal."""
    peaks = []
    for factor in (1, 16):
        trace = work / f"long{factor}.folio"
        runs = str(scale * factor)
        run([folio, "trace", "gen", "zipf", "-o", trace, "--runs", runs, "--seed", "7"])
        command = [folio, "predict", trace, "--kernel", KERNEL, "--machine", "altra", "--json"]
        peaks.append((int(runs), run(command)[1]))
    return peaks


def has_thp_rights():
    """Whether the per-size settings of transparent huge pages can be changed."""
    knobs = Path("/sys/kernel/mm/transparent_hugepage").glob("hugepages-*kB/enabled")
    return os.geteuid() == 0 and any(os.access(knob, os.W_OK) for knob in knobs)


def micro_benchmarks(folio, is_smoke):
    """The micro-benchmarks of the series, which print their own tables."""
    model = [] if has_thp_rights() else ["--model-only"]
    small = ["--rounds", "1", "--region", "4M"] if is_smoke else []
    for words in (["clear"], ["fault", *model], ["anon", *model], *([] if model else [["anon-cow"]])):
        sizes = ["--size", "4K,2M"] if is_smoke else []
        show([folio.with_name("folio-lab"), "bench", *words, *small, *sizes])
    show([folio.with_name("folio-lab"), "bench", "owners", *(["--rounds", "1", "--calls", "1000"] if is_smoke else [])])


def show(command):
    """Runs a benchmark that prints its own table."""
    print(f"\nfolio {' '.join(map(str, command[1:]))}\n{run(command)[2]}", end="")


def new_figures():
    figures = {
        "record": Series("M references/s"),
        "slowdown": Series("x the program's own time"),
        "size": Series("bytes/reference", 4),
    }
    figures.update({f"replay {m}": Series("M references/s, one core") for m in MACHINES})
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folio", default=ROOT / "target/release/folio", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--base", metavar="REV")
    args = parser.parse_args()
    rounds, functions, scale = (1, 5, 2000) if args.smoke else (args.rounds, 100, 400_000)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        command = compile_input(work, functions)
        builds = {"this": args.folio}
        if args.base:
            builds["base"] = build_base(work, args.base) / "target/release/folio"
        try:
            figures = {build: new_figures() for build in builds}
            for _ in range(rounds):
                for build, folio in builds.items():
                    references = one_round(folio, work, command, figures[build])
            print(f"cc1 -O2, {functions} functions: {references / 1e6:.1f} M references")
            for name, series in figures["this"].items():
                print(f"  {name:20} {series}")
                if args.base:
                    pairs = zip(series.values, figures["base"][name].values)
                    ratios = sorted(a / b for a, b in pairs)
                    print(f"  {'':20} this/base {statistics.median(ratios):.3f} [{ratios[0]:.3f} .. {ratios[-1]:.3f}]")
            for runs, peak in memory(args.folio, work, scale):
                print(f"  replay of {runs:>9} rows: peak {peak / 1024:.1f} MiB")
            micro_benchmarks(args.folio, args.smoke)
        finally:
            if args.base:
                subprocess.run(["git", "worktree", "remove", "--force", work / "base"], cwd=ROOT)


if __name__ == "__main__":
    main()
