"""Sweeps: the same rows wherever they are replayed; no interruption loses or doubles a row."""

# mypy: allow-untyped-calls

from __future__ import annotations

import dataclasses
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import dask
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from distributed import Client, LocalCluster

import largefolio as lf
from largefolio import _cluster
from lanes import only_in_test_all

KERNELS = ["6.1", "6.12", "6.16", "6.17", "6.18", "6.19", "7.0", "7.1", "7.2", "7.2+readahead=1M"]
MACHINES = ["altra", "grace-4k", "ampereone", "milan", "zen4"]


@pytest.fixture(scope="module")
def here(some: list[Path], tmp_path_factory: pytest.TempPathFactory) -> lf.Swept:
    """All 200 cells, replayed by this process."""
    directory = tmp_path_factory.mktemp("here")
    return lf.sweep(some, KERNELS, MACHINES, directory=directory, memory="1G")


@pytest.fixture
def client() -> Iterator[Client]:
    """Two workers of one thread, restarted when they are killed."""
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster, Client(cluster) as client:
        yield client


_OF_SWEEPS = ("cell", "kernel_text", "machine_text")


def _rows(swept: lf.Swept) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = swept.table().sort_by("cell").to_pylist()
    return rows


def _sorted(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: (row["kernel"], row["machine"]))


def _is_whole(swept: lf.Swept, nr_cells: int = 200) -> None:
    assert not swept.failed
    assert swept.nr_asked == nr_cells == swept.nr_found + swept.nr_done
    cells = swept.table()["cell"]
    assert len(cells) == nr_cells == len(pc.unique(cells))


def test_a_row_is_that_of_a_prediction(some: list[Path], here: lf.Swept) -> None:
    _is_whole(here)
    table = here.table().filter(pc.field("trace") == str(some[1])).select(
        name for name in here.table().column_names if name not in _OF_SWEEPS
    )
    expected = lf.predict(some[1], KERNELS, MACHINES, memory="1G").drop_columns(list(_OF_SWEEPS))
    assert _sorted(table) == _sorted(expected)


def test_the_command_writes_the_same_data_set(
    some: list[Path], here: lf.Swept, folio: Callable[..., Any], tmp_path: Path
) -> None:
    words = ["predict", *map(str, some), "--kernel", ",".join(KERNELS)]
    words += ["--machine", ",".join(MACHINES), "--memory", "1G", "--sweep", str(tmp_path)]
    done = folio(*words)
    assert done.returncode == 0, done.stderr
    again = lf.sweep(some, KERNELS, MACHINES, directory=tmp_path, memory="1G")
    assert (again.nr_found, again.nr_done) == (200, 0)
    assert _rows(again) == _rows(here)


def test_a_cluster_gives_the_same_rows(
    some: list[Path], here: lf.Swept, client: Client, tmp_path: Path
) -> None:
    heard: list[tuple[int, int]] = []
    swept = lf.sweep(
        some, KERNELS, MACHINES, client=client, directory=tmp_path, memory="1G",
        progress=lambda done, asked: heard.append((done, asked)),
    )
    _is_whole(swept)
    assert _rows(swept) == _rows(here)
    assert heard[0] == (0, 200) and heard[-1] == (200, 200) and heard == sorted(heard)


def test_a_killed_worker_costs_nothing_but_time(
    some: list[Path], here: lf.Swept, client: Client, tmp_path: Path
) -> None:
    victims = list(client.run(os.getpid).values())

    def kill_half_way(done: int, _asked: int) -> None:
        if done >= 100 and victims:
            os.kill(victims.pop(), signal.SIGKILL)
            victims.clear()

    swept = lf.sweep(
        some, KERNELS, MACHINES, client=client, directory=tmp_path, memory="1G",
        progress=kill_half_way,
    )
    assert not victims
    _is_whole(swept)
    assert _rows(swept) == _rows(here)


# If two workers restart at the same time, the cluster has none for a moment.
@pytest.mark.filterwarnings("ignore:the cluster has no worker")
@only_in_test_all
def test_three_lost_workers_in_a_row_cost_nothing_but_time(
    some: list[Path], here: lf.Swept, tmp_path: Path
) -> None:
    # Dask allows no loss, so it gives up the lost worker's tasks each time.
    places = [40, 80, 120]
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster, Client(cluster) as client:

        def kill_all(done: int, _asked: int) -> None:
            if places and done >= places[0]:
                places.pop(0)
                for pid in client.run(os.getpid, on_error="ignore").values():
                    os.kill(pid, signal.SIGKILL)

        swept = lf.sweep(
            some, KERNELS, MACHINES, client=client, directory=tmp_path, memory="1G",
            progress=kill_all,
        )
    assert not places
    _is_whole(swept)
    assert _rows(swept) == _rows(here)


