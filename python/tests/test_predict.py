"""Predictions equal the command's, number for number, and leave Python alive."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import largefolio as lf

Complaint = Callable[..., str]
Folio = Callable[..., "subprocess.CompletedProcess[str]"]

# Fields of the JSON that the table omits or has in other columns.
_LEFT_OUT = ("/detail", "/estimate/constants", "/estimate/not_known", "/estimate/difference_ns")

_ONE = ("--kernel", "6.12", "--machine", "altra")


def _expected(folio: Folio, *words: str) -> dict[str, Any]:
    done = folio("predict", *words, "--json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    result["command_line"] = []
    return result


def test_the_report_is_the_json_of_the_command(folio: Folio, small: Path) -> None:
    words = [str(small), "--kernel", "6.12,7.2+page=64K", "--machine", "altra,grace-64k"]
    words += ["--memory", "64M,128M", "--swap", "1G", "--fragmentation", "500", "--seed", "1,2"]
    words += ["--fs", "xfs", "--warm", "--nested", "--reference-ns", "5", "--max-work", "2"]
    words += ["--cgroup", "48M", "--runtime", "12.5s"]
    report = lf.report(
        small,
        ["6.12", "7.2+page=64K"],
        ["altra", "grace-64k"],
        seeds=[1, 2],
        memory=["64M", 128 << 20],
        swap="1G",
        fragmentation=500,
        filesystem="xfs",
        warm=True,
        nested=True,
        reference_ns=5,
        max_work=2,
        cgroup="48M",
        runtime=12.5,
        goal="faults",
    )
    expected = _expected(folio, *words, "--goal", "faults")
    answers = expected["verdict"]["answers"]
    assert len(answers) == 4 and any(answer["causes"] for answer in answers)
    assert len(report["rows"]) == 16
    assert report == expected


def test_why_is_that_of_the_command(folio: Folio, small: Path) -> None:
    kernels = ["6.12", "7.2+fault-around=4K"]
    heard: list[tuple[int, int]] = []
    report = lf.report(small, kernels, why=True, progress=lambda done, of: heard.append((done, of)))
    assert report["verdict"]["goal"] == "time"
    assert report == _expected(
        folio, str(small), "--kernel", ",".join(kernels), "--machine", "altra", "--why"
    )
    assert all(done <= of for done, of in heard) and heard == sorted(heard)
    shares = lf.why(small, kernels, filesystem="xfs").to_pylist()
    results = {(row["metric"], row["folio_bytes"]) for row in shares}
    assert ("faults_total", None) in results
    for result in results:
        of = [row for row in shares if (row["metric"], row["folio_bytes"]) == result]

        def total(*parts: str) -> int:
            return sum(row["value"] for row in of if row["part"] in parts)

        assert total("difference") == total("in_order"), result
        assert total("difference") == total("alone", "interaction", "together"), result
    assert {row["kernel_before"] for row in shares} == {"6.12"}


def test_a_kernel_is_named_by_a_string(small: Path) -> None:
    # 6.10 is the number 6.1.
    for number in (6.10, [6.10], ["7.2", 6.10]):
        with pytest.raises(TypeError, match=r"'6.12', not the number 6.1$"):
            lf.predict(small, number)  # type: ignore[arg-type]


def test_why_takes_two_kernels(small: Path) -> None:
    with pytest.raises(lf.RequestError, match="both are 7.2"):
        lf.why(small, ["7.2", "7.2"])
    with pytest.raises(lf.RequestError, match="3 were given"):
        lf.why(small, ["6.1", "6.12", "7.2"])
    assert lf.why(small, ["7.0", "7.1"]).num_rows == 0


def test_shares_have_the_names_that_kernels_have(folio: Folio, small: Path) -> None:
    one = lf.Rules("7.1").edit(name="=A")
    other = lf.Rules("7.2").edit("fault-around=4K", name="'-B, \"of\" two\nlines")
    settings: dict[str, Any] = {"memory": "128M", "fragmentation": 500, "seeds": 2**64 - 1}
    shares = lf.why(small, [one, other], ["altra", "milan"], **settings)
    assert set(shares["kernel_before"].to_pylist()) == {one.name}
    assert set(shares["kernel_after"].to_pylist()) == {other.name}
    assert set(shares["machine"].to_pylist()) == {"altra", "milan"}
    assert shares["seed"].to_pylist()[0] == 2**64 - 1
    assert shares["seed"].type == lf.predict(small, "7.2")["seed"].type
    # Only the names differ from the CSV's.
    plain = lf.why(small, ["7.1", "7.2+fault-around=4K"], ["altra", "milan"], **settings)
    for name in set(plain.column_names) - {"kernel_before", "kernel_after"}:
        assert shares[name].equals(plain[name]), name


def test_integers_and_mappings_of_every_kind_are_taken(small: Path) -> None:
    import numpy

    def same(taken: dict[str, Any], plain: dict[str, Any]) -> None:
        assert lf.predict(small, "7.2", **taken).equals(lf.predict(small, "7.2", **plain))

    path = lf.Trace(small).info["meta"]["files"][0]["path"]
    same({"seeds": numpy.int64(1)}, {"seeds": 1})
    same({"memory": numpy.int64(1 << 30)}, {"memory": 1 << 30})
    same({"memory": numpy.array([1 << 30, 1 << 31])}, {"memory": [1 << 30, 1 << 31]})
    same({"linked": numpy.uint32(2 << 20)}, {"linked": "2M"})
    same({"annotate": MappingProxyType({path: numpy.int64(65536)})}, {"annotate": {path: "64K"}})
    same({"linked": MappingProxyType({path: "2M"})}, {"linked": {path: "2M"}})
    for wrong in (numpy.bool_(True), numpy.float64(1)):
        with pytest.raises(TypeError, match="seeds: expected"):
            lf.predict(small, "7.2", seeds=wrong)


def test_the_defaults_are_three_kernels_on_an_altra(folio: Folio, small: Path) -> None:
    words = ["--kernel", "6.12,6.18,7.2", "--machine", "altra"]
    assert lf.report(small) == _expected(folio, str(small), *words)


def _numbers(prefix: str, value: Any) -> list[tuple[str, Any]]:
    """JSON pointers of a row that are columns of the table."""
    if prefix.startswith(_LEFT_OUT) or prefix.endswith(("/terms", "/difference_ns")):
        return []
    if isinstance(value, dict):
        if any(key[:1].isdigit() for key in value) or not value:
            return []
        return [pair for key, inner in value.items() for pair in _numbers(f"{prefix}/{key}", inner)]
    return [] if isinstance(value, list) else [(prefix, value)]


def test_the_table_has_the_numbers_of_the_command(folio: Folio, small: Path) -> None:
    kernels = ["6.1", "6.12", "7.2+exec-block=64K"]
    table = lf.predict(small, kernels, ["altra", "cascadelake"])
    rows = _expected(folio, str(small), "--kernel", ",".join(kernels), "--machine", "altra,cascadelake")
    assert table.num_rows == len(rows["rows"]) == 6
    nr_compared = 0
    for cell, row in zip(table.to_pylist(), rows["rows"], strict=True):
        for pointer, value in _numbers("", row):
            name = pointer.strip("/").replace("/", "_")
            name = name.replace("estimate_causes_", "estimate_")
            if name in cell:
                assert cell[name] == value, name
                nr_compared += 1
        sizes = row["folios"]["text"]["by_size"]
        found = {str(size["folio_bytes"]): size for size in cell["folios_text_by_size"]}
        assert found.keys() == sizes.keys()
        for size, counts in sizes.items():
            assert found[size]["aligned_bytes"] == counts["aligned_bytes"]
    assert nr_compared > 6 * 60


def test_the_same_call_gives_the_same_table(small: Path) -> None:
    assert lf.predict(small, "7.2").equals(lf.predict(small, "7.2"))


def test_one_call_makes_a_data_frame_of_pandas_and_of_polars(small: Path) -> None:
    import polars

    table = lf.predict(small, ["6.12", "7.2"])
    pandas_frame = table.to_pandas()
    polars_frame = polars.from_arrow(table)
    assert isinstance(polars_frame, polars.DataFrame)
    assert list(pandas_frame.kernel) == polars_frame["kernel"].to_list() == ["6.12", "7.2"]
    assert list(pandas_frame.faults_total) == polars_frame["faults_total"].to_list()


def test_a_loader_may_annotate_files(folio: Folio, small: Path) -> None:
    path = lf.Trace(small).info["meta"]["files"][0]["path"]
    expected = _expected(folio, str(small), *_ONE, "--annotate", f"{path}=64K")
    for annotate in ({path: "64K"}, {path: 65536}, f"{path}=64K", [f"{path}=64K"]):
        assert lf.report(small, "6.12", annotate=annotate) == expected


def test_programs_run_in_control_groups(folio: Folio, small: Path, traces: Path) -> None:
    demo = traces / "demo.folio"
    (program,) = lf.Trace(demo).info["programs"]
    for trace, cgroup, words in (
        (small, "24M", ["24M"]),
        (small, 24 << 20, ["24M"]),
        (demo, {program: "24M"}, [f"{program}=24M"]),
        (demo, ["*=24M", "1G"], ["*=24M", "1G"]),
    ):
        options = [word for group in words for word in ("--cgroup", group)]
        report = lf.report(trace, "6.12", cgroup=cgroup)
        assert report == _expected(folio, str(trace), *_ONE, *options), cgroup
        groups = report["rows"][0]["cgroups"]
        assert [group["limit_bytes"] for group in groups] == [24 << 20, 1 << 30][: len(words)]
    for wrong in ("cc1=", {"cc1": 0}, ""):
        with pytest.raises(ValueError, match="cgroup: .* is neither LIMIT nor PROGRAM=LIMIT"):
            lf.predict(small, "6.12", cgroup=wrong)
    with pytest.raises(TypeError, match="cgroup: expected an integer, not float"):
        lf.predict(small, "6.12", cgroup={"cc1": 0.5})


def test_a_run_takes_seconds(small: Path) -> None:
    for wrong in (0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="runtime: expected seconds"):
            lf.report(small, "6.12", runtime=wrong)
    with pytest.raises(TypeError, match="runtime: expected a number, not str"):
        lf.report(small, "6.12", runtime="12s")  # type: ignore[arg-type]


def test_images_are_laid_out_for_other_pages(folio: Folio, small: Path) -> None:
    name = lf.Trace(small).info["meta"]["files"][0]["path"]
    two = [*_ONE, "--linked"]
    for linked, words in (
        ("2M", "2M"),
        (2 << 20, "2M"),
        (["4K", "2M"], "4K,2M"),
        ({name: ["4K", "2M"]}, f"{name}=4K,2M"),
        ([f"{name}=64K"], f"{name}=64K"),
    ):
        assert lf.report(small, "6.12", linked=linked) == _expected(folio, str(small), *two, words)


def test_the_last_that_fits_counts_as_on_the_command_line(folio: Folio, small: Path) -> None:
    name = lf.Trace(small).info["meta"]["files"][0]["path"]
    for linked, words in (
        ([f"{name}=2M", "4K"], [f"{name}=2M", "--linked", "4K"]),
        (["4K", f"{name}=2M"], ["4K", "--linked", f"{name}=2M"]),
        (["4K", f"{name}=2M", "64K"], ["4K,64K", "--linked", f"{name}=2M"]),
    ):
        expected = _expected(folio, str(small), *_ONE, "--linked", *words)
        assert lf.report(small, "6.12", linked=linked) == expected, linked


def test_nothing_and_two_of_one_name_are_refused(small: Path) -> None:
    with pytest.raises(ValueError, match="memory: none is given"):
        lf.predict(small, "6.12", memory=[])
    with pytest.raises(ValueError, match="seeds: none is given"):
        lf.predict(small, "6.12", seeds=[])
    with pytest.raises(lf.RequestError, match="two different kernels are called '7.2'"):
        lf.predict(small, ["7.2", lf.Rules("6.12").edit(name="7.2")])
    with pytest.raises(TypeError, match="progress: expected"):
        lf.predict(small, "6.12", progress=0)  # type: ignore[arg-type]
    with pytest.raises(lf.KernelError, match="based-on is not a rule"):
        lf.Rules("7.2").set({"based-on": "6.12"})


def test_idle_seeds_are_warned_of(small: Path) -> None:
    with pytest.warns(lf.FolioWarning, match="seeds have no effect on unfragmented memory") as said:
        lf.predict(small, "7.2", seeds=range(5))
    assert said[0].filename == __file__


def test_errors_are_those_of_the_command(complaint: Complaint, small: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.folio"
    damaged.write_bytes(small.read_bytes()[:-1000])
    bad_machine = tmp_path / "bad.toml"
    bad_machine.write_text("name = 3\n")
    bad_kernel = tmp_path / "kernel.toml"
    bad_kernel.write_text('based-on = "7.2"\n[fault]\nexecc = 1\n')
    text = str(small)
    cases: list[tuple[type[Exception], list[str], dict[str, Any]]] = [
        (lf.TraceError, ["/nowhere.folio"], {}),
        (lf.TraceError, [str(damaged)], {}),
        (lf.TraceError, ["/dev/null"], {}),
        (lf.KernelError, [text, "--kernel", "6.81"], {"kernels": "6.81"}),
        (lf.KernelError, [text, "--kernel", "7.2+page=5K"], {"kernels": "7.2+page=5K"}),
        (lf.KernelError, [text, "--kernel", str(bad_kernel)], {"kernels": bad_kernel}),
        (
            lf.KernelError,
            [text, "--kernel", "7.2+min-folio=32M", "--machine", "altra"],
            {"kernels": "7.2+min-folio=32M"},
        ),
        (lf.MachineError, [text, "--machine", "altar"], {"machines": "altar"}),
        (lf.MachineError, [text, "--machine", str(bad_machine)], {"machines": bad_machine}),
        (lf.RequestError, [text, "--fs", "ntfs"], {"filesystem": "ntfs"}),
        (lf.RequestError, [text, "--annotate", "nothing=64K"], {"annotate": "nothing=64K"}),
        (
            lf.RequestError,
            [text, "--fragmentation", "1", "--seed", ",".join(map(str, range(300)))],
            {"fragmentation": 1, "seeds": range(300)},
        ),
        (
            lf.ReplayError,
            [text, "--kernel", "7.2+page=64K", "--machine", "cascadelake"],
            {"kernels": "7.2+page=64K", "machines": "cascadelake"},
        ),
    ]
    for kind, words, arguments in cases:
        with pytest.raises(kind) as raised:
            lf.predict(words[0], **arguments)
        assert str(raised.value) == complaint("predict", *words), words
        assert isinstance(raised.value, lf.FolioError)


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"kernels": None}, TypeError),
        ({"kernels": []}, ValueError),
        ({"kernels": [None]}, TypeError),
        ({"kernels": b"7.2"}, TypeError),
        ({"kernels": "7.2\0"}, ValueError),
        ({"kernels": "\udcff"}, (ValueError, TypeError)),
        ({"machines": 3}, TypeError),
        ({"machines": ()}, ValueError),
        ({"seeds": -1, "fragmentation": 1}, ValueError),
        ({"seeds": 1 << 64, "fragmentation": 1}, ValueError),
        ({"seeds": 10**1000, "fragmentation": 1}, ValueError),
        ({"seeds": math.nan}, TypeError),
        ({"seeds": True}, TypeError),
        ({"memory": math.nan}, TypeError),
        ({"memory": 0}, (ValueError, lf.ReplayError)),
        ({"memory": -1}, ValueError),
        ({"memory": 1 << 63}, ValueError),
        ({"memory": "16G\0"}, ValueError),
        ({"memory": ""}, ValueError),
        ({"swap": 1 << 62}, ValueError),
        ({"swap": None}, TypeError),
        ({"fragmentation": 1001}, ValueError),
        ({"fragmentation": 1 << 40}, ValueError),
        ({"fragmentation": 0.5}, TypeError),
        ({"filesystem": ""}, ValueError),
        ({"filesystem": "xfs\0"}, ValueError),
        ({"warm": 1}, TypeError),
        ({"nested": None}, TypeError),
        ({"annotate": 3}, TypeError),
        ({"annotate": {"x": None}}, TypeError),
        ({"annotate": ["x"]}, ValueError),
        ({"reference_ns": -1}, ValueError),
        ({"max_work": -1}, ValueError),
        ({"max_work": 0}, lf.RequestError),
        ({"progress": "bar"}, TypeError),
        ({"progress": 3}, TypeError),
    ],
)
def test_what_is_no_argument_is_refused(
    small: Path, arguments: dict[str, Any], kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        lf.predict(small, **arguments)


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        ("kernel", r"did you mean kernels\?"),
        ("machine", r"did you mean machines\?"),
        ("file_system", r"did you mean filesystem\?"),
        ("walk", "there are kernels, machines, seeds, policy"),
    ],
)
def test_an_unknown_argument_is_answered_with_the_nearest(
    small: Path, given: str, answer: str
) -> None:
    unknown: dict[str, Any] = {given: "7.2"}
    with pytest.raises(TypeError, match=f"{given}: no such argument; {answer}"):
        lf.predict(small, **unknown)


@pytest.mark.parametrize("trace", [None, 3, b"x", "\0", "a\0b", [], math.nan])
def test_what_is_no_path_is_refused(trace: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        lf.predict(trace)
    with pytest.raises((TypeError, ValueError)):
        lf.Trace(trace)


def test_progress_hears_rows_and_may_stop_it(small: Path) -> None:
    heard: list[tuple[int, int]] = []
    lf.predict(small, "7.2", warm=True, progress=lambda done, of: heard.append((done, of)))
    total = 2 * len(lf.Trace(small))
    assert heard[-1] == (total, total)
    assert heard == sorted(heard)

    def refuse(_done: int, _of: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        lf.predict(small, "7.2", progress=refuse)


def test_other_threads_run_during_a_replay(traces: Path) -> None:
    """The lock is released: a thread counts while the replay is inside one native call."""
    inside, ticks = threading.Event(), 0
    stop = threading.Event()

    def count() -> None:
        nonlocal ticks
        inside.wait()
        while not stop.is_set():
            ticks += 1
            time.sleep(0.001)

    other = threading.Thread(target=count)
    other.start()
    starts: list[int] = []

    def hear(_done: int, _of: int) -> None:
        starts.append(ticks)
        inside.set()

    lf.predict(traces / "cc1.folio", ["6.12", "7.2"], ["altra", "zen4"], progress=hear)
    stop.set()
    other.join()
    # If the lock were held all the time, it could tick only once per call of `hear`, which releases
    # it.
    assert starts[-1] - starts[0] > 3 * len(starts)


# A gate in the background ignores SIGINT, and its children inherit that.
_LONG = """
import signal, sys, largefolio as lf
signal.signal(signal.SIGINT, signal.default_int_handler)
kernels = ["6.1", "6.12", "6.16", "6.17", "6.18", "6.19", "7.0", "7.2"]
said = False
def hear(done, of):
    global said
    if not said:
        said = True
        print("begun", flush=True)
