"""Traces and data sets on fsspec storage: refusals, and the state after a kill."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

import largefolio as lf
from largefolio import _arguments as arguments
from largefolio import _command, _native, _storage
from lanes import IN_TEST_ALL


def test_addresses_may_be_chained(some: list[Path], tmp_path: Path) -> None:
    address = f"simplecache::file://{some[0]}"
    swept = lf.sweep(address, ["6.1", "6.12"], directory=tmp_path / "set", memory="1G")
    assert swept.table()["trace"].to_pylist() == [address, address]
    assert not any(map(_storage.is_address, ["::file://x", "a::", "../a::b", "a b://c", "://x"]))
    with pytest.raises(lf.SweepError, match="storage_options"):
        lf.sweep("zip://x.folio::ftp://me:secret@host/x.zip", directory=tmp_path / "set")


def test_an_address_that_pathlib_cut_is_no_file_of_this_host(some: list[Path], tmp_path: Path) -> None:
    for traces, directory in (
        ([Path("s3://bucket/cc1.folio")], tmp_path / "data"),
        (some, Path("simplecache::s3://bucket/cc1.folio")),
    ):
        with pytest.raises(ValueError, match="pass a string: '(simplecache::)?s3://bucket/cc1.folio'"):
            lf.sweep(traces, directory=directory)


def test_an_address_that_cannot_be_read_is_named(some: list[Path], tmp_path: Path) -> None:
    absent = f"file://{tmp_path}/absent.folio"
    with pytest.raises(lf.SweepError, match=f"cannot read {absent}"):
        lf.sweep(absent, "7.2", "altra", directory=tmp_path / "set")
    with pytest.raises(lf.SweepError, match="nowhere://x"):
        lf.sweep(some, "7.2", "altra", directory="nowhere://x")
    with pytest.raises(lf.SweepError, match="storage_options"):
        lf.sweep(some, "7.2", "altra", directory="ftp://me:secret@host/x")


def test_what_a_storage_refuses_ends_the_sweep(
    some: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    def refuse(*_: str) -> None:
        raise FileNotFoundError("no such bucket")

    monkeypatch.setattr(MemoryFileSystem, "put_file", refuse)
    with warnings.catch_warnings():
        # If the upload was refused before the end, a second warning says that the manifest is old.
        warnings.simplefilter("ignore", lf.FolioWarning)
        with pytest.raises(lf.SweepError, match="cannot write memory://refused: no such bucket"):
            lf.sweep(some, "7.2", "altra", directory="memory://refused", memory="1G")


def test_half_a_part_does_not_stay(some: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.implementations.memory import MemoryFileSystem

    def half(self: MemoryFileSystem, here: str, there: str) -> None:
        self.pipe_file(there, Path(here).read_bytes()[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MemoryFileSystem, "put_file", half)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lf.FolioWarning)
        with pytest.raises(lf.SweepError, match="No space left on device"):
            lf.sweep(some, "7.2", "altra", directory="memory://half", memory="1G")
    storage = _storage.opened("memory://half", {})[0]
    assert [name for name in storage.find("/half") if name.endswith(".parquet")] == []


def test_a_merged_part_is_never_seen_beside_those_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = _storage.Mirror("memory://merged", {})
    storage = mirror._filesystem
    place = Path(mirror.directory)

    def parts() -> set[str]:
        names = (Path(name).name for name in storage.ls("/merged", detail=False))
        return {name for name in names if name.startswith("part-")}

    for name in ("part-1.parquet", "part-2.parquet", "_manifest.json"):
        (place / name).write_text(name)
    mirror.push()
    assert parts() == {"part-1.parquet", "part-2.parquet"}
    seen: list[set[str]] = []
    for does in ("put_file", "rm_file", "mv"):
        did = getattr(storage, does)

        def watched(*words: str, did: Callable[..., None] = did) -> None:
            did(*words)
            seen.append(parts())

        monkeypatch.setattr(storage, does, watched)
    for name in ("part-1.parquet", "part-2.parquet"):
        (place / name).unlink()
    (place / "part-3.parquet").write_text("all of them")
    mirror.push()
    assert parts() == {"part-3.parquet"} and len(seen) > 3
    assert all("part-3.parquet" not in some or len(some) == 1 for some in seen)
    # While the sweep may be merging, nothing is removed, and new parts have hidden names.
    (place / "part-4.parquet").write_text("more")
    (place / "part-3.parquet").unlink()
    mirror.push(is_quiet=False)
    assert parts() == {"part-3.parquet"}
    assert storage.exists("/merged/_part-4.parquet.merging")
    mirror.push()
    assert parts() == {"part-4.parquet"} and not storage.exists("/merged/_part-4.parquet.merging")
    mirror.close()
    again = _storage.Mirror("memory://merged", {})
    assert set(os.listdir(again.directory)) == {"part-4.parquet", "_manifest.json"}
    again.close()


def test_pushes_that_are_killed_lose_no_row(
    some: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Killed at any storage operation: earlier rows are found, and nothing is reported as damaged."""
    nr_cells = 520  # Two merges of 256 parts; the second merges hidden parts.
    tiny = str(tmp_path / "tiny.folio")
    words = ["trace", "gen", "zipf", "--runs", "50", "--files", "1", "--file-size", "1M"]
    _command.run([*words, "--anon-size", "1M", "-o", tiny])
    asked = arguments.asked(
        "7.2", "altra", range(nr_cells), memory="8M", fragmentation="64K:10%"
    )

    def opened(mirror: _storage.Mirror) -> _native.Sweep:
        return _native.Sweep.open(mirror.directory, [(tiny, tiny)], asked, ["a test"])

    with tempfile.TemporaryDirectory() as folder:
        planned = _native.Sweep.open(folder, [(tiny, tiny)], asked, ["a test"])
        results = [(task, *task.run(tiny, 1)) for task in planned.missing(1)]
    assert len(results) == nr_cells

    storage = _storage.opened("memory://killed", {})[0]
    left = [0]
    for does in ("put_file", "rm_file", "mv"):
        did = getattr(storage, does)

        def counted(*words: str, did: Callable[..., None] = did) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            did(*words)

        monkeypatch.setattr(storage, does, counted)

    def fill(nr: int) -> int:
        """Sweeps until the storage has done this many operations; returns the cells that it must
        have.
        """
        left[0] = nr
        nr_pushed = 0
        mirror = _storage.Mirror(f"memory://killed/{nr}", {})
        with contextlib.suppress(KeyboardInterrupt):
            sweep = opened(mirror)
            for number, (task, part, failed) in enumerate(results, 1):
                sweep.add(task, part, failed)
                if number % 65 == 0:
                    mirror.push(is_quiet=False)
                    nr_pushed = number
            sweep.finish("done")
            mirror.push()
        mirror.close()
        return nr_pushed

    many = 1 << 20
    assert fill(many) == nr_cells
    nr_operations = many - left[0]
    # The last push removes the 512 merged parts, then renames the others.
    before_the_end = (700, 500, 250, 100, 8, 7, 1) if IN_TEST_ALL else (500, 7)
    for nr in (nr_operations - at for at in before_the_end):
        nr_pushed = fill(nr)
        left[0] = 0
        mirror = _storage.Mirror(f"memory://killed/{nr}", {})
        again = opened(mirror)
        assert again.set_aside() == [], nr
        _, nr_found, _, _ = again.counts()
        assert nr_pushed <= nr_found <= nr_cells, nr
        mirror.close()
