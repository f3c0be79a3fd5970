#!/usr/bin/env python3
"""Records reclaim in a memory cgroup with a limit (recordings/README.md, "Limits").

    scripts/recordings/limited.py 6.12 7.2
    scripts/recordings/limited.py 7.2 --lists generations --only '*_hot_*' --detail
    scripts/recordings/limited.py 7.2 --repeat 3    lists in varying.toml the workloads that a kernel does
                                                    not repeat exactly

A kernel is booted once per LRU kind: classic lists and generations. Has the same requirements as
record.py, except btrfs-progs. The set is that of `folio-lab crosscheck workloads --limited`.
"""

import argparse
import fnmatch
import itertools
import json
import pathlib
import subprocess
import sys
import tarfile
import tomllib

import guest
import packages
import record

ROOT = guest.ROOT
LISTS = {"lists": 0, "generations": 7}
GROUPS = "/groups"
# Above the kernel's per-CPU batch (MEMCG_CHARGE_BATCH); see probe/pressure.h.
REFRESH = 130


VARYING = """# Workloads that a kernel does not take the same way each time, with the first step at which a repetition
# differs from the committed recording in what entered or left the page cache; `n`: repetitions.
# Written by scripts/recordings/limited.py --repeat.
"""


class LimitedGuest(guest.Guest):
    """A machine with cgroups that are charged for file and process pages, but not for kernel memory."""

    # On a busy host, the kernel's timer check at boot can miss ticks.
    options = "cgroup.memory=nokmem no_timer_check"

    def kinds(self):
        """The first four disks: no slow one, no btrfs."""
        return super().kinds()[:4]


def workloads(only):
    """The set, as (filesystem, its files, workload)."""
    command = [guest.folio(), "crosscheck", "workloads", "--limited", "--json"]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return [(one["name"], one["files"], row) for one in listed["filesystems"]
            for row in one["workloads"] if fnmatch.fnmatch(row["name"], only)]


def commands(rows, name, kind, is_detailed):
    """The init's list: mounts, files, and before each workload its window and its cgroup."""
    lines = [f"mkdir {record.INSTANCE}", "result /dev/@3",
             f"set {guest.THP}/enabled madvise", *guest.KHUGEPAGED_ASLEEP,
             f"set {guest.THP}/khugepaged/max_ptes_none 0",
             f"set /sys/kernel/mm/lru_gen/enabled {LISTS[kind]}",
             f"mkdir {GROUPS}", f"mount none cgroup2 {GROUPS}",
             f"set {GROUPS}/cgroup.subtree_control +memory"]
    mounted = set()
    for nr, (filesystem, files, row) in enumerate(rows):
        device = record.DEVICES[filesystem]
        used = row["words"]["file"]
        if filesystem not in mounted:
            mounted.add(filesystem)
            lines += [f"mount /dev/{device} {filesystem.partition('-')[0]} /{filesystem}",
                      f"set /sys/block/{device}/queue/max_sectors_kb {record.SECTORS_KB}"]
            lines += [f"sparse /{filesystem}/{file['name']} {file['bytes']}"
                      for file in files if file["name"] == used]
        words = {"fs": filesystem, "ra": row["window_kb"], "sectors": record.SECTORS_KB,
                 "variant": name, "trace": record.INSTANCE, "around": 65536,
                 "group": f"{GROUPS}/{nr}", "refresh": REFRESH, **row["words"],
                 "file": f"/{filesystem}/{used}"}
        limit = words.pop("limit")
        if is_detailed:
            words["detail"] = 1
        text = " ".join(f"{key}={value}" for key, value in words.items())
        lines += [f"mkdir {words['group']}", f"set {words['group']}/memory.max {limit}",
                  f"set /sys/block/{device}/queue/read_ahead_kb {row['window_kb']}",
                  f"run {row['name']} {text}"]
    return lines


def steps_of(text):
    """The pages that entered and left the page cache, step by step."""
    steps = []
    for line in text.splitlines():
        word = line.partition(" ")[0]
        if word in ("N", "T", "B", "L"):
            steps.append([])
        elif word in ("A", "D") and steps:
            steps[-1].append(line)
    return steps


def first_other_step(text, other):
    """Number of the first step at which two recordings differ, or None."""
    both = itertools.zip_longest(steps_of(text), steps_of(other))
    return next((nr for nr, (one, two) in enumerate(both) if one != two), None)