try:
    lf.predict(sys.argv[1], kernels, lf.machines()[:8], memory="1G", warm=True, progress=hear)
    print("ended")
except KeyboardInterrupt:
    print("interrupted", lf.predict(sys.argv[2], "7.2").num_rows)
"""


def test_ctrl_c_stops_a_long_replay_and_leaves_python_alive(traces: Path, small: Path) -> None:
    words = [sys.executable, "-c", _LONG, str(traces / "cc1.folio"), str(small)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=120)
    assert rest == "interrupted 1\n"
    assert process.returncode == 0


def test_ctrl_c_comes_as_it_does_from_a_thread(traces: Path) -> None:
    """64 cells take a minute; the signal ends them after the current batch."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    main = threading.main_thread().ident
    assert main is not None
    sent = threading.Event()

    def interrupt(_done: int, _of: int) -> None:
        if not sent.is_set():
            sent.set()
            threading.Thread(target=signal.pthread_kill, args=(main, signal.SIGINT)).start()

    kernels, machines = lf.kernels()[:8], lf.machines()[:8]
    with pytest.raises(KeyboardInterrupt):
        lf.predict(traces / "cc1.folio", kernels, machines, memory="1G", progress=interrupt)
    signal.signal(signal.SIGINT, before)
    assert sent.is_set()


def test_a_forked_child_can_predict(small: Path) -> None:
    """The parent's threads do not exist in a child: each call starts its own."""
    code = (
        "import os, sys, largefolio as lf\n"
        "lf.predict(sys.argv[1], '7.2')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(lf.predict(sys.argv[1], ['6.12', '7.2']).num_rows)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    words = [sys.executable, "-W", "ignore", "-c", code, str(small)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == "2\n"
