#!/usr/bin/env python3
"""Checks that recordings judge the kernel code of kernel/: each mutant must be noticed.

    scripts/recordings/kernel_mutants.py
    scripts/recordings/kernel_mutants.py --only 'window*'

A mutant is a change of one place in a file of kernel/ (kernel/mutants.toml). Its kernel is built
and records some workloads, and `folio-lab crosscheck replay` compares. One with `report` must end the
recording instead: its kernel checks itself and reports that. Has the same requirements as record.py.
"""

import argparse
import fnmatch
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib

import built
import collapse
import cow
import guest
import packages
import record
import stress

LIST = built.FEATURES / "mutants.toml"


def changed(text, mutant):
    """A file's text with the mutant in it."""
    if text.count(mutant["from"]) != 1:
        raise packages.Missing(f"{mutant['name']}: {mutant['file']} has {text.count(mutant['from'])}"
                               f" times {mutant['from']!r}, not once")
    return text.replace(mutant["from"], mutant["to"])


def record_programs(work, mutant, out):
    """Records random programs: `programs` has the words for `folio-lab crosscheck`."""
    words = mutant["programs"].split()
    done = subprocess.run([guest.folio(), "crosscheck", *words, "--print"], check=True,
                          capture_output=True, text=True)
    is_cow = words[0] == "cow"
    folder = out / "programs" / ("4K" if is_cow else "")
    folder.mkdir(parents=True)
    (folder / ("disk.txt" if "--disk" in words else "some.txt")).write_text(done.stdout)
    if is_cow:
        # Some mistakes are in the machine's counts alone.
        cow.record(work, mutant["kernel"], mutant["variant"], out / "programs", out, " machine")
    else:
        collapse.record(work, mutant["kernel"], mutant["variant"], out / "programs", out)
    shutil.rmtree(out / "programs")


def record_mutant(work, mutant, out):
    """Records a mutant: a stress run, random programs, or workloads."""
    if "stress" in mutant:
        stress.run(work, mutant["kernel"], mutant["variant"], mutant["stress"], seed=1)
    elif "programs" in mutant:
        record_programs(work, mutant, out)
    else:
        args = argparse.Namespace(out=out, only=mutant["workloads"], again="", random=None)
        if failed := record.record(args, work, mutant["kernel"], mutant["variant"]):
            raise packages.Missing(f"{mutant['name']}: {failed[0]}")


def is_found(work, mutant, features):
    """Builds and records one mutant; whether its kernel reports it, or a recording differs from the
    model.
    """
    path = features / mutant["file"]
    path.write_text(changed(path.read_text(), mutant))
    out = work / "mutants" / mutant["name"]
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    try:
        record_mutant(work, mutant, out)
    except guest.Complained as complaint:
        print(f"  {complaint}", flush=True)
        return mutant.get("report", "") in str(complaint)
    if "report" in mutant:
        return False
    done = subprocess.run([guest.folio(), "crosscheck", "replay", out], capture_output=True,
                          text=True, check=False)
    if done.returncode not in (0, 1):
        raise packages.Missing(f"{mutant['name']}: {done.stderr.strip()}")
    return done.returncode == 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="PATTERN", default="*")
    parser.add_argument("--work", type=pathlib.Path, default=guest.ROOT / "target" / "recordings")
    args = parser.parse_args()
    mutants = [one for one in tomllib.loads(LIST.read_text())["mutant"]
               if fnmatch.fnmatch(one["name"], args.only)]
    guest.require({one["variant"] for one in mutants}, guest.folio())
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    record.make_probe(work)
    own = built.FEATURES
    missed = []
    for mutant in mutants:
        with tempfile.TemporaryDirectory() as scratch:
            built.FEATURES = pathlib.Path(scratch) / "kernel"
            shutil.copytree(own, built.FEATURES)
            found = is_found(work, mutant, built.FEATURES)
        word = "NOT NOTICED" if not found else "reported" if "report" in mutant else "differs"
        print(f"{mutant['name']}: {word}", flush=True)
        missed += [] if found else [mutant["name"]]
    if missed:
        print(f"{len(missed)} of {len(mutants)} were not noticed", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
