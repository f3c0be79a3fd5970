"""Sweeps: many traces under many kernels on many machines, as one Parquet data set."""

from __future__ import annotations

import json
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from largefolio import _arguments as arguments
from largefolio import _checks as checks
from largefolio import _cluster as cluster
from largefolio import _native
from largefolio import _storage as storage
from largefolio._progress import Progress, progressing
from largefolio.errors import FolioWarning

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack
    from distributed import Client

_PATHS = (str, os.PathLike)
# Names of parts (crates/results/src/predict/sweep/data_set.rs); all other files in the directory are not
# parts.
_PART = re.compile("part-[0-9a-fA-F]{32}[.]parquet")


@dataclass(frozen=True)
class Swept:
    """The result of a sweep. The data set may also have rows of other sweeps.

    Attributes:
        directory: the data set, ``part-*.parquet``, and its manifest; as given, a path or an address.
        nr_asked: requested cells.
        nr_found: of these, done before.
        nr_done: of these, done now.
        failed: all others of this call: ``"trace"``, ``"nr_cells"``, ``"error"`` and, if the trace was
            readable, ``"cells"``.
        manifest: the whole manifest, including earlier sweeps.
    """

    directory: str
    nr_asked: int
    nr_found: int
    nr_done: int
    failed: list[dict[str, Any]]
    manifest: dict[str, Any]
    # Options for its storage; may hold secrets.
    _options: storage.Options = field(default_factory=dict, repr=False, compare=False)

    def table(self) -> pa.Table:
        """All rows of the data set, including earlier versions'; columns that those lack are null."""
        import pyarrow as pa
        import pyarrow.dataset as ds

        filesystem, parts = self._parts()
        if not parts:
            return pa.table({})
        found = ds.dataset(parts, format="parquet", filesystem=filesystem).get_fragments()
        schemas = (part.physical_schema for part in found)
        # Schemas with the most columns first, so that the column order does not depend on the
        # parts' names.
        schema = pa.unify_schemas(sorted(schemas, key=len, reverse=True))
        return ds.dataset(parts, schema, "parquet", filesystem).to_table()

    def _parts(self) -> tuple[Any, list[str]]:
        """Returns the data set's filesystem, and its parts' paths."""
        if storage.is_address(self.directory):
            filesystem, path = storage.opened(self.directory, self._options)
            filesystem.invalidate_cache()
            found = [str(one["name"]) for one in filesystem.ls(path, detail=True) if one["type"] == "file"]
        else:
            filesystem = None
            found = [one.path for one in os.scandir(self.directory) if one.is_file()]
        return filesystem, sorted(path for path in found if _PART.fullmatch(path.rpartition("/")[2]))


def sweep(
    traces: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    kernels: arguments.Kernels = arguments.KERNELS,
    machines: arguments.Machines = arguments.MACHINES,
    seeds: arguments.Seeds = (1,),
    client: Client | None = None,
    *,
    directory: str | os.PathLike[str] = "sweep",
    progress: Progress = None,
    storage_options: storage.Options | None = None,
    **settings: Unpack[arguments.Settings],
) -> Swept:
    """Replays every trace in every cell and keeps one row per cell in the data set ``directory``.

    Existing rows are not computed again: the same call resumes after Ctrl-C, SIGKILL or a full
    disk, and a larger one adds the new cells. ``folio predict --sweep`` writes the same data set.
    Without ``client``, all CPUs of this host replay. With one, a Dask cluster's workers replay and
    only this process writes; a worker needs only the package. A worker reads a trace at its path if
    it has it there; otherwise the trace is sent. A lost worker costs only its running tasks.

    Traces and data set may be on fsspec storage (``s3://bucket/cc1.folio``). Workers then fetch
    traces from there, and this host keeps copies of both during the sweep. New rows arrive within
    seconds. Without ``client``, rows written after the first merge of parts get their final names
    at the end. Storage has no locks: only one sweep may write to an address at a time. An
    unreadable address ends the sweep before it begins.

    Args:
        traces: paths or addresses, or :class:`Trace`.
        client: a ``distributed.Client``.
        directory: the data set: a local path, or an address.
        kernels, machines, seeds, memory, swap, at, fragmentation, aged, filesystem, warm, annotate, linked,
            nested, reference_ns, cpus, numa, max_work, policy (no Python objects): as for :func:`predict`; at
            most a million cells per trace, and four million in all.
        progress: ``None``: a bar on stderr if that is a terminal; or ``True``, ``False``, or a
            callable that gets the finished and the requested cells.
        storage_options: fsspec options for addresses: ``{"endpoint_url": "http://.."}``; sent to
            the workers with each task.

    Returns:
        The outcome. :attr:`Swept.failed` lists failed cells, including those of an unreadable
        trace, and a warning reports them.

    Raises:
        SweepError: another sweep uses the directory, the disk is full, an address cannot be read, ..
        ClusterError: the cluster lost its scheduler, or has workers without this package.
        KernelError, MachineError, RequestError: as :func:`predict`.
    """
    paths = [checks.file_path(trace, "traces") for trace in checks.items(traces, "traces", _PATHS)]
    if not paths:
        raise ValueError("traces: name at least one")
    asked = arguments.asked(kernels, machines, seeds, **settings)
    place = checks.file_path(directory, "directory")
    if client is not None:
        cluster.check(client)
    options = dict(storage_options or {})
    if options and not any(map(storage.is_address, [place, *paths])):
        raise ValueError("storage_options: neither the directory nor a trace is an address")
    with _here(place, paths, options) as (mirror, copies):
        where = mirror.directory if mirror else place
        named = [(path, copies.get(path, path)) for path in paths]
        opened = _native.Sweep.open(where, named, asked, ["largefolio.sweep"])
        work = _Work(opened, client, mirror, copies, options)
        with work.closed_on_errors():
            _warn(opened, place)
            work.run(progress)
            nr_asked, nr_found, nr_done, _ = opened.counts()
            failed = json.loads(opened.failures())
        manifest = work.finish("done")
    swept = Swept(place, nr_asked, nr_found, nr_done, failed, manifest, options)
    for failure in swept.failed:
        nr_cells = failure["nr_cells"]
        cells = "1 cell" if nr_cells == 1 else f"{nr_cells} cells"
        text = f"{failure['trace']}, {cells} failed: {failure['error']}"
        warnings.warn(text, FolioWarning, stacklevel=2)
    run = manifest["runs"][-1]
    for key, what in (("nr_runs_dropped", "earlier runs"), ("nr_failures_dropped", "failures")):
        if nr_dropped := run.get(key, 0):
            text = f"{place}: the manifest has no room for {what}: {nr_dropped}"
            warnings.warn(text, FolioWarning, stacklevel=2)
    return swept


