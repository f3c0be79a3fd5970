#!/usr/bin/env python3
"""Runs many processes at the same time on kernels of kernel/ and reports their complaints.

    scripts/recordings/stress.py 7.3-largefolio-checked
    scripts/recordings/stress.py '73_*-checked' 'policy_612_*-checked' --seconds 30

A build (the first form) runs twice per filesystem: with all settings off, and with settings that
change at random. A kernel with settings or a policy keeps them. probe/stress.c says what runs. A report
on the console, or a process that hangs, is an error. Has the same requirements as record.py.
"""

import argparse
import fnmatch
import pathlib
import subprocess
import sys

import built
import collapse
import guest
import packages
import record

FILES = ["a", "b", "c", "d"]
FILE_BYTES = 6 << 20
POOL = 8                     # huge pages of 2 MiB
POOL_FILE = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
SECONDS = 30                 # per filesystem
HUNG_SECONDS = 60            # the kernel reports a process that waits longer
FULL_KB = [16, 64, 2048]     # folio sizes for private memory
KHUGEPAGED = f"{guest.THP}/khugepaged"


class StressGuest(collapse.CollapseGuest):
    """A machine with two CPUs and a disk per filesystem."""

    cpus = 2
    memory_mb = 1024


def commands(disks, runs, words):
    """The init's list. `runs` has names, and words that differ; `words` are for each run."""
    lines = ["result /dev/@1", f"set {guest.THP}/enabled madvise",
             f"set /proc/sys/kernel/hung_task_timeout_secs {HUNG_SECONDS}",
             f"set {KHUGEPAGED}/scan_sleep_millisecs 20", f"set {KHUGEPAGED}/pages_to_scan 4096",
             f"set {POOL_FILE} {POOL}"]
    lines += [f"set {guest.THP}/hugepages-{kb}kB/enabled madvise" for kb in FULL_KB]
    for nr, disk in enumerate(collapse.DISKS, 2):
        if disk in disks:
            lines.append(f"mount /dev/@{nr} {disk.partition('-')[0]} /{disk}")
            lines += [f"make /{disk}/{name} {FILE_BYTES}" for name in FILES]
    lines += [f"run {name}_{disk} dir=/{disk} {words}{more}"
              for name, more in runs for disk in disks]
    return lines


def runs_of(name):
    """Names and words of a kernel's runs."""
    if "kernel" in built.KERNELS[name]:
        return [("fixed", "")]
    return [("off", ""), ("random", f" settings={built.SETTINGS}")]


def run(work, name, variant, seconds, seed):
    """Boots one kernel; returns the counts of its runs."""
    tree = built.tree_of(work, name, variant)
    machine = StressGuest(work, tree, variant)
    machine.modules = {}
    built.equip(machine, name)
    # With a kernel that can choose: each task can be preempted anywhere.
    machine.options += " preempt=full"
    machine.probe = work / "probe" / guest.arch_of(variant) / "stress"
    disks = [disk for disk in collapse.DISKS if not built.lacks(name, disk)]
    lines = commands(disks, runs_of(name), f"seconds={seconds} seed={seed}")
    if policy := built.policy(name):
        lines = machine.under_policy(policy, machine.probe, lines)
    return machine.run(work / "probe" / guest.arch_of(variant), built.settings(name) + lines,
                       300 + 6 * seconds * sum(line.startswith("run ") for line in lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="+", metavar="PATTERN", help=" ".join(built.KERNELS))
    parser.add_argument("--variant", default="amd64")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="of each run (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--counts", action="store_true", help="print what ran how often")
    parser.add_argument("--work", type=pathlib.Path, default=guest.ROOT / "target" / "recordings")
    args = parser.parse_args()
    names = [name for name in built.KERNELS if args.variant in built.variants(name)
             and any(fnmatch.fnmatch(name, pattern) for pattern in args.kernels)]
    if not names:
        sys.exit(f"no kernel is called {' '.join(args.kernels)}; there are {' '.join(built.KERNELS)}")
    guest.require([args.variant])
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    record.make_probe(work)
    is_quiet = True
    for name in names:
        try:
            results = run(work, name, args.variant, args.seconds, args.seed)
        except (packages.Missing, RuntimeError, subprocess.SubprocessError) as error:
            print(f"  {name}: {error}", file=sys.stderr, flush=True)
            is_quiet = False
            continue
        for each, (status, text) in results.items():
            total = sum(int(line.split()[1]) for line in operations(text))
            print(f"{name} {each}: {total} operations" + (", FAILED" if status else ""), flush=True)
            if args.counts or status:
                print(text, flush=True)
            is_quiet &= status == 0
    return 0 if is_quiet else 1


def operations(text):
    """The lines of a result that count operations: those before the kernel's counts."""
    lines = text.splitlines()[1:]
    ends = [at for at, line in enumerate(lines) if "_" in line]
    return lines[:min(ends, default=len(lines))]


if __name__ == "__main__":
    sys.exit(main())
