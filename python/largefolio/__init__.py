"""Large folios, predicted for real programs.

Record a program once. Replay its memory accesses in a model of any kernel's memory management on
any machine. Inspect the running kernel.

    >>> import largefolio as lf
    >>> lf.kernels()[:2]
    ['6.1', '6.12']

Predictions run in this process (:func:`predict`, :func:`report`, :func:`why`, :class:`Trace`,
:class:`Rules`). Many predictions run on all its CPUs or on a cluster (:func:`sweep`). :func:`maps`
also runs in this process, and :mod:`memory` gets large folios for this process's own memory. The package's command ``folio`` runs programs (:func:`record`).
"""

from largefolio import _command, _native, memory
from largefolio._live import Maps, maps, record
from largefolio._names import edits, filesystems, kernels, machines
from largefolio._native import __version__
from largefolio._policy import Policy, Window
from largefolio._predict import predict, report, why
from largefolio._rules import Rules
from largefolio._sweep import Swept, sweep
from largefolio._trace import Trace
from largefolio.errors import (
    ClusterError,
    CommandError,
    FolioError,
    FolioWarning,
    KernelError,
    MachineError,
    MapsError,
    ReplayError,
    RequestError,
    SweepError,
    TraceError,
)

__all__ = [
    "ClusterError",
    "CommandError",
    "FolioError",
    "FolioWarning",
    "KernelError",
    "MachineError",
    "Maps",
    "MapsError",
    "Policy",
    "ReplayError",
    "RequestError",
    "Rules",
    "SweepError",
    "Swept",
    "Trace",
    "TraceError",
    "Window",
    "__version__",
    "edits",
    "filesystems",
    "kernels",
    "machines",
    "maps",
    "memory",
    "predict",
    "record",
    "report",
    "sweep",
    "why",
]

_native.set_program(_command.place())
