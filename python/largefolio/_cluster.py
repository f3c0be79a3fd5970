"""A sweep on a cluster of ``dask.distributed``: tasks out, parts back.

::

    driver     missing -> Task.json --> scheduler --> worker: work(task, path, content)
    data set <- Sweep.add <- part    <------------------------ ("done", (part, failed))

Only the driver writes, so workers share no directory with it. Dask runs a lost worker's tasks
elsewhere. The data set contains a part completely or not at all, and never adds an existing cell
again. A worker reads a trace at the driver's path if it has the same file there, or fetches it from
its address. Otherwise it says so, and the driver sends the task again with the trace.

Invariant: a task is waiting or running, or its cells have a row or have failed; never two of these.
"""

# Dask has no types of its own.
# mypy: allow-untyped-calls

from __future__ import annotations

import os
import tempfile
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from largefolio import _native
from largefolio import _storage as storage
from largefolio.errors import ClusterError, FolioError, FolioWarning, SweepError

if TYPE_CHECKING:
    from distributed import Client, Future

# Tasks in flight per thread of the cluster: one runs, one waits. A worker is then never idle while
# its part travels, and the scheduler holds little.
_TASKS_A_THREAD = 2
# Minimal number of tasks per thread, if there are enough cells, so that all end at about the same
# time.
_TASKS_OF_A_THREAD = 4
# Limit for sending a task with its trace; each time, a lost worker took the trace with it.
_SENT_MAX = 3
# Limit for submitting a task again after Dask gave it up because its workers were lost
# (`distributed.scheduler.allowed-failures`, 3, and one more each time). Lost hosts are not the
# task's fault, but a task that kills its workers must not do so forever.
_LOST_MAX = 4
# Seconds between the driver's checks for workers.
_LOOK_S = 5.0

_OVER = ("finished", "error", "cancelled")


# On a worker.


def version() -> str:
    """Version of the package."""
    return _native.__version__


def work(
    task_json: str, path: str, content: bytes | None, options: storage.Options
) -> tuple[str, Any]:
    """Replays a task: ``("done", (part, failed))``, ``("absent", None)`` or ``("failed", text)``.

    ``content`` is the trace, if the driver sent it.
    """
    task = _native.Task(task_json)
    if content is not None:
        path = _kept(task.digest, content)
    elif storage.is_address(path):
        fetched = _fetched(task.digest, path, options)
        if fetched is None:
            return "absent", None
        path = fetched
    elif _digest(path) != task.digest:
        return "absent", None
    try:
        return "done", task.run(path, 1)
    except FolioError as error:
        return "failed", str(error)


def _digest(path: str) -> str | None:
    """BLAKE3 of a file; ``None`` if it cannot be read."""
    try:
        file = os.stat(path)
        return _digest_of(path, (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns))
    except (OSError, FolioError):
        return None


@lru_cache(maxsize=1024)
def _digest_of(path: str, _file: tuple[int, ...]) -> str:
    return _native.digest(path)


def _kept(digest: str, content: bytes) -> str:
    """Stores a received trace in a file that is removed with the worker's process."""
    path = os.path.join(_directory().name, f"{digest}.folio")
    if not os.path.exists(path):
        with tempfile.NamedTemporaryFile(dir=_directory().name, delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    return path


def _fetched(digest: str, address: str, options: storage.Options) -> str | None:
    """Fetches a trace from its storage into a file that is removed with the worker's process."""
    path = os.path.join(_directory().name, f"{digest}.folio")
    if os.path.exists(path):
        return path
    try:
        fetched = storage.fetch(address, options, _directory().name)
    except SweepError:
        return None
    if _digest(fetched) != digest:
        os.remove(fetched)
        return None
    os.replace(fetched, path)
    return path


# Otherwise, concurrent threads of a worker would each make a directory, and all but one would be
# removed with their traces.
_one_makes_it = threading.Lock()


def _directory() -> tempfile.TemporaryDirectory[str]:
    """Returns this process's directory, shared by all threads."""
    with _one_makes_it:
        return _made()


@lru_cache(maxsize=1)
def _made() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="largefolio-")


# On the driver.


def check(client: Client) -> None:
    """Checks that the workers have this version of the package.

    Raises:
        TypeError: not a client, or an asynchronous one.
        ClusterError: a worker has another version or none; the client has no scheduler.
    """
    if not hasattr(client, "run"):
        raise TypeError(f"client: expected a distributed.Client, not {type(client).__name__}")
    if getattr(client, "asynchronous", False):
        raise TypeError("client: it is asynchronous; expected Client(..) without asynchronous=True")
    if (status := getattr(client, "status", "running")) != "running":
        raise ClusterError(f"the client is {status}: it has no scheduler; connect a new client")
    try:
        found = client.run(version)
    except ImportError as error:
        raise ClusterError(
            f"a worker cannot import largefolio ({error}); install {version()} on every worker"
        ) from error
    except Exception as error:  # Any error of the connection.
        raise ClusterError(f"the scheduler does not answer: {error}") from error
    for worker, has in found.items():
        if has != version():
            raise ClusterError(
                f"worker {worker} has largefolio {has}, this is {version()}; install one version"
            )


@dataclass(frozen=True)
class Traces:
    """Access of workers and driver to traces that are named by an address.

    Attributes:
        copies: paths on this host, by address.
        options: fsspec options for the addresses.
    """

    copies: Mapping[str, str]
    options: storage.Options = field(repr=False)

    def of_worker(self, task: _native.Task) -> str:
        """Returns where a worker looks for a task's trace."""
        return task.trace if task.trace in self.copies else os.path.abspath(task.path)

    def here(self, task: _native.Task) -> str:
        """Returns its path on this host."""
        return self.copies.get(task.trace) or os.fspath(task.path)


def run(
    sweep: _native.Sweep,
    client: Client,
    traces: Traces,
    hears: Callable[[int, int], object] | None,
) -> None:
    """Makes the workers replay the missing cells; calls ``hears`` with the finished and requested
    cells.
    """
    driver = _Driver(sweep, client, traces, hears)
    try:
        driver.run()
    except SweepError:
        raise
    except Exception as error:
        # A client without a scheduler can raise anything.
        driver.check_scheduler(error)
        raise
    finally:
        driver.cancel()


