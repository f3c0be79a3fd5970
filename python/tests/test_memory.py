"""This process's own memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import pytest

import largefolio as lf

M2 = 2 << 20


@pytest.fixture
def memory() -> Iterator[mmap.mmap]:
    """Private memory of several PMD folios."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with mmap.mmap(-1, 4 * lf.memory.sizes().pmd_bytes, flags=flags) as found:
        yield found


def collapsed(memory: mmap.mmap) -> lf.memory.Collapsed:
    done = lf.memory.collapse(memory)
    if done.reason in ("no-free-folio", "busy", "cgroup-limit", "old-kernel", "no-thp"):
        pytest.skip(f"SKIPPED: the kernel collapses nothing: {done.why}")
    return done


def test_memory_is_collapsed_seen_and_returned(memory: mmap.mmap) -> None:
    page = lf.memory.sizes().page_bytes
    lf.memory.advise(memory, "no-huge")
    memory[:: 4 * page] = b"\x07" * len(range(0, len(memory), 4 * page))
    before = lf.memory.view(memory)
    assert before.present_bytes == len(memory) // 4
    assert before.reason == "advised-against"
    lf.memory.advise(memory, "huge")
    done = collapsed(memory)
    assert done.reason == "complete"
    assert done.collapsed_bytes == done.fitting_bytes >= 3 * done.folio_bytes
    after = lf.memory.view(memory)
    assert after.huge_bytes in (None, done.collapsed_bytes)
    if after.bytes_by_size is not None:
        assert after.bytes_by_size[done.folio_bytes] == done.collapsed_bytes
        assert sum(after.bytes_by_size.values()) == after.present_bytes
    if after.huge_bytes is None:
        pytest.skip("SKIPPED: this kernel does not show PMD entries")
    unused = lf.memory.waste(memory)
    assert unused.large_bytes >= done.collapsed_bytes
    assert unused.zero_bytes == unused.large_bytes // 4 * 3
    lf.memory.advise(memory, "no-huge")
    assert lf.memory.split(memory, zero_bytes_min=done.folio_bytes).split_bytes == 0
    split = lf.memory.split(memory)
    assert split.split_bytes == split.huge_bytes == done.collapsed_bytes
    assert split.freed_bytes in (0, split.split_bytes // 4 * 3)
    assert memory[:: 4 * page] == b"\x07" * (len(memory) // page // 4)


def test_any_contiguous_buffer_is_taken() -> None:
    for buffer in (bytearray(4 * M2), bytes(4 * M2), memoryview(bytearray(4 * M2))[7:]):
        done = lf.memory.back(buffer)
        assert 4 * M2 - 3 * lf.memory.sizes().page_bytes <= done.range_bytes == done.advised_bytes
        assert lf.memory.view(buffer).mapped_bytes == done.range_bytes
    assert lf.memory.view(b"short").range_bytes == 0
    assert lf.memory.view(bytearray()).reason == "too-short"


def test_what_has_no_contiguous_buffer_is_refused() -> None:
    with pytest.raises(TypeError):
        lf.memory.view("text")
    with pytest.raises(BufferError):
        lf.memory.view(memoryview(bytearray(100))[::2])
    with pytest.raises(ValueError, match="huge or no-huge"):
        lf.memory.advise(bytearray(1), "tiny")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        lf.memory.back(bytearray(1), populate="yes")  # type: ignore[arg-type]
    grown = bytearray(M2)
    lf.memory.view(grown)
    grown.append(1)  # The buffer is no longer held.


def test_populated_memory_keeps_what_it_holds(memory: mmap.mmap) -> None:
    memory[12345] = 42
    done = lf.memory.back(memory, populate=True)
    assert done.populated_bytes == len(memory)
    assert lf.memory.view(memory).present_bytes == len(memory)
    assert memory[12345] == 42


def test_shared_memory_has_its_own_reason() -> None:
    with mmap.mmap(-1, M2) as shared:
        assert lf.memory.view(shared).reason == "not-private"
