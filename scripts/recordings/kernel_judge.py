#!/usr/bin/env python3
"""Judges kernels with settings (kernel/): records, compares with the model, and counts.

    scripts/recordings/kernel_judge.py '73_*' --seed 960000 --out DIR
    scripts/recordings/kernel_judge.py 73_copy 73_copy-checked --kind programs --out DIR

Each kernel records the workload set, random workloads, and random programs of the kind that its
settings concern. A row per kernel says how many equal the model; those that differ are named. What DIR
already has is compared without a boot, so a stopped run continues. Has the same requirements as
record.py.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import fnmatch
import json
import pathlib
import subprocess
import sys

import built
import collapse
import cow
import guest
import packages
import programs
import record

KINDS = ["set", "random", "programs"]
# By setting: the verb of `folio-lab crosscheck` that makes its programs, and more words. The last
# setting of a kernel that is here decides.
PROGRAMS = {
    "owners_max": ("cow", []),
    "pmd_counts": ("cow", []),
    # Files in memory have base pages, so only files on disks are copied several pages at once.
    "copy": ("collapse", ["--disk"]),
    "file_collapse": ("collapse", ["--disk"]),
    "collapse_sizes": ("collapse", ["--disk", "--any-size"]),
}
SHARED = ["build", "debs", "kernels", "probe", "sources"]     # of the work folder, by all machines


def programs_of(name):
    """What makes a kernel's programs, or None if its settings concern file workloads alone."""
    keys = [each.partition("=")[0] for each in built.KERNELS[name].get("settings", [])]
    return next((PROGRAMS[key] for key in reversed(keys) if key in PROGRAMS), None)


def sets_of(verb, words, number, seed):
    """Files of `number` programs in all: name, folio sizes, number and seed of the first."""
    if "--disk" in words:
        return [("disk", "2M", number, seed)]
    listed = programs.SETS[4] if verb == "cow" else programs.COLLAPSE
    share = -(-number // len(listed))
    return [(name, sizes, share, seed + at * share)
            for at, (name, sizes, *_) in enumerate(listed)]


def write_programs(folder, verb, words, sets):
    """Writes a kernel's programs where its recorder expects them."""
    folder = folder / "4K" if verb == "cow" else folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, sizes, number, seed in sets:
        command = [guest.folio(), "crosscheck", verb, "--programs", str(number), "--seed", str(seed),
                   "--sizes", sizes, "--page", "4K", *words, "--print"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        (folder / f"{name}.txt").write_text(text)


def own_work(work, name, kind):
    """A work folder for one boot, with the shared kernels: several machines can run at once."""
    folder = work / "judge" / f"{name}_{kind}"
    folder.mkdir(parents=True, exist_ok=True)
    for each in SHARED:
        (work / each).mkdir(exist_ok=True)
        if not (folder / each).exists():
            (folder / each).symlink_to(work / each)
    return folder


def record_one(args, work, name, kind):
    """Records one kind on one kernel unless the archive exists; returns the archive, or None if
    the kernel has no such programs.
    """
    out = args.out / kind
    out.mkdir(parents=True, exist_ok=True)
    archive = out / (built.archive_name(name, "amd64") + ("_random" if kind == "random" else "")
                     + ".tar.xz")
    if kind == "programs" and not programs_of(name):
        return None
    if archive.exists():
        return archive
    folder = own_work(work, name, kind)
    if kind != "programs":
        words = argparse.Namespace(out=out, only="*", again="", seed=args.seed,
                                   random=args.number if kind == "random" else None)
        if failed := record.record(words, folder, name, "amd64"):
            raise packages.Missing(f"{len(failed)} not recorded: {failed[0]}")
        return archive
    verb, words = programs_of(name)
    texts = folder / "programs"
    write_programs(texts, verb, words, sets_of(verb, words, args.number, args.seed))
    if verb == "cow":
        cow.record(folder, name, "amd64", texts, out, words=" machine")
    else:
        collapse.record(folder, name, "amd64", texts, out)
    return archive


def outcomes(archive):
    """How many recordings have each outcome, and the names of those that differ."""
    done = subprocess.run([guest.folio(), "crosscheck", "replay", archive, "--json"],
                          capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise packages.Missing(f"{archive.name}: {done.stderr.strip()}")
    rows = json.loads(done.stdout)["rows"]
    return (collections.Counter(row["outcome"] for row in rows),
            [row["name"] for row in rows if row["outcome"] == "different"])


def judge(args, work, name, kind):
    """One cell of the table, and the names that differ."""
    archive = record_one(args, work, name, kind)
    if not archive:
        return "", []
    counts, different = outcomes(archive)
    compared = counts["equal"] + counts["different"]
    skipped = sum(counts.values()) - compared
    return (f"{counts['equal']} of {compared}" + (f", {skipped} skipped" if skipped else ""),
            different)


def row_of(cells):
    """The cells of a row when they are there, and what differs or failed."""
    row, differing = [], []
    for cell in cells:
        try:
            text, different = cell.result()
        except (packages.Missing, RuntimeError, OSError, subprocess.SubprocessError) as error:
            text, different = "failed", [str(error)]
        row.append(text)
        differing += different
    return row, differing


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="+", metavar="PATTERN", help=" ".join(built.KERNELS))
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--number", type=int, default=500,
                        help="random workloads, and programs, per kernel [default: 500]")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="machines at once [default: 2]")
    parser.add_argument("--work", type=pathlib.Path, default=guest.ROOT / "target" / "recordings")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    names = [name for name in built.KERNELS if "amd64" in built.variants(name)
             and any(fnmatch.fnmatch(name, pattern) for pattern in args.kernels)]
    if not names:
        sys.exit(f"no kernel is called {' '.join(args.kernels)}; there are {' '.join(built.KERNELS)}")
    guest.require(["amd64"], guest.folio())
    args.out, work = args.out.resolve(), args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    record.make_probe(work)
    for name in names:                   # one build at a time
        built.tree_of(work, name, "amd64")
    kinds = args.kind or KINDS
    is_equal, table = True, sys.stdout
    with contextlib.redirect_stdout(sys.stderr), \
            concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        cells = {(name, kind): pool.submit(judge, args, work, name, kind)
                 for name in names for kind in kinds}
        print(f"| kernel | {' | '.join(kinds)} |\n{'|---' * (len(kinds) + 1)}|", file=table)
        for name in names:
            row, differing = row_of([cells[name, kind] for kind in kinds])
            print(f"| `{name}` | {' | '.join(row)} |", file=table, flush=True)
            for each in differing:
                print(f"  {each}", flush=True)
            is_equal &= not differing
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
