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
# Names of parts (crates/report/src/sweep/data_set.rs); whatever else is in the directory is no part.
_PART = re.compile("part-[0-9a-fA-F]{32}[.]parquet")


@dataclass(frozen=True)
class Swept:
    """The result of a sweep. The data set may also have rows of other sweeps.

    Attributes:
        directory: the data set, ``part-*.parquet``, and its manifest; as given, a path or an address.
        nr_asked: cells asked for.
        nr_found: of these, done before.
        nr_done: of these, done now.
        failed: the others of this call: ``"trace"``, ``"nr_cells"``, ``"error"`` and, where the trace could be
            read, ``"cells"``.
        manifest: all that the manifest says, of earlier sweeps too.
    """

    directory: str
    nr_asked: int
    nr_found: int
    nr_done: int
    failed: list[dict[str, Any]]
    manifest: dict[str, Any]
    # How its storage is reached; may hold secrets.
    _options: storage.Options = field(default_factory=dict, repr=False, compare=False)

    def table(self) -> pa.Table:
        """All rows of the data set, those of earlier versions too: a column that these do not have is
        null there.
        """
        import pyarrow as pa
        import pyarrow.dataset as ds

        filesystem, parts = self._parts()
        if not parts:
            return pa.table({})
        found = ds.dataset(parts, format="parquet", filesystem=filesystem).get_fragments()
        schemas = (part.physical_schema for part in found)
        # The most columns first, so that their order does not depend on the names of the parts.
        schema = pa.unify_schemas(sorted(schemas, key=len, reverse=True))
        return ds.dataset(parts, schema, "parquet", filesystem).to_table()

    def _parts(self) -> tuple[Any, list[str]]:
        """The filesystem of the data set, and the paths of its parts."""
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
    """Replays every trace in every cell and keeps one row for each in the data set ``directory``.

    What the directory has already is not done again: the same call goes on after Ctrl-C, after
    SIGKILL and after a full disk, a larger one adds what is new. ``folio predict --sweep`` writes
    the same data set. Without ``client`` all CPUs of this host replay; with one, the workers of a
    Dask cluster do, and this process alone writes: a worker needs the package and nothing else. A
    trace is read where it is named if the worker has it there, and is sent along if not. A worker
    that is lost costs the tasks it had under way, nothing else.

    Traces and data set may be on storage that fsspec reaches (``s3://bucket/cc1.folio``); workers then
    fetch traces from there, and this host keeps copies of both while the sweep runs. What is written
    arrives within seconds; without ``client``, rows that come after parts were first merged get their
    names there at the end. Storage has no locks: two sweeps must not write to one address at a time.
    An address that cannot be read ends the sweep before it begins.

    Args:
        traces: paths or addresses, or :class:`Trace`.
        client: a ``distributed.Client``.
        directory: where the data set is: a path of this host, or an address.
        kernels, machines, seeds, memory, swap, fragmentation, aged, filesystem, warm, annotate, linked,
            nested, reference_ns, cpus, max_work, policy (no Python objects): as for :func:`predict`; at most a million cells a trace, and four million in all.
        progress: ``None``: a bar on stderr where that is a terminal; or ``True``, ``False``, or a
            callable that hears the cells that are over and the cells asked for.
        storage_options: how addresses are reached, for fsspec: ``{"endpoint_url": "http://.."}``; sent to
            the workers with each task.

    Returns:
        How it went. Cells that failed, those of a trace that cannot be read among them, are in
        :attr:`Swept.failed`, and a warning says so.

    Raises:
        SweepError: another sweep has the directory, the disk is full, an address cannot be read, ..
        ClusterError: the cluster has no scheduler any more, or workers without this package.
        KernelError, MachineError, RequestError: as :func:`predict`.
    """
    paths = [checks.file_path(trace, "traces") for trace in checks.items(traces, "traces", _PATHS)]
    if not paths:
        raise ValueError("traces: name one at least")
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
    """What is on storage, on this host: the data set, and copies of traces by their address."""
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
    """A sweep that is open."""

    opened: _native.Sweep
    client: Client | None
    mirror: storage.Mirror | None
    copies: dict[str, str]
    options: storage.Options = field(repr=False)

    @contextmanager
    def closed_on_errors(self) -> Iterator[None]:
        """Releases the directory whatever is raised, a warning that was made an error among it."""
        try:
            yield
        except KeyboardInterrupt:
            self._close("interrupted")
            raise
        except BaseException:
            self._close("stopped")
            raise

    def run(self, progress: Progress) -> None:
        """Replays what is missing."""
        with progressing(progress, "cells") as hears:
            hears = self._pushing(hears)
            if self.client is None:
                self.opened.run_here(hears)
            else:
                traces = cluster.Traces(self.copies, self.options)
                cluster.run(self.opened, self.client, traces, hears)

    def finish(self, ended: str) -> dict[str, Any]:
        """Writes how the sweep ended and releases the directory; what the manifest says."""
        manifest: dict[str, Any] = json.loads(self.opened.finish(ended))
        if self.mirror:
            self.mirror.push()
        return manifest

    def _pushing(self, hears: Callable[[int, int], object] | None) -> Callable[[int, int], object] | None:
        """Who hears of the sweep, and writes to its storage what is new."""
        mirror, is_quiet = self.mirror, self.client is not None
        if mirror is None:
            return hears

        def both(nr_over: int, nr_asked: int) -> None:
            mirror.push_now_and_then(is_quiet)
            if hears is not None:
                hears(nr_over, nr_asked)

        return both

    def _close(self, ended: str) -> None:
        """Writes to the manifest how the sweep ended; if that fails, it only warns."""
        try:
            self.finish(ended)
        except Exception as error:
            warnings.warn(f"the manifest is not up to date: {error}", FolioWarning, stacklevel=2)
