#!/usr/bin/env python3
"""Fuzzes the parsers of outside files with libFuzzer, guided by coverage.

    fuzz.py                       every target of fuzz/ for ten seconds
    fuzz.py trace elf             some of them
    fuzz.py --seconds 7200        for longer; --jobs N side by side
    fuzz.py --merge               and keep in fuzz/corpus what reaches more code, in fuzz/hours.csv how long it ran

Each target starts from fuzz/corpus/TARGET, from earlier results (fuzz/corpus/TARGET.tar.xz) and
from this checkout's results (target/fuzz/corpus). A finding is a file in target/fuzz/finds; the
same command with TARGET=FILE repeats it. The instrumentation works with stable Rust; libFuzzer
needs a C++ compiler.
"""

import argparse
import concurrent.futures
import csv
import datetime
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

from built_in import said  # noqa: E402

KEPT = ROOT / "fuzz" / "corpus"
# One line per target of each kept run, with its CPU seconds.
HOURS = ROOT / "fuzz" / "hours.csv"
COLUMNS = ["day", "commit", "target", "seconds", "inputs", "places", "found"]
WORK = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "fuzz"
TARGET = f"{os.uname().machine}-unknown-linux-gnu"
INSTRUMENTED = [
    "--cfg=fuzzing", "-Cpasses=sancov-module", "-Ccodegen-units=1",
    "-Cllvm-args=-sanitizer-coverage-level=4", "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table", "-Cllvm-args=-sanitizer-coverage-trace-compares",
]
# Inputs that must be files; the program ends without removing its directory.
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
# Longer inputs are not kept. A part of a sweep has 60 KiB, too little for an archive of many to
# show more.
KEPT_BYTES_MAX = 96 << 10
# A parser's own limit is 512 MiB. No input may take seconds.
LIMITS = ["-rss_limit_mb=1024", "-malloc_limit_mb=768", "-timeout=10", "-max_len=131072"]


def targets():
    text = (ROOT / "fuzz/src/main.rs").read_text()
    return re.findall(r'^    \("(\w+)", \w+\),$', text, re.M)


def build():
    """Builds the program with all targets."""
    # An explicit target keeps build scripts uninstrumented.
    words = ["cargo", "build", "--quiet", "--release", f"--target={TARGET}", f"--target-dir={WORK}"]
    environment = {**os.environ, "RUSTFLAGS": " ".join(INSTRUMENTED), "CARGO_INCREMENTAL": "0"}
    subprocess.run(words, cwd=ROOT / "fuzz", env=environment, check=True)
    return WORK / TARGET / "release" / "largefolio-fuzz"


