"""Large folios for this process's own memory.

Each function takes any object with a contiguous buffer: a NumPy array, a ``bytearray``, an
``mmap``, a ``memoryview``. It works on the whole pages in the buffer, keeps their contents, and runs
without the GIL.

    >>> import largefolio as lf
    >>> cache = bytearray(16 << 20)
    >>> lf.memory.back(cache).range_bytes > 15 << 20
    True

A number that the kernel does not show is ``None``. ``reason`` says in a word why the memory has no
larger folios, and ``why`` in a sentence.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from largefolio import _native
from largefolio._checks import switch, whole

__all__ = [
    "Backed",
    "Collapsed",
    "Sizes",
    "Split",
    "View",
    "Waste",
    "advise",
    "back",
    "collapse",
    "sizes",
    "split",
    "view",
    "waste",
]

_ZERO_BYTES_MAX = 2**63 - 1
# PyBUF_ANY_CONTIGUOUS of Python's C interface.
_CONTIGUOUS = 0x98


class _Buffer(ctypes.Structure):
    """``Py_buffer``."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    ]


_get = ctypes.pythonapi.PyObject_GetBuffer
_get.argtypes = [ctypes.py_object, ctypes.POINTER(_Buffer), ctypes.c_int]
_get.restype = ctypes.c_int
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes = [ctypes.POINTER(_Buffer)]
_release.restype = None


@contextmanager
def _held(memory: Any) -> Iterator[tuple[int, int]]:
    """Address and length of an object's buffer, which stays in place meanwhile."""
    buffer = _Buffer()
    # Raises the object's own error: TypeError without a buffer, BufferError for a strided one.
    _get(memory, ctypes.byref(buffer), _CONTIGUOUS)
    try:
        yield buffer.buf or 0, buffer.len
    finally:
        _release(ctypes.byref(buffer))


@dataclass(frozen=True)
class Sizes:
    """Folio sizes that private memory of this process gets now; 0: only base pages."""

    page_bytes: int
    pmd_bytes: int
    """The largest folio: one PMD entry of the page table maps it."""
    always_bytes: int
    """Without advice."""
    advised_bytes: int
    """With the advice of :func:`back`."""


@dataclass(frozen=True)
class Backed:
    """What :func:`back` did."""

    range_bytes: int
    """In whole pages."""
    folio_bytes: int
    """Largest size that fits and that the kernel gives advised memory now, or 0."""
    fitting_bytes: int
    """In whole, naturally aligned blocks of that size."""
    advised_bytes: int
    populated_bytes: int
    collapsed_bytes: int
    reason: str
    """What prevents the folios. After ``populate`` or ``collapse``, the reason of :func:`view`;
    otherwise ``advised`` if nothing is known to prevent them."""
    why: str


@dataclass(frozen=True)
class View:
    """What :func:`view` saw."""

    range_bytes: int
    mapped_bytes: int
    present_bytes: int
    swapped_bytes: int
    folio_bytes: int
    """Largest size that fits and that the kernel gives this memory now, or 0."""
    fitting_bytes: int
    """In whole, naturally aligned blocks of that size."""
    zero_page_bytes: int | None
    """Mapped to the shared zero page, which takes no memory."""
    huge_bytes: int | None
    """Mapped by PMD entries."""
    bytes_by_size: dict[int, int] | None
    """Bytes by folio size; ``None`` without ``CAP_SYS_ADMIN``."""
    reason: str
    why: str


@dataclass(frozen=True)
class Waste:
    """Memory in large folios, and how much of it holds only zeros."""

    large_bytes: int
    zero_bytes: int
    unreadable_bytes: int
    has_all_sizes: bool
    """False: only folios under PMD entries were seen."""


@dataclass(frozen=True)
class Collapsed:
    """What :func:`collapse` did."""

    folio_bytes: int
    fitting_bytes: int
    collapsed_bytes: int
    reason: str
    why: str


@dataclass(frozen=True)
class Split:
    """What :func:`split` did."""

    huge_bytes: int
    """Under PMD entries before."""
    split_bytes: int
    """Of them in base pages now."""
    freed_bytes: int
    """Of them given back."""


def sizes() -> Sizes:
    """Returns the folio sizes that the settings and prctl(2) allow now."""
    return Sizes(**_native.memory_sizes())


def back(memory: Any, *, populate: bool = False, collapse: bool = False) -> Backed:
    """Asks for the largest folios that the kernel gives.

    Args:
        memory: an object with a contiguous buffer.
        populate: use all pages now, as a write would.
        collapse: move pages that are already in smaller folios.

    With ``populate`` or ``collapse``, the reason can cost as much as :func:`view`.

    Raises:
        OSError: the kernel denies a call or has no memory. A setting that gives no folios is a
            ``reason``, not an error.
    """
    populated, collapsed = switch(populate, "populate"), switch(collapse, "collapse")
    with _held(memory) as held:
        return Backed(**_native.memory_back(held, populated, collapsed))


def view(memory: Any) -> View:
    """Shows which folio sizes the memory has, and why no larger ones.

    Raises:
        OSError: ``/proc/self/smaps`` or ``pagemap`` cannot be read.
    """
    with _held(memory) as held:
        found = _native.memory_view(held)
    by_size = found.pop("bytes_by_size")
    return View(bytes_by_size=None if by_size is None else dict(by_size), **found)


def waste(memory: Any) -> Waste:
    """Counts the all-zero pages in large folios. Brings no page into memory.

    Raises:
        OSError: the kernel does not show large folios (before Linux 6.7, without root).
    """
    with _held(memory) as held:
        return Waste(**_native.memory_waste(held))


def collapse(memory: Any) -> Collapsed:
    """Moves used memory to PMD folios, whatever the settings say (Linux 6.1)."""
    with _held(memory) as held:
        return Collapsed(**_native.memory_collapse(held))


def advise(memory: Any, advice: Literal["huge", "no-huge"]) -> None:
    """Gives the advice that the memory keeps. The kernel has none that takes it back.

    The kernel accepts it also for some memory that cannot have large folios: ``view`` says so.

    Raises:
        OSError: the kernel is built without large folios or refuses the advice for this memory.
    """
    if advice not in ("huge", "no-huge"):
        raise ValueError(f"advice: expected huge or no-huge, not {advice!r}")
    with _held(memory) as held:
        _native.memory_advise(held, advice == "huge")


def split(memory: Any, *, zero_bytes_min: int = 0) -> Split:
    """Splits PMD folios with at least this much in all-zero pages; the kernel frees those pages.

    No write that happens meanwhile is lost. ``advise(memory, "no-huge")`` first keeps the kernel
    from collapsing the memory again.
    """
    least = whole(zero_bytes_min, "zero_bytes_min", _ZERO_BYTES_MAX)
    with _held(memory) as held:
        return Split(**_native.memory_split(held, least))
