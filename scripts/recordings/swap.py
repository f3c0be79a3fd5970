#!/usr/bin/env python3
"""Runs programs in a memory cgroup with a limit and swap space (recordings/README.md, "Swap").

    scripts/recordings/swap.py --programs DIR 6.12 7.2
    scripts/recordings/swap.py --programs DIR 7.2 --lists generations --plain OUT

DIR holds files `NAME.txt` made by `folio-lab crosscheck cow --swap .. --print`. A kernel is booted once
per LRU kind: classic lists and generations. Swap space is a zram disk. Has the same requirements as
record.py, except filesystems.
"""

import pathlib
import sys

import built
import cow
import guest
from limited import GROUPS, LISTS

SWAP = "/dev/zram0"
SWAP_BYTES = 256 << 20


class SwapGuest(cow.CowGuest):
    """A machine with cgroups that are charged for process pages, but not for kernel memory."""

    options = "cgroup.memory=nokmem no_timer_check"

    def command(self, initramfs, disks):
        """Time passes by instructions: kernels sum the groups' counters every two seconds."""
        return super().command(initramfs, disks) + ["-icount", "shift=0,sleep=off"]


def in_groups(machine, probes, files, settings, words):
    """Runs programs in cgroups, with swap space on zram; returns the results by name."""
    page = guest.page_of(machine.variant)
    first, *others = cow.commands(files, page, f" groups={GROUPS}{words}")
    start = [*settings, f"set /sys/block/zram0/disksize {SWAP_BYTES}",
             f"mkdir {GROUPS}", f"mount none cgroup2 {GROUPS}",
             f"set {GROUPS}/cgroup.subtree_control +memory"]
    return machine.run_programs(probes, files, [first, *start, *others], 3000)


def save(args, work, name, label, results):
    """Writes an archive; with --plain a folder of text files, also of programs that failed."""
    if not args.plain:
        cow.save(work, name, results, args.out)
        return
    folder = args.plain / label
    folder.mkdir(parents=True, exist_ok=True)
    for each, (status, text) in results.items():
        (folder / f"{each}.txt").write_text(text)
        if status:
            print(f"{label} {each}: {text.strip()[-200:]}", file=sys.stderr)


def record(work, version, variant, kind, args):
    """Boots one kernel with one LRU kind."""
    tree = built.tree_of(work, version, variant)
    own = work / f"swap-{version}-{kind}"
    own.mkdir(exist_ok=True)
    machine = SwapGuest(own, tree, variant)
    machine.modules = guest.Modules(tree).closure(["nvme", "lz4", "lzo-rle", "lzo", "zstd", "zram"])
    results = in_groups(machine, work / "probe" / guest.arch_of(variant),
                        sorted(args.programs.resolve().glob("*.txt")),
                        [f"set /sys/kernel/mm/lru_gen/enabled {LISTS[kind]}"], f" swap={SWAP} others=/dev/@1")
    save(args, own, f"{built.archive_name(version, variant)}_{kind}", f"{version}_{kind}", results)


def record_kinds(description, folder, option, kinds, record_kind):
    """The command line of a recorder that boots each kernel once per kind of machine."""
    parser = cow.arguments(description, folder)
    parser.add_argument(option, dest="kinds", choices=kinds, action="append", help="default: all")
    parser.add_argument("--plain", type=pathlib.Path, metavar="DIR",
                        help="text files there instead of an archive")
    args = parser.parse_args()

    def record_one(work, version, variant, _programs, _out):
        for kind in args.kinds or kinds:
            record_kind(work, version, variant, kind, args)

    return cow.record_all(args, ["amd64"], record_one)


if __name__ == "__main__":
    sys.exit(record_kinds(__doc__, "swap", "--lists", LISTS, record))