def command(program, target, *words):
    """(how it ended and its output, CPU seconds)"""
    words = [program, *LIMITS, *words]
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryDirectory(dir=MEMORY) as place:
        environment = {**os.environ, "FOLIO_FUZZ": target, "RUST_BACKTRACE": "1", "TMPDIR": place}
        child = subprocess.Popen(words, env=environment, stdout=out, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        return subprocess.CompletedProcess(words, child.returncode, out.read()), usage.ru_utime + usage.ru_stime


def fuzz(program, target, seconds):
    """(text to print, its line of HOURS)"""
    corpus, finds = WORK / "corpus" / target, WORK / "finds"
    for folder in (corpus, finds, KEPT / target):
        folder.mkdir(parents=True, exist_ok=True)
    if (packed := KEPT / f"{target}.tar.xz").exists():
        with tarfile.open(packed) as archive:
            archive.extractall(corpus, filter="data")
    words = [f"-max_total_time={seconds}", f"-artifact_prefix={finds}/{target}-", "-print_final_stats=1"]
    dictionary = ROOT / "fuzz" / f"{target}.dict"
    words += [f"-dict={dictionary}"] if dictionary.exists() else []
    done, took = command(program, target, *words, corpus, KEPT / target)
    runs = re.search(r"number_of_executed_units: (\d+)", done.stdout)
    reached = re.findall(r"cov: (\d+) ft: (\d+)", done.stdout)
    is_clean = runs is not None and (done.returncode == 0 or is_late_once(program, target, done.stdout))
    nr_inputs = int(runs[1]) if runs else 0
    places = reached[-1][0] if reached else "?"
    first = reached[0][0] if reached else "?"
    line = [target, round(took), nr_inputs, places, 0 if is_clean else 1]
    if not is_clean:
        return f"{target}: FOUND\n{done.stdout[-4000:]}", line
    return f"{target}: {nr_inputs:,} inputs, {places} places reached ({first} by the corpus), nothing found", line


def is_late_once(program, target, text):
    """Whether a slow input is fast when repeated: the machine was busy."""
    late = re.search(r"written to (\S+-timeout-\S+)", text)
    return late is not None and command(program, target, late[1])[0].returncode == 0


def note(commit, line):
    """Adds a line to HOURS."""
    today = datetime.date.today().isoformat()
    is_new = not HOURS.exists()
    with HOURS.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([COLUMNS] if is_new else [])
        writer.writerow([today, commit, *line])


def told_hours():
    """Sums HOURS."""
    with HOURS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    seconds, nr_found = (sum(int(row[name]) for row in rows) for name in ("seconds", "found"))
    found = f"found {nr_found}" if nr_found else "nothing found"
    return f"{seconds / 3600:.1f} hours of one processor, {found} ({HOURS.relative_to(ROOT)})"


def merge(program, target):
    """Reduces the inputs to a small set with the same coverage; returns their number and the
    archive's bytes.
    """
    merged = WORK / "merged" / target
    shutil.rmtree(merged, ignore_errors=True)
    merged.mkdir(parents=True)
    done, _ = command(program, target, "-merge=1", merged, KEPT / target, WORK / "corpus" / target)
    done.check_returncode()
    kept = [path for path in sorted(merged.iterdir()) if path.stat().st_size <= KEPT_BYTES_MAX]
    packed = KEPT / f"{target}.tar.xz"
    with tarfile.open(packed, "w:xz", format=tarfile.USTAR_FORMAT) as archive:
        for path in kept:
            entry = tarfile.TarInfo(path.name)
            entry.size = path.stat().st_size
            with path.open("rb") as content:
                archive.addfile(entry, content)
    return len(kept), packed.stat().st_size


def fuzz_and_keep(program, target, seconds, commit):
    """(text to print, whether there was no finding); with a commit, keeps the run and its new
    inputs.
    """
    told, line = fuzz(program, target, seconds)
    is_clean = not line[-1]
    if commit:
        note(commit, line)
    if commit and is_clean:
        nr_kept, nr_bytes = merge(program, target)
        told += f"; {nr_kept} inputs kept, {nr_bytes >> 10} KiB"
    return told, is_clean


def repeat(program, target, path):
    done, _ = command(program, target, path)
    print(done.stdout[-4000:])
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET[=FILE]", help=f"of {' '.join(targets())}; else all")
    parser.add_argument("--seconds", type=int, default=10, help="for each target")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--merge", action="store_true")
    args = parser.parse_args()
    chosen = args.targets or targets()
    if unknown := {name.partition("=")[0] for name in chosen} - set(targets()):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(targets())}")
    if not shutil.which("c++"):
        print("SKIPPED: fuzzing. Run: sudo apt-get install g++", file=sys.stderr)
        return 0
    # The tested program's commit: the working tree may change while it runs.
    commit = said("git", "rev-parse", "--short=12", "HEAD") if args.merge else None
    program = build()
    files = [name.partition("=") for name in chosen if "=" in name]
    is_good = all([repeat(program, target, path) for target, _, path in files])
    names = [name for name in chosen if "=" not in name]
    with concurrent.futures.ThreadPoolExecutor(max_workers=args.jobs) as pool:
        running = [pool.submit(fuzz_and_keep, program, name, args.seconds, commit) for name in names]
        for ended in concurrent.futures.as_completed(running):
            told, is_clean = ended.result()
            print(told, flush=True)
            is_good &= is_clean
    if args.merge:
        print(f"in all: {told_hours()}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
