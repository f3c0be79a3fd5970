"""The kernel's numbers about processes: memory in large folios, and total memory.

Reads only smaps, pagemap and kpageflags, so folio does not judge itself.
"""

import os
import re
from array import array
from contextlib import suppress
from dataclasses import dataclass

PAGE = 4096
PMD = 2 << 20
HEAD, TAIL = 1 << 15, 1 << 16
PRESENT = 1 << 63
PFN = (1 << 55) - 1
LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S+) (\S+) (\S+) (\d+) *(.*)")
PMD_MAPPED = ("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped")


@dataclass
class Area:
    """A mapping in smaps."""

    start: int
    end: int
    identity: tuple
    path: str
    kib: dict[str, int]

    @property
    def is_shared_memory(self):
        # remedies.py judges files on disk.
        return self.path.startswith(("/memfd:", "/dev/zero", "/SYSV", "/dev/shm/")) or "/tmpfs-" in self.path

    @property
    def is_judged(self):
        return not self.kib["ht"] and (not self.path.startswith("/") or self.is_shared_memory)


def areas(pid):
    """The mappings of a process."""
    found = []
    with open(f"/proc/{pid}/smaps") as smaps:
        for line in smaps:
            new = LINE.match(line)
            if new:
                start, end, _, _, device, inode, path = new.groups()
                found.append(Area(int(start, 16), int(end, 16), (device, inode), path, {"ht": 0}))
            elif line.startswith("VmFlags:"):
                found[-1].kib["ht"] = int("ht" in line.split())
            elif line.endswith("kB\n"):
                name, value, _ = line.split()
                found[-1].kib[name[:-1]] = int(value)
    return found


def memory_of(pids):
    """Bytes of the processes' private and shared memory, each page once; swapped pages do not
    count.
    """
    private, shared = 0, {}
    for pid in pids:
        for area in areas(pid):
            if area.is_shared_memory:
                with suppress(OSError):
                    status = os.stat(f"/proc/{pid}/map_files/{area.start:x}-{area.end:x}")
                    shared[status.st_dev, status.st_ino] = status.st_blocks * 512
            elif area.is_judged:
                private += area.kib["Pss"] << 10
    return private + sum(shared.values())


def whole_blocks(pid, area, size, flags):
    """Physical blocks of `size` that the mapping contains completely, aligned and from one folio."""
    first = -(-area.start // size) * size
    nr_pages = size // PAGE
    blocks = set()
    entries = array("Q")
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
        data = os.pread(pagemap.fileno(), max(0, area.end // size * size - first) // PAGE * 8, first // PAGE * 8)
    entries.frombytes(data[:len(data) // 8 * 8])
    for at in range(0, len(entries) - nr_pages + 1, nr_pages):
        pfn = entries[at] & PFN
        if not entries[at] & PRESENT or pfn % nr_pages:
            continue
        if any(entries[at + i] & (PRESENT | PFN) != PRESENT | pfn + i for i in range(1, nr_pages)):
            continue
        kinds = array("Q", os.pread(flags, nr_pages * 8, pfn * 8))
        if kinds[0] & (HEAD | TAIL) and all(one & TAIL for one in kinds[1:]):
            blocks.add(pfn)
    return blocks


def large_of(pid, size):
    """Bytes of one process's judged memory in folios of at least `size`, each page once. For the
    PMD size, only memory mapped by PMD entries.
    """
    blocks, most = set(), 0
    flags = os.open("/proc/kpageflags", os.O_RDONLY)
    try:
        for area in areas(pid):
            mapped = sum(area.kib.get(name, 0) for name in PMD_MAPPED) << 10
            if area.is_judged and (size < PMD or mapped):
                blocks |= whole_blocks(pid, area, size, flags)
                most += mapped
    finally:
        os.close(flags)
    large = len(blocks) * size
    return large if size < PMD else min(large, most)


def family(pid):
    """A process and all its descendants."""
    found, left = [], [pid]
    while left:
        one = left.pop()
        found.append(one)
        with suppress(OSError), open(f"/proc/{one}/task/{one}/children") as children:
            left += [int(word) for word in children.read().split()]
    return found
