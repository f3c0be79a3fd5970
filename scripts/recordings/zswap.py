#!/usr/bin/env python3
"""Runs programs in a memory cgroup on kernels with zswap (recordings/README.md, "zswap").

    scripts/recordings/zswap.py --programs DIR 6.12 7.2
    scripts/recordings/zswap.py --programs DIR 7.2 --kind pool --plain OUT

DIR has a folder per kind of machine, with files `NAME.txt` made by `folio-lab crosscheck cow --zswap ..
--print`. Has the same requirements as record.py, except filesystems.
"""

import sys

import built
import cow
import guest
import swap
from limited import LISTS

PACKAGED = "amd64_full"     # the cloud kernels lack zswap
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


def record(work, version, variant, name, args):
    """Boots one kernel as one kind of machine."""
    kind = KINDS[name]
    tree = built.tree_of(work, version, PACKAGED)
    own = work / f"zswap-{version}-{name}"
    own.mkdir(exist_ok=True)
    machine = ZswapGuest(own, tree, variant)
    machine.memory_mb = kind.memory_mb
    machine.options = kind.options
    machine.modules = guest.Modules(tree).closure(["nvme", "lz4", "lzo-rle", "lzo", "zram"])
    results = swap.in_groups(machine, work / "probe" / guest.arch_of(variant),
                             sorted((args.programs.resolve() / name).glob("*.txt")),
                             [f"set /sys/kernel/mm/lru_gen/enabled {LISTS['lists']}",
                              f"set {ZSWAP}/max_pool_percent {kind.percent}"],
                             f" swap={kind.device} zswap={kind.percent}")
    swap.save(args, own, f"deb_{version}_amd64_{name}", f"{version}_{name}", results)


if __name__ == "__main__":
    sys.exit(swap.record_kinds(__doc__, "zswap", "--kind", KINDS, record))
