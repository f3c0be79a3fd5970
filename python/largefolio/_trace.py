"""Traces: the memory that a program touched, in program order."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from largefolio import _native
from largefolio._checks import Path, file_path, whole

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH_ROWS_MAX = 1 << 22


class Trace:
    """A trace file, from :func:`largefolio.record`, ``folio record`` or ``folio trace gen``.

    Opening it checks the whole file against its checksum. ``len(trace)`` is its number of rows.

        >>> trace = Trace("traces/perf.folio")
        >>> trace.info["meta"]["recorder"]
        'qemu'

    Raises:
        TraceError: no such file, not a trace, or damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = file_path(path, "path")
        # Each reader opens the file again, possibly from another working directory.
        self._absolute = os.path.join(os.getcwd(), self._path)
        self._trace = _native.Trace(self._absolute)

    @property
    def path(self) -> str:
        """The file's name, as given."""
        return self._path

    def __fspath__(self) -> str:
        return self._path

    def __len__(self) -> int:
        return self._trace.nr_rows

    @property
    def nr_references(self) -> int:
        """Memory references in all rows: a row is a run of references to one page."""
        return self._trace.nr_references

    @cached_property
    def info(self) -> dict[str, Any]:
        """``folio trace info --json``: rows by operation, threads, and in ``"meta"`` the
        recorded command, the files, the first layout, and ``"links": true`` if links between
        loads were recorded. Reads the whole trace once.
        """
        info: dict[str, Any] = json.loads(self._trace.info())
        return info

    def events(self, batch_rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """The rows in program order, as record batches of ``batch_rows`` rows (the last may be
        shorter). Each row has been checked. Memory does not grow with the trace.

        Columns: ``thread`` (dense number), ``op`` (a name, from a dictionary), ``addr`` (bytes;
        references: the first byte of the 4 KiB page), ``len`` (references: their number; otherwise
        bytes), ``pos`` (position in the file in bytes, or the operation's second address), ``aux``
        (an additional number), ``flags`` (of the Linux x86-64 ABI), ``file`` (row of
        ``info["meta"]["files"]``, -1 for none). For a read or write, ``flags`` is its link: the
        load whose value named its page is this many rows of references back in its thread; 0 for
        none.
        """
        rows = whole(batch_rows, "batch_rows", _BATCH_ROWS_MAX)
        if rows == 0:
            raise ValueError("batch_rows: expected at least 1")
        return self._trace.events(rows)

    def __reduce__(self) -> tuple[type[Trace], tuple[str]]:
        """Another process opens the file again."""
        return Trace, (self._absolute,)

    def __repr__(self) -> str:
        return f"Trace({self._path!r})"