@contextmanager
def _here(
    place: str, paths: list[str], options: storage.Options
) -> Iterator[tuple[storage.Mirror | None, dict[str, str]]]:
    """Local copies of storage: the data set, and traces by address."""
    with tempfile.TemporaryDirectory(prefix="largefolio-") as folder:
        addresses = {path for path in paths if storage.is_address(path)}
        copies = {path: storage.fetch(path, options, folder) for path in sorted(addresses)}
        mirror = storage.Mirror(place, options) if storage.is_address(place) else None
        try:
            yield mirror, copies
        finally:
            if mirror:
                mirror.close()


def _warn(opened: _native.Sweep, place: str) -> None:
    if opened.has_idle_seeds:
        warnings.warn(arguments.IDLE_SEEDS, FolioWarning, stacklevel=3)
    for note in opened.rules_notes:
        warnings.warn(note, FolioWarning, stacklevel=3)
    if missing := opened.note():
        warnings.warn(f"{place}: {missing}", FolioWarning, stacklevel=3)
    for name, why, now, lost in opened.set_aside():
        text = f"{os.path.join(place, name)}: {why}; renamed to {now}, {lost}"
        warnings.warn(text, FolioWarning, stacklevel=3)


@dataclass(frozen=True)
class _Work:
    """An open sweep."""

    opened: _native.Sweep
    client: Client | None
    mirror: storage.Mirror | None
    copies: dict[str, str]
    options: storage.Options = field(repr=False)

    @contextmanager
    def closed_on_errors(self) -> Iterator[None]:
        """Releases the directory on any exception, including a warning turned into an error."""
        try:
            yield
        except KeyboardInterrupt:
            self._close("interrupted")
            raise
        except BaseException:
            self._close("stopped")
            raise

    def run(self, progress: Progress) -> None:
        """Replays the missing cells."""
        with progressing(progress, "cells") as hears:
            hears = self._pushing(hears)
            if self.client is None:
                self.opened.run_here(hears)
            else:
                traces = cluster.Traces(self.copies, self.options)
                cluster.run(self.opened, self.client, traces, hears)

    def finish(self, ended: str) -> dict[str, Any]:
        """Records how the sweep ended, releases the directory, and returns the manifest."""
        manifest: dict[str, Any] = json.loads(self.opened.finish(ended))
        if self.mirror:
            self.mirror.push()
        return manifest

    def _pushing(self, hears: Callable[[int, int], object] | None) -> Callable[[int, int], object] | None:
        """Returns the progress callable, which also copies new files to the storage."""
        mirror, is_quiet = self.mirror, self.client is not None
        if mirror is None:
            return hears

        def both(nr_over: int, nr_asked: int) -> None:
            mirror.push_now_and_then(is_quiet)
            if hears is not None:
                hears(nr_over, nr_asked)

        return both

    def _close(self, ended: str) -> None:
        """Records in the manifest how the sweep ended; only warns if that fails."""
        try:
            self.finish(ended)
        except Exception as error:
            warnings.warn(f"the manifest is not up to date: {error}", FolioWarning, stacklevel=2)
