#!/usr/bin/env python3
"""Runs programs in a memory cgroup on kernels with zswap (recordings/README.md, "zswap").

    scripts/recordings/zswap.py --programs DIR 6.12 7.2
    scripts/recordings/zswap.py --programs DIR 7.2 --kind pool --plain OUT

DIR has a folder per kind of machine, with files `NAME.txt` made by `folio-lab crosscheck cow --zswap ..
--print`. Has the same requirements as record.py, except filesystems.
"""

import pathlib
import sys

import built
import cow
import guest
import swap
from limited import GROUPS, LISTS

VARIANT = "amd64_full"
ZSWAP = "/sys/module/zswap/parameters"
SMALL_MB = 256


class Kind:
    """A kind of machine: where it swaps to, and what limits zswap."""

    def __init__(self, device="/dev/zram0", memory_mb=1536, percent=20, is_kernel_memory_charged=False):
        self.device = device
        self.memory_mb = memory_mb
        self.percent = percent
        self.options = ("" if is_kernel_memory_charged else "cgroup.memory=nokmem ") + "no_timer_check"


KINDS = {
    "zram": Kind(),
    "disk": Kind(device="/dev/@2"),
    "pool": Kind(memory_mb=SMALL_MB, percent=1, is_kernel_memory_charged=True),
    "limit": Kind(),
    "groups": Kind(is_kernel_memory_charged=True),
}


class ZswapGuest(cow.CowGuest):
    """A machine with a disk to swap to, besides the one for results."""

    def disks(self):
        swap_disk = self.work / "swap.img"
        with swap_disk.open("wb") as image:
            image.truncate(swap.SWAP_BYTES)
        return [*super().disks(), swap_disk]


def record(work, version, name, args):
    """Boots one kernel as one kind of machine; returns its recordings as an archive or as files."""
    kind = KINDS[name]
    tree = built.tree_of(work, version, VARIANT)
    page = guest.page_of(VARIANT)
    own = work / f"zswap-{version}-{name}"
    own.mkdir(exist_ok=True)
    machine = ZswapGuest(own, tree, VARIANT)
    machine.memory_mb = kind.memory_mb
    machine.options = kind.options
    machine.modules = guest.Modules(tree).closure(["nvme", "lz4", "lzo-rle", "lzo", "zram"])
    files = sorted((args.programs.resolve() / name).glob("*.txt"))
    machine.files = {"programs": None, **{f"programs/{p.name}": p.read_bytes() for p in files}}
    machine.probe = work / "probe" / "amd64" / "cow"
    start = [f"set /sys/kernel/mm/lru_gen/enabled {LISTS['lists']}",
             f"set /sys/block/zram0/disksize {swap.SWAP_BYTES}",
             f"set {ZSWAP}/max_pool_percent {kind.percent}",
             f"mkdir {GROUPS}", f"mount none cgroup2 {GROUPS}",
             f"set {GROUPS}/cgroup.subtree_control +memory"]
    words = f" groups={GROUPS} swap={kind.device} zswap={kind.percent}"
    lines = cow.commands(files, page, "", words)
    results = machine.run(work / "probe" / "amd64", [lines[0], *start, *lines[1:]], 3000)
    if args.plain:
        folder = args.plain / f"{version}_{name}"
        folder.mkdir(parents=True, exist_ok=True)
        for each, (status, text) in results.items():
            (folder / f"{each}.txt").write_text(text)
            if status:
                print(f"{version} {name} {each}: {text.strip()[-200:]}", file=sys.stderr)
        return
    cow.save(own, f"deb_{version}_amd64_{name}", results, args.out)


def main():
    parser = cow.arguments(__doc__, "zswap")
    parser.add_argument("--kind", choices=KINDS, action="append", help="default: all")
    parser.add_argument("--plain", type=pathlib.Path, metavar="DIR",
                        help="text files there instead of an archive")
    args = parser.parse_args()

    def record_one(work, version, _variant, _programs, _out):
        for name in args.kind or KINDS:
            record(work, version, name, args)

    return cow.record_all(args, ["amd64"], record_one)


if __name__ == "__main__":
    sys.exit(main())