class _Driver:
    """The waiting and the running tasks."""

    def __init__(
        self,
        sweep: _native.Sweep,
        client: Client,
        named: Traces,
        hears: Callable[[int, int], object] | None,
    ) -> None:
        self._sweep, self._client, self._named, self._hears = sweep, client, named, hears
        self._waiting = deque(sweep.missing(self._cells_of_a_task()))
        self._running: dict[Future[Any], _native.Task] = {}
        # Traces on the cluster, by digest; number of times that a task was sent with one.
        self._traces: dict[str, Future[Any]] = {}
        self._nr_sent: Counter[int] = Counter()
        self._nr_lost: Counter[int] = Counter()
        self._has_warned = False

    def run(self) -> None:
        """Runs until no task is left."""
        self._tell()
        while self._waiting or self._running:
            self._submit()
            for future in self._over():
                self._take(future, self._running.pop(future))
                self._tell()

    def cancel(self) -> None:
        """Cancels the running tasks."""
        if self._running and self._client.status == "running":
            self._client.cancel(list(self._running))

    def _nr_threads(self) -> int:
        nr_threads: int = sum(self._client.nthreads().values())
        return max(nr_threads, 1)

    def _cells_of_a_task(self) -> int:
        nr_asked, nr_found, _, nr_failed = self._sweep.counts()
        share = (nr_asked - nr_found - nr_failed) // (_TASKS_OF_A_THREAD * self._nr_threads())
        return min(max(share, 1), _native.CELLS_OF_A_TASK)

    def _submit(self) -> None:
        nr_max = _TASKS_A_THREAD * self._nr_threads()
        while self._waiting and len(self._running) < nr_max:
            task = self._waiting.popleft()
            trace = self._traces.get(task.digest)
            path, options = self._named.of_worker(task), self._named.options
            future = self._client.submit(work, task.json(), path, trace, options, pure=False)
            self._running[future] = task

    def _over(self) -> list[Future[Any]]:
        """Returns finished tasks; waits until there are some."""
        from distributed import TimeoutError, wait

        while True:
            over = [future for future in self._running if future.status in _OVER]
            if over:
                return over
            try:
                with self._client.as_current():
                    wait(list(self._running), _LOOK_S, "FIRST_COMPLETED")
            except TimeoutError:
                self._look()
            except CancelledError:
                pass  # The status reports it too.

    def _look(self) -> None:
        """Checks that there is a worker to wait for, and lets ``hears`` run."""
        self.check_scheduler()
        self._tell()
        if not self._client.nthreads():
            self._warn_of_nobody()

    def _warn_of_nobody(self) -> None:
        """Warns once if the cluster has no worker."""
        if not self._has_warned:
            self._has_warned = True
            warnings.warn("the cluster has no worker; waiting for one", FolioWarning, stacklevel=8)

    def check_scheduler(self, cause: Exception | None = None) -> None:
        """Checks that there is a scheduler.

        Raises:
            ClusterError: there is none.
        """
        if self._client.status != "running":
            nr_asked, nr_found, nr_done, _ = self._sweep.counts()
            raise ClusterError(
                f"the scheduler is gone; {nr_found + nr_done} of {nr_asked} cells are done and "
                "kept; the same call continues from there"
            ) from cause

    def _take(self, future: Future[Any], task: _native.Task) -> None:
        """Handles the result of a finished task."""
        from distributed import KilledWorker

        try:
            what, value = future.result()
        except CancelledError:
            # A sent trace was lost with its worker, or the scheduler is gone.
            self.check_scheduler()
            self._traces.pop(task.digest, None)
            self._send(task)
        except KilledWorker as error:
            self._hand_out_last(task, error)
        except Exception as error:  # Any other error of a worker ends only this task.
            self._sweep.fail(task, f"on a worker: {type(error).__name__}: {error}")
        else:
            if what == "done":
                self._sweep.add(task, *value)
            elif what == "absent":
                self._send(task)
            else:
                self._sweep.fail(task, value)
        finally:
            future.release()

    def _hand_out_last(self, task: _native.Task, error: Exception) -> None:
        """Queues a task again after its workers were lost: last, and a limited number of times."""
        self._nr_lost[id(task)] += 1
        if self._nr_lost[id(task)] > _LOST_MAX:
            self._sweep.fail(task, f"every worker that replayed it died: {error}")
        else:
            self._waiting.append(task)

    def _send(self, task: _native.Task) -> None:
        """Queues a task that is sent with its trace."""
        from distributed import TimeoutError

        self._nr_sent[id(task)] += 1
        if self._nr_sent[id(task)] > _SENT_MAX:
            self._sweep.fail(task, f"its worker was lost {_SENT_MAX} times, the trace with it")
            return
        if task.digest not in self._traces:
            content = self._content(task)
            if content is None:
                return
            try:
                self._traces[task.digest] = self._client.scatter(content, hash=False, broadcast=True)
            except TimeoutError as error:
                # No worker took the task before the client's timeout, which says nothing about the
                # task.
                self.check_scheduler(error)
                self._nr_sent[id(task)] -= 1
                self._warn_of_nobody()
            except OSError as error:
                # A worker was lost meanwhile: the next worker with this task asks again.
                self.check_scheduler(error)
        self._waiting.appendleft(task)

    def _content(self, task: _native.Task) -> bytes | None:
        """Returns a task's trace; without it the task fails."""
        try:
            with open(self._named.here(task), "rb") as file:
                return file.read()
        except OSError as error:
            self._sweep.fail(task, f"cannot read {task.trace}: {error.strerror}")
            return None

    def _tell(self) -> None:
        if self._hears is not None:
            nr_asked, nr_found, nr_done, nr_failed = self._sweep.counts()
            self._hears(nr_found + nr_done + nr_failed, nr_asked)