def archived(path):
    """Texts of the recordings in an archive, by workload."""
    with tarfile.open(path) as archive:
        return {pathlib.Path(member.name).stem: archive.extractfile(member).read().decode()
                for member in archive if member.isfile()}


def varying(texts, repeats):
    """{workload: first step at which a repetition differs}, for those that differ."""
    found = {}
    for repeat in repeats:
        for workload, text in repeat.items():
            nr = first_other_step(texts[workload], text) if workload in texts else None
            if nr is not None:
                found[workload] = min(nr, found.get(workload, nr))
    return found


def note_varying(path, name, nr_repeats, found):
    """Writes the section of one kernel with one LRU kind to the file."""
    known = tomllib.loads(path.read_text()) if path.exists() else {}
    # Once a workload has varied, it stays listed.
    before = known.get(name, {"n": 0})
    earliest = {workload: min(nr, before.get(workload, nr)) for workload, nr in found.items()}
    known[name] = {**before, **earliest, "n": before["n"] + nr_repeats}
    sections = (f'\n["{name}"]\n' + "".join(f'"{key}" = {nr}\n' for key, nr in sorted(section.items()))
                for name, section in sorted(known.items()))
    path.write_text(VARYING + "".join(sections))


def recorded(machine, work, lines):
    """Texts by workload, and the failures."""
    results = machine.run(work / "probe" / "amd64", lines, 3000)
    texts = {workload: text for workload, (status, text) in results.items() if status == 0}
    failed = [f"{workload}: {text.strip()}"
              for workload, (status, text) in results.items() if status]
    return texts, failed


def record_one(work, version, kind, out, args):
    """Boots one kernel with one LRU kind; returns the failures."""
    name = f"deb_{version}_amd64_{kind}"
    own = work / f"limited-{version}-{kind}"
    own.mkdir(exist_ok=True)
    machine = LimitedGuest(own, packages.unpack(work, version, "amd64"), "amd64")
    lines = commands(workloads(args.only), f"deb_{version}_amd64", kind, args.detail)
    runs = [recorded(machine, work, lines) for _ in range(max(args.repeat, 1))]
    texts = runs[0][0]
    failed = [f"{version} {kind} {line}" for _, failed in runs for line in failed]
    archive = out / f"{name}.tar.xz"
    if args.repeat and failed:
        return failed
    if args.repeat:
        found = varying(archived(archive), [texts for texts, _ in runs])
        note_varying(out / "varying.toml", name, args.repeat, found)
        print(f"{name}: {len(found)} vary", flush=True)
    elif args.plain:
        folder = args.plain / f"{version}_{kind}"
        folder.mkdir(parents=True, exist_ok=True)
        for workload, text in texts.items():
            (folder / f"{workload}.txt").write_text(text)
    else:
        record.extend(work, archive, name, texts)
        print(f"{name}: {len(texts)} recorded, {archive.stat().st_size >> 10} KiB", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="+", help=" ".join(packages.VERSIONS))
    parser.add_argument("--lists", choices=LISTS, action="append", help="default: both")
    parser.add_argument("--only", default="*", metavar="PATTERN")
    parser.add_argument("--detail", action="store_true",
                        help="with reclaim's events on the LRU lists (lines v and l)")
    parser.add_argument("--repeat", type=int, default=0, metavar="N",
                        help="N times, next to the committed recordings, for varying.toml")
    parser.add_argument("--plain", type=pathlib.Path, metavar="DIR",
                        help="text files there instead of an archive")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target" / "recordings")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "recordings" / "limited")
    args = parser.parse_args()
    if args.repeat and args.only != "*":
        parser.error("--repeat counts repetitions of the whole set: not with --only")
    guest.require(["amd64"], guest.folio())
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    subprocess.run(["make", "-s", "-C", ROOT / "probe", "amd64", f"OUT={work / 'probe'}"],
                   check=True)
    is_complete = True
    for version in args.versions:
        for kind in args.lists or LISTS:
            try:
                failed = record_one(work, version, kind, args.out, args)
            except (packages.Missing, RuntimeError, subprocess.SubprocessError) as error:
                failed = [f"{version} {kind}: {error}"]
            is_complete &= not failed
            for line in failed:
                print(f"  {line}", file=sys.stderr, flush=True)
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
