"""The kernel's view of each page of a process, read without folio: pagemap and kpageflags.

A second, simple and slow implementation of folio sizes, to compare with `folio maps`.
"""

import os
import pathlib
import re
import struct
from collections import namedtuple

PAGE = os.sysconf("SC_PAGE_SIZE")
# Base pages per contpte block, by base page size (docs/behaviour C.1).
CONTPTE_PAGES = {4 << 10: 16, 16 << 10: 128, 64 << 10: 32}[PAGE]
PRESENT = 1 << 63                # bit of a pagemap entry
PFN = (1 << 55) - 1
HEAD, TAIL = 1 << 15, 1 << 16    # bits of kpageflags
ZERO = 1 << 24
ORDER_MAX = 14                   # folios have at most 2^13 pages of 64K

Area = namedtuple("Area", "start end permissions path")


def areas(pid):
    """Mappings of a process."""
    text = pathlib.Path(f"/proc/{pid}/maps").read_text()
    found = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \d+ *(.*)$", text, re.M)
    return [Area(int(start, 16), int(end, 16), permissions, path)
            for start, end, permissions, path in found]


class Flags:
    """kpageflags, by PFN."""

    def __init__(self):
        self.file = open("/proc/kpageflags", "rb", buffering=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def at(self, pfn):
        data = os.pread(self.file.fileno(), 8, pfn * 8)
        return struct.unpack("=Q", data)[0] if len(data) == 8 else 0

    def folio(self, pfn):
        """A page's folio: its first PFN and page count."""
        head = pfn
        while self.at(head) & TAIL and pfn - head < 1 << ORDER_MAX:
            head -= 1
        if not self.at(head) & HEAD:
            return pfn, 1
        end = head + 1
        while self.at(end) & TAIL and end - head < 1 << ORDER_MAX:
            end += 1
        return head, end - head


def mapped(pid, area):
    """An area's PFNs by page number."""
    nr_pages = (area.end - area.start) // PAGE
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as file:
        data = os.pread(file.fileno(), nr_pages * 8, area.start // PAGE * 8)
    entries = struct.unpack(f"={len(data) // 8}Q", data)
    first = area.start // PAGE
    return {first + at: entry & PFN for at, entry in enumerate(entries) if entry & PRESENT}


def sizes(pid, area):
    """Of an area: mapped bytes by folio size, and bytes in contpte blocks."""
    pfns = mapped(pid, area)
    folios, by_size = {}, {}
    with Flags() as flags:
        for pfn in pfns.values():
            if pfn not in folios:
                head, nr = flags.folio(pfn)
                folios.update((each, (head, nr)) for each in range(head, head + nr))
            size = folios[pfn][1] * PAGE
            by_size[size] = by_size.get(size, 0) + PAGE
    blocks = {page // CONTPTE_PAGES for page in pfns}
    nr_blocks = sum(is_block(block * CONTPTE_PAGES, pfns, folios) for block in blocks)
    return by_size, nr_blocks * CONTPTE_PAGES * PAGE


def zero_bytes(pid, area):
    """Bytes of an area that map the zero page, which no Rss includes."""
    with Flags() as flags:
        return sum(PAGE for pfn in mapped(pid, area).values() if flags.at(pfn) & ZERO)


def is_block(first, pfns, folios):
    """Whether a contpte entry can map the pages from `first`: neighbours in one folio, aligned in
    memory as in the address space."""
    pfn = pfns.get(first)
    if pfn is None or pfn % CONTPTE_PAGES:
        return False
    return all(pfns.get(first + at) == pfn + at and folios[pfn + at] == folios[pfn]
               for at in range(CONTPTE_PAGES))