def test_traces_and_data_set_are_on_storage(
    some: list[Path], here: lf.Swept, client: Client, tmp_path: Path
) -> None:
    addresses = [f"file://{path}" for path in some]
    first = lf.sweep(
        addresses[:2], KERNELS, MACHINES, directory=f"file://{tmp_path}/set", memory="1G"
    )
    assert (first.nr_asked, first.nr_done) == (100, 100)
    swept = lf.sweep(
        addresses, KERNELS, MACHINES, client=client, directory=f"file://{tmp_path}/set", memory="1G"
    )
    assert (swept.nr_found, swept.nr_done) == (100, 100)
    _is_whole(swept)
    assert {row["trace"] for row in _rows(swept)} == set(addresses)
    of_files = [{**row, "trace": f"file://{row['trace']}"} for row in _rows(here)]
    assert _rows(swept) == of_files
    manifest = json.loads((tmp_path / "set" / "_manifest.json").read_text())
    assert manifest["runs"][-1]["ended"] == "done"
    assert lf.sweep(some, KERNELS, MACHINES, directory=tmp_path / "set", memory="1G").nr_found == 200


@pytest.mark.parametrize("where", ["", "file://"])
def test_a_data_set_of_an_earlier_version_is_one_table_with_the_new_parts(
    tmp_path: Path, where: str
) -> None:
    fixtures = Path(__file__).parents[2] / "crates" / "cli" / "fixtures" / "0.1"
    (old,) = (fixtures / "sweep").glob("part-*")
    directory = tmp_path / "sweep"
    shutil.copytree(fixtures / "sweep", directory)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lf.FolioWarning)
        swept = lf.sweep(fixtures / "v1.folio", "6.18", directory=directory, memory="1G")
    (new,) = (part for part in directory.glob("part-*") if part.name != old.name)
    columns = pq.read_schema(new).names
    added = set(columns) - set(pq.read_schema(old).names)
    assert "policy_asked" in added
    for number, parts in enumerate([(old, new), (new, old)]):
        place = tmp_path / f"{number}"
        place.mkdir()
        for digit, part in enumerate(parts):
            shutil.copy(part, place / f"part-{digit:032x}.parquet")
        (place / "notes.txt").write_text("mine")
        (place / "mine.parquet").write_text("no Parquet")
        shutil.copytree(fixtures / "sweep", place / "kept")
        table = dataclasses.replace(swept, directory=f"{where}{place}").table()
        assert (table.num_rows, table.column_names) == (3, columns)
        assert all(table[name].null_count >= 2 for name in added)
        assert set(table["kernel"].to_pylist()) == {"6.12", "6.18", "7.2"}
    (tmp_path / "empty").mkdir()
    assert dataclasses.replace(swept, directory=f"{where}{tmp_path}/empty").table().num_rows == 0


