"""Traces: information and events equal the file's."""

from __future__ import annotations

import json
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

import largefolio as lf

Folio = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.mark.parametrize("batch_rows", [65_536, 1000, 1 << 20])
def test_events_are_the_rows_of_the_file(traces: Path, batch_rows: int) -> None:
    path = traces / "perf.folio"
    batches = list(lf.Trace(path).events(batch_rows))
    assert {batch.num_rows for batch in batches[:-1]} <= {batch_rows}
    table = pa.Table.from_batches(batches)
    expected = pyarrow.parquet.read_table(path)
    assert table.column_names == expected.column_names
    for name in expected.column_names:
        found = table[name].cast(expected[name].type)
        assert found.equals(expected[name]), name


def test_a_trace_says_what_the_command_says(folio: Folio, small: Path) -> None:
    trace = lf.Trace(small)
    assert trace.info == json.loads(folio("trace", "info", str(small), "--json").stdout)
    assert len(trace) == trace.info["meta"]["nr_rows"]
    assert trace.nr_references == trace.info["meta"]["nr_references"]
    assert repr(trace) == f"Trace('{small}')"
    assert lf.report(trace, "7.2") == lf.report(small, "7.2")


def test_iterators_do_not_share_a_position(small: Path) -> None:
    trace = lf.Trace(small)
    first, second = trace.events(10), trace.events(10)
    assert next(first).equals(next(second))
    next(first)
    assert not next(first).equals(next(second))


def test_another_process_opens_the_same_file(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(small.parent)
    trace = lf.Trace(small.name)
    monkeypatch.chdir("/")
    again = pickle.loads(pickle.dumps(trace))
    assert (again.path, len(again)) == (str(small), len(trace))
    assert next(again.events()).equals(next(trace.events()))


def test_damage_is_an_error_and_not_the_end(small: Path, tmp_path: Path) -> None:
    text = bytearray(small.read_bytes())
    text[len(text) // 2] ^= 0xFF
    damaged = tmp_path / "damaged.folio"
    damaged.write_bytes(text)
    with pytest.raises(lf.TraceError, match="corrupt"):
        lf.Trace(damaged)
    with pytest.raises(lf.TraceError, match="No such file"):
        lf.Trace(tmp_path / "none.folio")


@pytest.mark.parametrize(
    ("rows", "kind"), [(0, ValueError), (-1, ValueError), (1 << 40, ValueError), (1.5, TypeError), (None, TypeError)]
)
def test_batches_have_a_sensible_size(small: Path, rows: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        lf.Trace(small).events(rows)
