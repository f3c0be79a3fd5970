"""Predictions: a trace replayed under kernels on machines, in this process."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from largefolio import _arguments as arguments
from largefolio import _checks as checks
from largefolio import _native
from largefolio._progress import Progress, progressing
from largefolio.errors import FolioWarning

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Unpack

_INTEGERS = {"page_bytes", "memory_bytes", "folio_bytes", "value"}
"""Columns of :func:`why` that are not text, except the seed and ``is_judged``."""


def predict(
    trace: str | os.PathLike[str],
    kernels: arguments.Kernels = arguments.KERNELS,
    machines: arguments.Machines = arguments.MACHINES,
    seeds: arguments.Seeds = (1,),
    *,
    progress: Progress = None,
    **settings: Unpack[arguments.Settings],
) -> pa.Table:
    """Replays ``trace`` under every kernel on every machine; one row per cell.

    Cells are kernels x machines x ways to link x memory sizes x seeds, each once, at most 256. The
    trace is decoded once for all of them, and they run on all CPUs (``RAYON_NUM_THREADS`` limits
    that). Counts are exact; columns that begin with ``estimate_`` are estimated (nanoseconds). The
    same call returns the same table. Other threads continue to run, and Ctrl-C ends the call.

    Args:
        trace: path, or a :class:`Trace`.
        kernels: names with edits (``"7.2+page=64K"``), paths ending in ``.toml``, or :class:`Rules`.
        machines: names, paths of machine files, or ``"this"``.
        seeds: seeds of fragmentation and ageing.
        policy: adds a cell per kernel in which this policy answers the kernel's decisions: the
            name of a built-in policy, a BPF object file, a :class:`Policy`, or several of these.
        progress: ``None``: a bar on stderr if that is a terminal; or ``True``, ``False``, or a
            callable that gets the finished rows and all rows.
        memory: physical memory in bytes, or as ``"16G"``, the default; several make a cell each.
        swap: swap space in bytes; 0: private memory is never reclaimed.
        cgroup: ``"24M"``: run everything in a cgroup with this memory.max, or
            ``{"cc1": "24M"}`` a program and its children.
        at: ``"50%:thp=always"``: changes a setting of the running system when the program has made
            this share of the trace's rows; several change at different times.
        fragmentation: ``"64K:80%"``: at the start, 80% of the free memory is in blocks smaller than
            64K; a number: thousandths of it in which no PMD folio fits.
        aged: rounds in which other programs fragment memory before the program starts.
        filesystem: of all files, or ``"none"`` for one without large folios; default: as recorded.
        warm: start with an earlier run's page cache.
        annotate: folio sizes that the loader requests: ``{"libc.so*": "64K"}``.
        linked: lay out programs and libraries as if they were linked for other pages: ``"2M"``,
            ``["4K", "2M"]`` (a cell each), ``{"libc.so*": "2M"}``; default: as recorded.
        nested: estimate for a virtual machine.
        reference_ns: nanoseconds per reference on khugepaged's clock; 0: it never runs.
        cpus: CPUs that the trace's threads run on; default: the machine's.
        numa: ``"node=1,bind=0"``: where the program runs on a machine with NUMA nodes, and its memory
            policy, as for ``folio predict --numa``; ``"node=1@50%"`` moves it, ``"balance=10%"``
            lets NUMA balancing work.
        max_work: factor for the limit of work and memory per trace; the error for a larger trace
            names the factor it needs.

    Raises:
        TraceError, KernelError, MachineError, RequestError, ReplayError: all :class:`FolioError`.
        TypeError, ValueError: arguments of the wrong type or value.
    """
    import pyarrow as pa

    asked = arguments.asked(kernels, machines, seeds, **settings)
    prediction = _replay(trace, progress, asked)
    return pa.Table.from_batches([prediction.table()])


def report(
    trace: str | os.PathLike[str],
    kernels: arguments.Kernels = arguments.KERNELS,
    machines: arguments.Machines = arguments.MACHINES,
    seeds: arguments.Seeds = (1,),
    *,
    goal: str = "time",
    runtime: float | None = None,
    why: bool = False,
    progress: Progress = None,
    **settings: Unpack[arguments.Settings],
) -> dict[str, Any]:
    """Like :func:`predict`, but complete: the JSON of ``folio predict --json`` as a dictionary.

    Each row has its estimate's terms and constants, with sources. ``"verdict"`` names the best
    column for ``goal`` (``"time"``, ``"memory"`` or ``"faults"``) and the rules responsible.
    ``"command_line"`` is empty. Changes are in percent of one run of the program: ``runtime`` in
    seconds, otherwise as measured with the trace, otherwise estimated. With ``why`` and two
    kernels, ``"why"`` names the rules that make the difference (:func:`why` returns the same as a
    table).
    """
    asked = arguments.asked(kernels, machines, seeds, **settings)
    explains = checks.switch(why, "why")
    goal, run_time_ns = checks.text(goal, "goal"), _nanoseconds(runtime)
    prediction = _replay(
        trace, progress, asked, goal=goal, run_time_ns=run_time_ns, explains=explains
    )
    result: dict[str, Any] = json.loads(prediction.json())
    return result


def why(
    trace: str | os.PathLike[str],
    kernels: arguments.Kernels,
    machines: arguments.Machines = arguments.MACHINES,
    seeds: arguments.Seeds = (1,),
    *,
    progress: Progress = None,
    **settings: Unpack[arguments.Settings],
) -> pa.Table:
    """Which rules make the difference between two kernels, for every result that differs.

    One row per share of a result, as in ``folio predict --why --csv``. ``part`` is one of
    ``difference``; ``in_order``, ``alone`` or ``left_out`` of the switch in ``rules``; the
    ``interaction`` of two switches; or the effect of all others ``together``. The rows ``in_order``
    add up to the difference, and so do ``alone``, ``interaction`` and ``together``.

    Args:
        trace: path, or a :class:`Trace`.
        kernels: two of them. All other arguments are as for :func:`predict`.

    Raises:
        RequestError: not two kernels, or the same one twice; otherwise as :func:`predict`.
    """
    import pyarrow as pa
    from pyarrow import csv

    asked = arguments.asked(kernels, machines, seeds, **settings)
    prediction = _replay(trace, progress, asked, explains=True)
    text = prediction.csv()
    columns = text.split(b"\n", 1)[0].decode().strip().split(",")
    types: dict[str, pa.DataType] = {
        name: pa.int64() if name in _INTEGERS else pa.string() for name in columns
    }
    types |= {"seed": pa.uint64(), "is_judged": pa.bool_()}
    options = csv.ConvertOptions(column_types=types, strings_can_be_null=True)
    return _named(csv.read_csv(io.BytesIO(text), convert_options=options), prediction)


def _nanoseconds(runtime: float | None) -> float | None:
    if runtime is None:
        return None
    seconds = checks.real(runtime, "runtime")
    if not 1e-6 <= seconds <= 1e9:
        raise ValueError(f"runtime: expected seconds from 0.000001 to 1e9, not {runtime}")
    return 1e9 * seconds


def _named(shares: pa.Table, prediction: _native.Prediction) -> pa.Table:
    """Adds kernel and machine names to the shares.

    The CSV has other names, for terminals and spreadsheets: ``'=x`` for ``=x``.
    """
    import pyarrow as pa

    results = _pairs(json.loads(prediction.json()))
    names: list[tuple[str, str, str]] = []
    for part in shares["part"].to_pylist():
        # A result's first share is its whole difference.
        names.append(next(results) if part == "difference" else names[-1])
    for name, column in zip(("kernel_before", "kernel_after", "machine"), zip(*names)):
        place = shares.column_names.index(name)
        shares = shares.set_column(place, name, pa.array(column, pa.string()))
    return shares


def _pairs(report: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Returns both kernels and the machine for each explained result."""
    for why in report["why"]:
        before, after = report["rows"][why["before"]], report["rows"][why["after"]]
        for _ in why["results"]:
            yield before["kernel"], after["kernel"], after["machine"]


def _replay(
    trace: Any,
    progress: Progress,
    asked: dict[str, Any],
    *,
    goal: str | None = None,
    run_time_ns: float | None = None,
    explains: bool = False,
) -> _native.Prediction:
    path = checks.file_path(trace, "trace")
    with progressing(progress) as hears:
        answers = {"goal": goal, "run_time_ns": run_time_ns, "explains": explains}
        prediction = _native.predict(path, asked, hears, answers)
    if prediction.has_idle_seeds:
        warnings.warn(arguments.IDLE_SEEDS, FolioWarning, stacklevel=3)
    for note in prediction.rules_notes:
        warnings.warn(note, FolioWarning, stacklevel=3)
    return prediction
