#!/usr/bin/env python3
"""Replay speed of folio and other simulators on one program, in interleaved rounds.

Debian or pip provide the peers. valgrind's cachegrind and lackey run the program themselves;
libCacheSim and folio read a trace of it, one request or row per run of references to a page. Each
is timed as a user runs it, with start-up and reading. Speed is the program's memory references per
second. The simulated hardware differs and is printed. Ratios are medians of ratios within a round.
`--smoke` runs everything once on a small program, as a test.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from bench import ROOT, compile_input, run

VENV = ROOT / "target/peers"
PACKAGES = ["libcachesim==0.3.5", "pyarrow"]
# Pages in a libCacheSim cache: entries of a current second-level TLB.
NR_PAGES = 1536
KERNELS, MACHINES = "6.12,6.18,7.2", "altra,cascadelake"

# Converts rows of references to libCacheSim's binary format `oracleGeneral`.
CONVERT = """
import sys, numpy, pyarrow.compute, pyarrow.parquet
table = pyarrow.parquet.read_table(sys.argv[1], columns=["op", "addr"])
is_reference = pyarrow.compute.is_in(table["op"], value_set=pyarrow.array(["exec", "read", "write"]))
pages = table.filter(is_reference)["addr"].to_numpy() // 4096
layout = [("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next", "<i8")]
requests = numpy.zeros(len(pages), dtype=layout)
requests["object"], requests["size"], requests["next"] = pages, 1, -2
requests.tofile(sys.argv[2])
print(len(pages))
"""
CACHE = """
import sys, libcachesim
reader = libcachesim.TraceReader(sys.argv[2], libcachesim.TraceType.ORACLE_GENERAL_TRACE)
print(getattr(libcachesim, sys.argv[1])(int(sys.argv[3])).process_trace(reader)[0])
"""


class Subject:
    """One simulator: its simulated hardware, its command, and its number of passes over the trace."""

    def __init__(self, name, simulates, command, cores=1, passes=1):
        self.name, self.simulates, self.passes = name, simulates, passes
        self.runs_program = "valgrind" in str(command[0])
        self.command = [str(word) for word in command]
        self.env = dict(os.environ, RAYON_NUM_THREADS=str(cores))
        self.seconds = []

    def round(self):
        self.seconds.append(run(self.command, env=self.env)[0])


def python_with_peers():
    """Python of an environment with libCacheSim, or None if pip cannot provide it."""
    python = VENV / "bin/python"
    try:
        if not python.exists():
            venv.create(VENV, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True, timeout=600)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"libCacheSim is omitted: {error}", file=sys.stderr)
        return None
    return python


def program(work, is_smoke):
    """The simulated command: a small one, or a compiler."""
    return [shutil.which("true")] if is_smoke else compile_input(work, 1)


def valgrind_subjects(command):
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print("cachegrind and lackey are omitted: apt-get install valgrind", file=sys.stderr)
        return []
    caches = [valgrind, "--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"]
    trace = [valgrind, "--tool=lackey", "--trace-mem=yes", "--log-file=/dev/null"]
    return [
        Subject("cachegrind", "I1, D1, LL caches; runs the program", [*caches, *command]),
        Subject("lackey", "nothing: prints references; runs the program", [*trace, *command]),
    ]


def cache_subjects(work, trace):
    python = python_with_peers()
    if python is None:
        return [], None
    requests = work / "program.oracle"
    nr_requests = int(run([python, "-c", CONVERT, trace, requests])[2])
    subjects = [
        Subject(f"libCacheSim {policy}", f"one cache of {NR_PAGES:,} pages",
                [python, "-c", CACHE, policy, requests, NR_PAGES])
        for policy in ("LRU", "FIFO")
    ]
    return subjects, nr_requests


def folio_subjects(folio, trace):
    """One cell on one core, and six cells on one core and on all."""
    cell = [folio, "predict", trace, "--kernel", "6.18", "--machine", "cascadelake", "--json"]
    cells = [folio, "predict", trace, "--kernel", KERNELS, "--machine", MACHINES, "--csv"]
    what = "two TLB levels, page walks, memory manager, costs"
    cores = os.cpu_count()
    return [
        Subject("folio", what, cell),
        Subject("folio, 6 cells", what, cells, passes=6),
        Subject(f"folio, 6 cells, {cores} cores", what, cells, cores=cores, passes=6),
    ]


def spread(values, digits):
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f} [{low:.{digits}f} .. {high:.{digits}f}]"


def show(subjects, reference, nr_references, nr_rows):
    """One line per subject; ratios to `reference` within each round."""
    print(f"{'':26} {'M references/s':>26} {'M rows/s':>9} {'folio is faster by':>26}")
    for subject in subjects:
        speed = [nr_references * subject.passes / s / 1e6 for s in subject.seconds]
        rows = f"{statistics.median(speed) * nr_rows / nr_references:.2f}"
        rows = "-" if subject.runs_program else rows
        ratios = [
            (s / subject.passes) / (r / reference.passes)
            for s, r in zip(subject.seconds, reference.seconds)
        ]
        print(f"{subject.name:26} {spread(speed, 1):>26} {rows:>9} {spread(ratios, 2):>26}  {subject.simulates}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folio", default=ROOT / "target/release/folio", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        command = program(work, args.smoke)
        trace = work / "program.folio"
        run([args.folio, "record", "-o", trace, "--", *command])
        info = json.loads(run([args.folio, "trace", "info", "--json", trace])[2])
        nr_references = info["meta"]["nr_references"]
        nr_rows = sum(op["nr_rows"] for op in info["ops"].values())
        caches, nr_requests = cache_subjects(work, trace)
        own = folio_subjects(args.folio, trace)
        subjects = [*valgrind_subjects(command), *caches, *own]
        for _ in range(1 if args.smoke else args.rounds):
            for subject in subjects:
                subject.round()
        print(f"\n{Path(command[0]).name}: {nr_references / 1e6:.1f} M references, {nr_rows:,} rows; n={len(own[0].seconds)}")
        if nr_requests is not None:
            print(f"libCacheSim: {nr_requests:,} requests")
        show(subjects, own[0], nr_references, nr_rows)


if __name__ == "__main__":
    main()
