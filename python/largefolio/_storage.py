"""Traces and data sets on fsspec storage: ``s3://bucket/cc1.folio``, ``gs://..``.

::

    trace     s3://..  --> a copy on this host, for the driver; each worker gets its own
    data set  s3://..  <-> a directory of this host, in which the sweep writes

Storage has no locks and cannot rename many files. The mirror repeats the sweep's changes to its
directory in the order that makes a kill safe: it writes a replacement part under its hidden name,
removes the old parts, then renames the new one.
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

# Seconds between checks for new files of the sweep.
_PUSH_S = 1.0
# The sweep's name for a part that replaces others (crates/results/src/predict/sweep/merge.rs).
_MERGING = "_{}.merging"
_PARQUET = ".parquet"


def is_address(text: str) -> bool:
    """Whether it names something on storage (``s3://..``, ``simplecache::s3://..``), not a local
    path.
    """
    schemes, separator, _ = text.partition("://")
    return bool(separator) and all(
        scheme.replace("+", "").replace("-", "").isalnum() for scheme in schemes.split("::")
    )


def opened(address: str, options: Options) -> tuple[Any, str]:
    """Returns the filesystem of an address, and the path in it.

    Raises:
        SweepError: fsspec is missing, or a package that it needs for this kind of address.
    """
    try:
        import fsspec  # type: ignore[import-untyped]
    except ImportError as error:
        raise SweepError(f"{address}: fsspec is missing; pip install fsspec") from error
    if any("@" in place.partition("/")[0] for place in address.split("://")[1:]):
        raise SweepError("an address with a login would be saved in results: use storage_options")
    try:
        filesystem, path = fsspec.core.url_to_fs(address, **options)
    except Exception as error:  # Storages raise different errors.
        raise SweepError(f"{address}: {_told(error)}") from error
    return filesystem, path


def fetch(address: str, options: Options, folder: str) -> str:
    """Copies a file from storage into ``folder`` and returns its path.

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
    """A local directory with an address's contents; removed with the process.

    Attributes:
        directory: its path.
    """

    def __init__(self, address: str, options: Options) -> None:
        self._address = address
        self._filesystem, self._root = opened(address, options)
        self._place = tempfile.TemporaryDirectory(prefix="largefolio-")
        self.directory = self._place.name
        # Files that are equal on both sides: size and modification time here.
        self._same: dict[str, tuple[int, int]] = {}
        # Parts that have hidden names in the storage.
        self._hidden: set[str] = set()
        self._pushed_at = time.monotonic()
        try:
            self._pull()
        except Exception as error:
            self.close()
            raise SweepError(f"cannot read {address}: {_told(error)}") from error

    def close(self) -> None:
        """Removes the local directory."""
        self._place.cleanup()

    def push_now_and_then(self, is_quiet: bool) -> None:
        """Copies new files to the storage, at most once a second.

        Unless the sweep is quiet meanwhile, it may be merging. The directory may then show neither
        all of the old parts nor the new one, so nothing is removed.
        """
        if time.monotonic() - self._pushed_at >= _PUSH_S:
            self.push(is_quiet)

    def push(self, is_quiet: bool = True) -> None:
        """Copies new files to the storage.

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
        """Lists the local files; parts being merged may be missing."""
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
        # The manifest goes last, because it names the files.
        for name in sorted(new, key=lambda name: not name.endswith(_PARQUET)):
            is_hidden = name.endswith(_PARQUET) and bool(gone or self._hidden)
            kept = _MERGING.format(name) if is_hidden else name
            try:
                self._filesystem.put_file(os.path.join(self.directory, name), self._at(kept))
            except FileNotFoundError:
                if os.path.exists(os.path.join(self.directory, name)):
                    raise
                continue  # Just merged: the next check finds the new part.
            except Exception:
                if name not in self._same:  # It may be incomplete: hide it from readers.
                    with contextlib.suppress(Exception):
                        self._filesystem.rm_file(self._at(kept))
                raise
            self._same[name] = here[name]
            if is_hidden:
                self._hidden.add(name)
        if is_quiet:
            self._remove(gone)

    def _remove(self, gone: list[str]) -> None:
        """Removes files that are gone locally, then renames their replacements."""
        for name in gone:
            kept = _MERGING.format(name) if name in self._hidden else name
            self._hidden.discard(name)
            if kept not in map(_MERGING.format, self._hidden):
                with contextlib.suppress(FileNotFoundError):  # Another process removed it first.
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