_DRIVER = """
    import sys
    import largefolio as lf
    from distributed import Client, LocalCluster

    def main():
        kernels, machines = sys.argv[2].split(","), sys.argv[3].split(",")
        tell = lambda done, asked: print(done, flush=True)
        with LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
        ) as cluster, Client(cluster) as client:
            client = client if sys.argv[4] == "cluster" else None
            lf.sweep(sys.argv[5:], kernels, machines, client=client, directory=sys.argv[1],
                     memory="1G", progress=tell)

    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize(
    ("end", "where"),
    [
        pytest.param(signal.SIGKILL, "cluster", id="SIGKILL-cluster"),
        pytest.param(signal.SIGINT, "here", id="SIGINT-here"),
        pytest.param(signal.SIGKILL, "here", id="SIGKILL-here", marks=only_in_test_all),
        pytest.param(signal.SIGINT, "cluster", id="SIGINT-cluster", marks=only_in_test_all),
    ],
)
def test_an_ended_driver_loses_nothing(
    some: list[Path], here: lf.Swept, tmp_path: Path, where: str, end: signal.Signals
) -> None:
    script = tmp_path / "driver.py"
    script.write_text(textwrap.dedent(_DRIVER))
    directory = tmp_path / "data"
    words = [str(directory), ",".join(KERNELS), ",".join(MACHINES), where, *map(str, some)]
    with subprocess.Popen(
        [sys.executable, str(script), *words],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        # A background job of a shell ignores the signal, and its children would too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
    ) as driver:
        assert driver.stdout is not None
        for line in driver.stdout:
            if int(line) >= 60:
                driver.send_signal(end)
                break
        driver.stdout.read()
    assert driver.returncode != 0
    manifest = json.loads((directory / "_manifest.json").read_text())
    ended = "running" if end == signal.SIGKILL else "interrupted"
    assert manifest["runs"][-1]["ended"] == ended
    swept = lf.sweep(some, KERNELS, MACHINES, directory=directory, memory="1G")
    assert swept.nr_found >= 60
    _is_whole(swept)
    assert _rows(swept) == _rows(here)
    if end == signal.SIGKILL:
        assert swept.manifest["runs"][0]["ended"] == "died"


def test_a_worker_without_the_file_is_sent_the_trace(
    some: list[Path], here: lf.Swept, client: Client, tmp_path: Path
) -> None:
    with open(some[0], "rb") as file:
        # This path names the trace only in this process.
        path = f"/proc/self/fd/{file.fileno()}"
        swept = lf.sweep(
            path, KERNELS[:4], MACHINES[:2], client=client, directory=tmp_path, memory="1G"
        )
    _is_whole(swept, 8)
    expected = {row["cell"]: row for row in _rows(here)}
    for row in _rows(swept):
        assert {**row, "trace": str(some[0])} == expected[row["cell"]]


def test_a_trace_waits_for_a_worker_to_be_sent_to(
    some: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster, Client(cluster) as client, open(some[0], "rb") as file:
        send = client.scatter
        lost = [0, 1, 2, 3, 4]

        def lose_all(*words: Any, **named: Any) -> Any:
            if not lost:
                return send(*words, **named)
            lost.pop()
            cluster.scale(0)
            while client.nthreads():
                time.sleep(0.01)
            try:
                return send(*words, **named, timeout=0.1)
            finally:
                cluster.scale(1)

        monkeypatch.setattr(client, "scatter", lose_all)
        path = f"/proc/self/fd/{file.fileno()}"
        with pytest.warns(lf.FolioWarning, match="the cluster has no worker") as told:
            swept = lf.sweep(path, KERNELS[:1], client=client, directory=tmp_path, memory="1G")
    assert not lost
    assert [warning.filename for warning in told] == [__file__]
    _is_whole(swept, 1)


def test_threads_of_a_worker_keep_traces_in_one_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    makes = tempfile.TemporaryDirectory

    def slow(prefix: str) -> tempfile.TemporaryDirectory[str]:
        time.sleep(0.05)
        return makes(prefix=prefix, dir=tmp_path)

    monkeypatch.setattr(tempfile, "TemporaryDirectory", slow)
    monkeypatch.setattr(_cluster, "_made", lru_cache(maxsize=1)(_cluster._made.__wrapped__))
    begin = threading.Barrier(4)

    def keep(number: int) -> str:
        begin.wait()
        return _cluster._kept(f"{number}", b"trace")

    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(keep, range(4)))
    assert len({os.path.dirname(path) for path in paths}) == 1
    assert all(Path(path).read_bytes() == b"trace" for path in paths)
    _cluster._directory().cleanup()


def test_a_broken_trace_is_told_and_the_others_go_on(
    some: list[Path], client: Client, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.folio"
    broken.write_bytes(some[0].read_bytes()[:-100])
    for number, driver in enumerate([None, client]):
        directory = tmp_path / str(number)
        with pytest.warns(lf.FolioWarning, match="folio, 4 cells failed"):
            swept = lf.sweep(
                [some[0], broken, tmp_path / "absent.folio"][: 2 + number], KERNELS[:2],
                MACHINES[:2], client=driver, directory=directory, memory="1G",
            )
        assert swept.nr_done == 4 and swept.table().num_rows == 4
        assert str(broken) in [failure["trace"] for failure in swept.failed]
        assert len(swept.failed) == 1 + number
        again = lf.sweep(some[0], KERNELS[:2], MACHINES[:2], directory=directory, memory="1G")
        assert not again.failed and len(again.manifest["failed"]) == 1 + number


def test_a_full_disk_ends_it_and_the_same_call_goes_on(some: list[Path], tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(textwrap.dedent(_DRIVER))
    directory = tmp_path / "data"
    lf.sweep(some[:1], KERNELS[:1], MACHINES[:1], directory=directory, memory="1G")
    size = max(part.stat().st_size for part in directory.glob("*.parquet"))
    words = [str(directory), ",".join(KERNELS), ",".join(MACHINES), "here", str(some[0])]
    done = subprocess.run(
        [sys.executable, str(script), *words], capture_output=True, text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2)),
    )
    assert done.returncode == 1
    assert "1 of 50 cells are done and kept" in done.stderr or "cannot" in done.stderr, done.stderr
    swept = lf.sweep(some[:1], KERNELS, MACHINES, directory=directory, memory="1G")
    _is_whole(swept, 50)


def test_a_second_sweep_at_once_is_refused(some: list[Path], tmp_path: Path) -> None:
    refused: list[str] = []

    def again(_done: int, _asked: int) -> None:
        if not refused:
            with pytest.raises(lf.SweepError, match="another sweep is writing") as error:
                lf.sweep(some[0], "6.12", directory=tmp_path)
            refused.append(str(error.value))

    lf.sweep(some[0], "7.2", directory=tmp_path, progress=again)
    assert refused


def test_a_warning_that_is_an_error_leaves_the_directory_free(
    some: list[Path], tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", lf.FolioWarning)
        # As in a notebook, the traceback keeps the call's objects.
        with pytest.raises(lf.FolioWarning, match="seeds have no effect") as kept:
            lf.sweep(some[0], "7.2", seeds=[1, 2], directory=tmp_path)
    swept = lf.sweep(some[0], "7.2", directory=tmp_path)
    assert [run["ended"] for run in swept.manifest["runs"]] == ["stopped", "done"]
    assert kept.tb


def test_rules_of_ones_own_travel_to_the_workers(
    some: list[Path], client: Client, tmp_path: Path
) -> None:
    mine = lf.Rules("7.2").edit("readahead=1M", name="mine")
    swept = lf.sweep(some[0], [mine], client=client, directory=tmp_path, memory="1G")
    (row,) = _rows(swept)
    assert row["kernel"] == "mine"
    (expected,) = lf.predict(some[0], [mine], memory="1G").to_pylist()
    assert row["kernel_text"] in lf.sweep(some[0], [mine], directory=tmp_path, memory="1G").manifest["texts"]
    assert {**row, **dict.fromkeys(_OF_SWEEPS)} == {**expected, **dict.fromkeys(_OF_SWEEPS)}


def test_workers_of_another_version_are_refused() -> None:
    class Other:
        def run(self, _function: Callable[[], str]) -> dict[str, str]:
            return {"tcp://elsewhere:1": "0.0.1"}

    class Without:
        def run(self, _function: Callable[[], str]) -> dict[str, str]:
            raise ModuleNotFoundError("No module named 'largefolio'")

    with pytest.raises(lf.ClusterError, match="tcp://elsewhere:1 has largefolio 0.0.1"):
        _cluster.check(Other())  # type: ignore[arg-type]
    with pytest.raises(lf.ClusterError, match="install .* on every worker"):
        _cluster.check(Without())  # type: ignore[arg-type]


def test_a_scheduler_that_goes_away_is_told(some: list[Path], tmp_path: Path) -> None:
    cluster = LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=None, silence_logs=50
    )
    client = Client(cluster, timeout="5s")

    def gone(done: int, _asked: int) -> None:
        if done >= 4 and cluster.status.name == "running":
            cluster.close()

    with pytest.raises(lf.SweepError, match="cells are done and kept"):
        lf.sweep(
            some, KERNELS, MACHINES, client=client, directory=tmp_path, memory="1G", progress=gone
        )
    client.close(timeout=1)
    _is_whole(lf.sweep(some, KERNELS, MACHINES, directory=tmp_path, memory="1G"))


@pytest.mark.parametrize(
    "words",
    [
        {"traces": None}, {"traces": 3}, {"traces": ["a\0b"]}, {"traces": []}, {"directory": 7},
        {"memory": -1}, {"client": 1}, {"storage_options": {"key": "x"}},
    ],
)
def test_hostile_arguments_are_refused(words: dict[str, Any], some: list[Path]) -> None:
    with pytest.raises((TypeError, ValueError)):
        lf.sweep(**{"traces": some, "directory": "/nonexistent/x", **words})


def test_an_impossible_directory_is_named(some: list[Path]) -> None:
    with pytest.raises(lf.SweepError, match="/proc/x"):
        lf.sweep(some, directory="/proc/x")
