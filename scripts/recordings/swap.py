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


def record(work, version, variant, kind, args):
    """Boots one kernel with one LRU kind; returns its recordings as an archive or as files."""
    tree = built.tree_of(work, version, variant)
    arch = guest.arch_of(variant)
    page = guest.page_of(variant)
    own = work / f"swap-{version}-{kind}"
    own.mkdir(exist_ok=True)
    machine = SwapGuest(own, tree, variant)
    machine.modules = guest.Modules(tree).closure(["nvme", "lz4", "lzo-rle", "lzo", "zstd", "zram"])
    files = sorted(args.programs.resolve().glob("*.txt"))
    machine.files = {"programs": None, **{f"programs/{p.name}": p.read_bytes() for p in files}}
    machine.probe = work / "probe" / arch / "cow"
    start = [f"set /sys/kernel/mm/lru_gen/enabled {LISTS[kind]}",
             "set /sys/block/zram0/disksize " + str(SWAP_BYTES),
             f"mkdir {GROUPS}", f"mount none cgroup2 {GROUPS}",
             f"set {GROUPS}/cgroup.subtree_control +memory"]
    words = f" groups={GROUPS} swap={SWAP}"
    lines = cow.commands(files, page, words)
    results = machine.run(work / "probe" / arch, [lines[0], *start, *lines[1:]], 3000)
    if args.plain:
        folder = args.plain / f"{version}_{kind}"
        folder.mkdir(parents=True, exist_ok=True)
        for name, (status, text) in results.items():
            (folder / f"{name}.txt").write_text(text)
            if status:
                print(f"{version} {kind} {name}: {text.strip()[-200:]}", file=sys.stderr)
        return
    cow.save(own, f"{built.archive_name(version, variant)}_{kind}", results, args.out)


def main():
    parser = cow.arguments(__doc__, "swap")
    parser.add_argument("--lists", choices=LISTS, action="append", help="default: both")
    parser.add_argument("--plain", type=pathlib.Path, metavar="DIR",
                        help="text files there instead of an archive")
    args = parser.parse_args()

    def record_one(work, version, variant, _programs, _out):
        for kind in args.lists or LISTS:
            record(work, version, variant, kind, args)

    return cow.record_all(args, ["amd64"], record_one)


if __name__ == "__main__":
    sys.exit(main())
