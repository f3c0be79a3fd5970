"""Room for large folios: free PMD-sized blocks.

A promise cannot know whether the next start finds any, so each judged start finds some.
"""

import mmap
from pathlib import Path

from promised.cases import THP
from promised.measure import PMD

BUDDYINFO = Path("/proc/buddyinfo")
ENABLED = Path(THP) / "enabled"
# The kernel compacts movable pages when advised memory needs a block. It takes free blocks first,
# and other allocations split some meanwhile. So request this multiple of the room.
ASKED = 4
# The kernel pauses compaction after a failure.
NR_ROUNDS = 5


class Fragmented(RuntimeError):
    """Too few blocks could be freed."""


def nr_free_blocks(buddyinfo, order=9):
    """Free blocks of an order; larger ones count in units of it."""
    counts = [[int(word) for word in line.split()[4:]] for line in buddyinfo.splitlines()]
    return sum(nr << at - order for zone in counts for at, nr in enumerate(zone) if at >= order)


def is_room(nr):
    return nr_free_blocks(BUDDYINFO.read_text()) >= nr


def make_room(nr):
    """Frees whole blocks until there are `nr`. Raises Fragmented if that does not work."""
    for _ in range(NR_ROUNDS):
        if is_room(nr):
            return
        gather(ASKED * nr)
    if not is_room(nr):
        found = nr_free_blocks(BUDDYINFO.read_text())
        raise Fragmented(f"memory is fragmented: {found} free blocks of 2M, {nr} are needed")


def gather(nr):
    """Allocates `nr` blocks and frees them whole."""
    old = ENABLED.read_text().split("[")[1].split("]")[0]
    ENABLED.write_text("madvise")
    try:
        with mmap.mmap(-1, nr * PMD, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            memory.madvise(mmap.MADV_HUGEPAGE)
            for at in range(0, len(memory), PMD):
                memory[at] = 1
    finally:
        ENABLED.write_text(old)
