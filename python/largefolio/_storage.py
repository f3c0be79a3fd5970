"""Traces and data sets on storage that fsspec reaches: ``s3://bucket/cc1.folio``, ``gs://..``.

::

    trace     s3://..  --> a copy on this host, for the driver; a worker gets one of its own
    data set  s3://..  <-> a directory of this host, in which the sweep writes

Storage has no rename of many files and no lock. What the sweep does to its directory is repeated there
in the order that a sweep which is killed relies on: a part that takes the place of others is written
under its hidden name, the others are removed, then it gets its name.
"""

# fsspec has no types of its own.
# mypy: allow-untyped-calls

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from largefolio.errors import SweepError

Options = Mapping[str, Any]

# Seconds between two looks at what the sweep has written.
_PUSH_S = 1.0
# How the sweep names a part that takes the place of others (crates/report/src/sweep/merge.rs).
_MERGING = "_{}.merging"
_PARQUET = ".parquet"


def is_address(text: str) -> bool:
    """Whether it names something on storage (``s3://..``, ``simplecache::s3://..``), not a path of
    this host."""
    schemes, separator, _ = text.partition("://")
    return bool(separator) and all(
        scheme.replace("+", "").replace("-", "").isalnum() for scheme in schemes.split("::")
    )


def opened(address: str, options: Options) -> tuple[Any, str]:
    """The filesystem of an address, and the path in it.

    Raises:
        SweepError: fsspec is missing, or what it needs for this kind of address.
    """
    try:
        import fsspec  # type: ignore[import-untyped]
    except ImportError as error:
        raise SweepError(f"{address}: fsspec is missing; pip install fsspec") from error
    if any("@" in place.partition("/")[0] for place in address.split("://")[1:]):
        raise SweepError("an address with a login would be kept in results: use storage_options")
    try:
        filesystem, path = fsspec.core.url_to_fs(address, **options)
    except Exception as error:  # Each storage has errors of its own.
        raise SweepError(f"{address}: {_told(error)}") from error
    return filesystem, path


def fetch(address: str, options: Options, folder: str) -> str:
    """Copies a file of a storage into ``folder``; its path.

    Raises:
        SweepError: it cannot be read.
    """
    filesystem, remote = opened(address, options)
    descriptor, path = tempfile.mkstemp(dir=folder, suffix=".folio")
    os.close(descriptor)
    try:
        filesystem.get_file(remote, path)
    except Exception as error:
        os.remove(path)
        raise SweepError(f"cannot read {address}: {_told(error)}") from error
    return path


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__


class Mirror:
    """A directory of this host with what an address has; goes with the process.

    Attributes:
        directory: its path.
    """

    def __init__(self, address: str, options: Options) -> None:
        self._address = address
        self._filesystem, self._root = opened(address, options)
        self._place = tempfile.TemporaryDirectory(prefix="largefolio-")
        self.directory = self._place.name
        # Files that are the same on both sides: size and time of change here.
        self._same: dict[str, tuple[int, int]] = {}
        # Parts that have their hidden names there.
        self._hidden: set[str] = set()
        self._pushed_at = time.monotonic()
        try:
            self._pull()
        except Exception as error:
            self.close()
            raise SweepError(f"cannot read {address}: {_told(error)}") from error

    def close(self) -> None:
        """Removes the directory of this host."""
        self._place.cleanup()

    def push_now_and_then(self, is_quiet: bool) -> None:
        """Repeats on the storage what was written, at most once a second.

        Unless the sweep is quiet meanwhile, it may be merging: a look then sees neither all of the old
        parts nor the new one for certain, so nothing is removed.
        """
        if time.monotonic() - self._pushed_at >= _PUSH_S:
            self.push(is_quiet)

    def push(self, is_quiet: bool = True) -> None:
        """Repeats on the storage what was written.

        Raises:
            SweepError: the storage cannot be written.
        """
        try:
            self._push(is_quiet)
        except Exception as error:
            raise SweepError(
                f"cannot write {self._address}: {_told(error)}; the same call continues"
            ) from error
        self._pushed_at = time.monotonic()

    def _pull(self) -> None:
        self._filesystem.invalidate_cache()
        if not self._filesystem.exists(self._root):
            return
        for entry in self._filesystem.ls(self._root, detail=True):
            name = str(entry["name"]).rstrip("/").rpartition("/")[2]
            if entry["type"] == "file" and name and not name.startswith("."):
                path = os.path.join(self.directory, name)
                self._filesystem.get_file(entry["name"], path)
                self._same[name] = _state(path)

    def _here(self) -> dict[str, tuple[int, int]]:
        """What is here; what is merged just now may be missing."""
        found = {}
        for name in os.listdir(self.directory):
            with contextlib.suppress(FileNotFoundError):
                if not name.startswith("."):
                    found[name] = _state(os.path.join(self.directory, name))
        return found

    def _push(self, is_quiet: bool) -> None:
        here = self._here()
        new = [name for name, state in here.items() if self._same.get(name) != state]
        gone = [name for name in self._same if name not in here]
        if not self._same and new:
            self._filesystem.makedirs(self._root, exist_ok=True)
        # The manifest last: it names what is there.
        for name in sorted(new, key=lambda name: not name.endswith(_PARQUET)):
            is_hidden = name.endswith(_PARQUET) and bool(gone or self._hidden)
            kept = _MERGING.format(name) if is_hidden else name
            try:
                self._filesystem.put_file(os.path.join(self.directory, name), self._at(kept))
            except FileNotFoundError:
                if os.path.exists(os.path.join(self.directory, name)):
                    raise
                continue  # Merged just now: the next look finds what took its place.
            except Exception:
                if name not in self._same:  # Half of it may be there: a reader must not find it.
                    with contextlib.suppress(Exception):
                        self._filesystem.rm_file(self._at(kept))
                raise
            self._same[name] = here[name]
            if is_hidden:
                self._hidden.add(name)
        if is_quiet:
            self._remove(gone)

    def _remove(self, gone: list[str]) -> None:
        """Removes what is gone here, and gives what takes its place its name."""
        for name in gone:
            kept = _MERGING.format(name) if name in self._hidden else name
            self._hidden.discard(name)
            if kept not in map(_MERGING.format, self._hidden):
                with contextlib.suppress(FileNotFoundError):  # Somebody was faster.
                    self._filesystem.rm_file(self._at(kept))
            del self._same[name]
        for name in sorted(self._hidden):
            self._filesystem.mv(self._at(_MERGING.format(name)), self._at(name))
        self._hidden.clear()

    def _at(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def _state(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns
