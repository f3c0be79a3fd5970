#!/usr/bin/env python3
"""Runs programs about NUMA on packaged kernels with two nodes (recordings/README.md, "Nodes").

    scripts/recordings/nodes.py --programs DIR 6.12 7.3

DIR/4K holds files `NAME.txt` made by `folio-lab crosscheck nodes --programs N --sizes .. --print`.
The machine has two nodes with a CPU and 1 GiB each. Has the same requirements as record.py.
"""

import sys

import built
import cow
import guest

NODE_MB = 1024
# Programs wait for NUMA balancing.
SECONDS = 7200
BALANCING = ["set /proc/sys/kernel/numa_balancing 0"]
# A program decides when NUMA balancing marks its pages (`hint`), and waits for it.
BALANCER = "/sys/kernel/debug/sched/numa_balancing"
BALANCING += [f"set {BALANCER}/{name} {value}" for name, value in
              [("scan_delay_ms", 1), ("scan_period_min_ms", 10), ("scan_period_max_ms", 20),
               ("scan_size_mb", 64)]]


class NodesGuest(cow.CowGuest):
    """A machine with two nodes."""

    memory_mb = 2 * NODE_MB

    def command(self, initramfs, disks):
        words = super().command(initramfs, disks)
        words[words.index("-smp") + 1] = "2,sockets=2"
        for node in range(2):
            words += ["-object", f"memory-backend-ram,id=m{node},size={NODE_MB}M",
                      "-numa", f"node,nodeid={node},cpus={node},memdev=m{node}"]
        return words


def record(work, version, variant, programs, out):
    """Boots one kernel; returns its recordings as an archive."""
    tree = built.tree_of(work, version, variant)
    page = guest.page_of(variant)
    machine = NodesGuest(work, tree, variant)
    machine.modules = guest.Modules(tree).closure(["nvme"])
    files = sorted((programs / f"{page >> 10}K").glob("*.txt"))
    first, *others = cow.commands(files, page)
    results = machine.run_programs(work / "probe" / guest.arch_of(variant), files,
                                   [first, *BALANCING, *others], SECONDS)
    cow.save(work, built.archive_name(version, variant), results, out)


def main():
    parser = cow.arguments(__doc__, "nodes")
    args = parser.parse_args()
    return cow.record_all(args, ["amd64"], record)


if __name__ == "__main__":
    sys.exit(main())
