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
    """Whether it names something on storage, not a path of this host."""
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme.replace("+", "").replace("-", "").isalnum()


def opened(address: str, options: Options) -> tuple[Any, str]:
    """The filesystem of an address, and the path in it.

    Raises:
        SweepError: fsspec is missing, or what it needs for this kind of address.
    """
    try:
        import fsspec  # type: ignore[import-untyped]
    except ImportError as error:
        raise SweepError(f"{address}: fsspec is missing; pip install fsspec") from error
    try:
        filesystem, path = fsspec.core.url_to_fs(address, **options)
    except (ImportError, ValueError) as error:
        raise SweepError(f"{address}: {error}") from error
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
    except Exception as error:  # Each storage has errors of its own.
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
        self._pushed_at = time.monotonic()
        try:
            self._pull()
        except Exception as error:
            self.close()
            raise SweepError(f"cannot read {address}: {_told(error)}") from error

    def close(self) -> None:
        """Removes the directory of this host."""
        self._place.cleanup()

    def push_now_and_then(self) -> None:
        """Repeats on the storage what was written, at most once a second."""
        if time.monotonic() - self._pushed_at >= _PUSH_S:
            self.push()

    def push(self) -> None:
        """Repeats on the storage what was written.

        Raises:
            SweepError: the storage cannot be written.
        """
        try:
            self._push()
        except FileNotFoundError as error:
            # Merged just now: the next look finds what took its place.
            if not os.path.isdir(self.directory):
                raise SweepError(f"{self.directory} is gone") from error
        except Exception as error:
            raise SweepError(
                f"cannot write {self._address}: {_told(error)}; the same call continues"
            ) from error
        self._pushed_at = time.monotonic()

    def _pull(self) -> None:
        if not self._filesystem.exists(self._root):
            return
        for entry in self._filesystem.ls(self._root, detail=True, refresh=True):
            name = str(entry["name"]).rstrip("/").rpartition("/")[2]
            if entry["type"] == "file" and name and not name.startswith("."):
                path = os.path.join(self.directory, name)
                self._filesystem.get_file(entry["name"], path)
                self._same[name] = _state(path)

    def _here(self) -> dict[str, tuple[int, int]]:
        names = [name for name in os.listdir(self.directory) if not name.startswith(".")]
        return {name: _state(os.path.join(self.directory, name)) for name in names}

    def _push(self) -> None:
        here = self._here()
        new = [name for name, state in here.items() if self._same.get(name) != state]
        gone = [name for name in self._same if name not in here]
        merged = [name for name in new if gone and name.endswith(_PARQUET)]
        if not self._same and new:
            self._filesystem.makedirs(self._root, exist_ok=True)
        for name in sorted(new, key=lambda name: not name.endswith(_PARQUET)):
            kept = _MERGING.format(name) if name in merged else name
            self._filesystem.put_file(os.path.join(self.directory, name), self._at(kept))
        hidden = {_MERGING.format(name) for name in merged}
        for name in gone:
            if name not in hidden:
                self._filesystem.rm_file(self._at(name))
            del self._same[name]
        for name in merged:
            self._filesystem.mv(self._at(_MERGING.format(name)), self._at(name))
        self._same.update({name: here[name] for name in new})

    def _at(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def _state(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns
