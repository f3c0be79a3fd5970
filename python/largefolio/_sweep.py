"""Sweeps: many traces under many kernels on many machines, as one Parquet data set."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from largefolio import _arguments as arguments
from largefolio import _checks as checks
from largefolio import _cluster as cluster
from largefolio import _native
from largefolio._progress import Progress, progressing
from largefolio.errors import FolioWarning

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack
    from distributed import Client

_PATHS = (str, os.PathLike)


@dataclass(frozen=True)
class Swept:
    """The result of a sweep. The data set may also have rows of other sweeps.

    Attributes:
        directory: the data set, ``*.parquet``, and its manifest.
        nr_asked: cells asked for.
        nr_found: of these, done before.
        nr_done: of these, done now.
        failed: the others: ``"trace"``, ``"nr_cells"``, ``"error"`` and, where the trace could be
            read, ``"cells"``.
        manifest: all that the manifest says.
    """

    directory: str
    nr_asked: int
    nr_found: int
    nr_done: int
    failed: list[dict[str, Any]]
    manifest: dict[str, Any]

    def table(self) -> pa.Table:
        """All rows of the data set."""
        import pyarrow.dataset as ds

        return ds.dataset(self.directory, format="parquet").to_table()


def sweep(
    traces: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    kernels: arguments.Kernels = arguments.KERNELS,
    machines: arguments.Machines = arguments.MACHINES,
    seeds: arguments.Seeds = (1,),
    client: Client | None = None,
    *,
    directory: str | os.PathLike[str] = "sweep",
    progress: Progress = None,
    **settings: Unpack[arguments.Settings],
) -> Swept:
    """Replays every trace in every cell and keeps one row for each in the data set ``directory``.

    What the directory has already is not done again: the same call goes on after Ctrl-C, after
    SIGKILL and after a full disk, a larger one adds what is new. ``folio predict --sweep`` writes
    the same data set. Without ``client`` all CPUs of this host replay; with one, the workers of a
    Dask cluster do, and this process alone writes: a worker needs the package and nothing else. A
    trace is read where it is named if the worker has it there, and is sent along if not. A worker
    that is lost costs the tasks it had under way, nothing else.

    Args:
        traces: paths, or :class:`Trace`.
        client: a ``distributed.Client``.
        directory: where the data set is, on this host.
        kernels, machines, seeds, memory, swap, fragmentation, aged, filesystem, warm, annotate, linked,
            nested, reference_ns, cpus, max_work, policy (no Python objects): as for :func:`predict`; at most a million cells a trace.
        progress: ``None``: a bar on stderr where that is a terminal; or ``True``, ``False``, or a
            callable that hears the cells that are over and the cells asked for.

    Returns:
        How it went. Cells that failed, those of a trace that cannot be read among them, are in
        :attr:`Swept.failed`, and a warning says so.

    Raises:
        SweepError: another sweep has the directory, the disk is full, ..
        ClusterError: the cluster has no scheduler any more, or workers without this package.
        KernelError, MachineError, RequestError: as :func:`predict`.
    """
    paths = [checks.file_path(trace, "traces") for trace in checks.items(traces, "traces", _PATHS)]
    asked = arguments.asked(kernels, machines, seeds, **settings)
    place = checks.file_path(directory, "directory")
    if client is not None:
        cluster.check(client)
    opened = _native.Sweep.open(place, paths, asked, ["largefolio.sweep"])
    if opened.has_idle_seeds:
        warnings.warn(arguments.IDLE_SEEDS, FolioWarning, stacklevel=2)
    for note in opened.rules_notes:
        warnings.warn(note, FolioWarning, stacklevel=2)
    for name, why, now in opened.set_aside():
        text = f"{os.path.join(place, name)}: {why}; renamed to {now}, its cells are computed again"
        warnings.warn(text, FolioWarning, stacklevel=2)
    swept = _run(opened, client, progress, place)
    for failure in swept.failed:
        text = f"{failure['trace']}, {failure['nr_cells']} cells failed: {failure['error']}"
        warnings.warn(text, FolioWarning, stacklevel=2)
    return swept


def _run(opened: _native.Sweep, client: Client | None, progress: Progress, place: str) -> Swept:
    ended = "stopped"
    try:
        with progressing(progress, "cells") as hears:
            if client is None:
                opened.run_here(hears)
            else:
                cluster.run(opened, client, hears)
        ended = "done"
    except KeyboardInterrupt:
        ended = "interrupted"
        raise
    finally:
        counts = opened.counts()
        if ended != "done":
            _close(opened, ended)
    manifest: dict[str, Any] = json.loads(opened.finish(ended))
    nr_asked, nr_found, nr_done, _ = counts
    return Swept(place, nr_asked, nr_found, nr_done, manifest["failed"], manifest)


def _close(opened: _native.Sweep, ended: str) -> None:
    """Writes to the manifest how the sweep ended; if that fails, it only warns."""
    try:
        opened.finish(ended)
    except Exception as error:
        warnings.warn(f"the manifest is not up to date: {error}", FolioWarning, stacklevel=2)
