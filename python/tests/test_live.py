"""Results of commands: in this process, and through the package's command."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import largefolio as lf
from largefolio import _command

Folio = Callable[..., subprocess.CompletedProcess[str]]


def qemu_with_plugins() -> str:
    """Returns its path, or an empty string."""
    script = Path(__file__).parents[2] / "scripts" / "qemu.sh"
    return subprocess.run([script, "find"], capture_output=True, text=True).stdout.strip()


qemu = qemu_with_plugins()
# A folio in a Python environment does not find a QEMU built in the checkout.
os.environ |= {"LARGEFOLIO_QEMU": qemu} if qemu else {}
needs_qemu = pytest.mark.skipif(not qemu, reason="SKIPPED: no QEMU with plugins (make qemu)")


@needs_qemu
def test_a_tiny_program_is_recorded_and_predicted(tmp_path: Path) -> None:
    output = tmp_path / "true.folio"
    trace = lf.record(["/bin/true"], output, quiet=True)
    assert trace.path == str(output)
    assert len(trace) > 100
    assert trace.info["meta"]["command"] == ["/bin/true"]
    assert trace.info["meta"]["recorder"] == "qemu"
    assert trace.info["meta"]["links"] is True
    rows = pa.Table.from_batches(trace.events())
    is_linked = pc.and_(pc.equal(rows["op"].cast(pa.string()), "read"), pc.greater(rows["flags"], 0))
    assert pc.any(is_linked).as_py()
    table = lf.predict(trace, ["6.12", "7.2"])
    assert all(total > 0 for total in table["faults_total"].to_pylist())


@needs_qemu
def test_a_program_that_fails_is_recorded_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = lf.record(["/bin/sh", "-c", "echo told >&2; exit 3"], tmp_path / "false.folio")
    assert "3" in trace.info["meta"]["ended"]
    said = capsys.readouterr().err
    assert said.startswith("told\nfolio: recorded "), said


def test_what_was_there_is_not_taken_for_a_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old.folio"
    shutil.copy(Path(__file__).parents[2] / "traces/demo.folio", old)
    refuses = tmp_path / "folio"
    refuses.write_text("#!/bin/sh\necho 'error: no such option' >&2\nexit 2\n")
    refuses.chmod(0o755)
    monkeypatch.setenv("LARGEFOLIO_FOLIO", str(refuses))
    with pytest.raises(lf.CommandError, match="wrote no .*old.folio"):
        lf.record(["/bin/true"], old)
    with pytest.raises(ValueError, match="recorder: expected one of auto, qemu, not"):
        lf.record(["/bin/true"], old, recorder="QEMU")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="output: expected"):
        lf.record(["/bin/true"], "")


def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(lf.CommandError) as raised:
        lf.record(["/nowhere/program"], tmp_path / "x.folio")
    assert "/nowhere/program" in str(raised.value)
    assert raised.value.returncode == 2
    assert not (tmp_path / "x.folio").exists()


@needs_qemu
def test_what_a_program_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    words = ["sh", "-c", f"sleep 60 > /dev/null & echo $! > {tmp_path}/pid"]
    with pytest.warns(lf.FolioWarning, match="still running when the program ended"):
        trace = lf.record(words, tmp_path / "sh.folio", quiet=True)
    assert "0" in trace.info["meta"]["ended"]
    _end_what_stayed(tmp_path)


def _end_what_stayed(tmp_path: Path) -> None:
    """Ends the process with the PID in the file; it still has stderr open."""
    pid = int((tmp_path / "pid").read_text())
    assert os.readlink(f"/proc/{pid}/fd/2").startswith("pipe:")
    os.kill(pid, signal.SIGKILL)


def _fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """Another program in place of ``folio``."""
    fake = tmp_path / "folio"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("LARGEFOLIO_FOLIO", str(fake))


@pytest.mark.parametrize("stays", ["sleep 60", "yes"])
def test_whoever_still_has_stderr_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stays: str
) -> None:
    monkeypatch.setattr(_command, "_REST_S", 0.1)
    script = f"printf told >&2; (exec {stays}) >&2 & echo $! > {tmp_path}/pid; exit 3"
    _fake(tmp_path, monkeypatch, script)
    assert _command.run_program([]) == 3
    assert capsys.readouterr().err.startswith("told")
    # `yes` ends once its pipe has no reader.
    if stays != "yes":
        _end_what_stayed(tmp_path)


def test_an_error_is_one_of_folio_if_its_status_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "folio: error: no disk\n  get one\n"
    for status in (0, 1, 130):
        _fake(tmp_path, monkeypatch, f"printf '{said}' >&2; exit {status}")
        assert _command.run_program([]) == status
        assert capsys.readouterr().err == said
    _fake(tmp_path, monkeypatch, f"printf '{said}' >&2; exit 2")
    with pytest.raises(lf.CommandError, match=r"^no disk\n  get one$") as raised:
        _command.run_program([])
    assert raised.value.returncode == 2
    assert capsys.readouterr().err == ""
    _fake(tmp_path, monkeypatch, "kill -KILL $$")
    with pytest.raises(lf.CommandError, match="ended by signal 9"):
        _command.run_program([])


@pytest.mark.parametrize("command", ["ls -l", b"ls", [], None, [None], ["a\0"]])
def test_what_is_no_command_is_refused(command: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        lf.record(command)


def test_an_interrupted_command_puts_everything_back(tmp_path: Path) -> None:
    """Ctrl-C reaches the child, which ends; Python continues."""
    fake = tmp_path / "folio"
    done = tmp_path / "done"
    fake.write_text(
        f"#!{sys.executable}\nimport signal, sys, pathlib, os\n"
        "def end(*_):\n"
        f"    pathlib.Path({str(done)!r}).write_text('back')\n"
        "    sys.exit(130)\n"
        "signal.signal(signal.SIGINT, end)\n"
        "os.kill(os.getppid(), signal.SIGINT)\n"
        "signal.pause()\n"
    )
    fake.chmod(0o755)
    code = (
        "import signal, largefolio as lf\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "try:\n    lf.record(['true'])\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
    )
    environment = {**os.environ, "LARGEFOLIO_FOLIO": str(fake)}
    words = [sys.executable, "-c", code]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == "interrupted\n", ended
    assert done.read_text() == "back"


def test_maps_of_this_process() -> None:
    found = lf.maps(os.getpid())
    assert [process["pid"] for process in found["processes"]] == [os.getpid()]
    table = found.to_arrow()
    assert table.num_rows > 10
    assert set(table["pid"].to_pylist()) == {os.getpid()}
    # A page shared by two mappings counts in both rows, and once in the totals.
    total = sum(row["mapped_bytes"] for row in found["totals"])
    assert sum(table["mapped_bytes"].to_pylist()) >= total > 1 << 20
    mappings = found["processes"][0]["mappings"]
    assert table.num_rows == sum(len(mapping["folios"]) for mapping in mappings)


def test_maps_of_files_and_of_programs() -> None:
    cached = lf.maps(files=sys.executable).to_arrow()
    assert set(cached["kind"].to_pylist()) == {"cached"}
    table = lf.maps(elf="/bin/sh", kernel="7.2+page=16K").to_arrow()
    assert {"path", "segment", "size_bytes", "covered_bytes", "refusal"} <= set(table.column_names)


def test_maps_of_nobody_is_an_error() -> None:
    with pytest.raises(lf.MapsError, match="specify what to show"):
        lf.maps()
    with pytest.raises(lf.MapsError, match="no process"):
        lf.maps(2**31 - 1)
    with pytest.raises(lf.KernelError):
        lf.maps(elf="/bin/sh", kernel="0.1")
    for wrong in (
        {"all": True}, {"cgroup": "/sys/fs/cgroup"}, {"elf": "/bin/sh"}, {"kernel": "6.1+page=64K"}
    ):
        with pytest.raises(ValueError, match="not both|cannot be combined|for programs on disk"):
            lf.maps(1, **wrong)  # type: ignore[arg-type]
    for pids in (None, "1", -1, 1 << 40):
        with pytest.raises((TypeError, ValueError)):
            lf.maps(pids)  # type: ignore[arg-type]


_TIMES = ("taken_unix_s",)


def _same_as(folio: Folio, found: dict[str, Any]) -> None:
    """The command line in a result prints the same result."""
    words = found["command_line"]
    done = folio(*words[1:])
    assert done.returncode == 0, done
    again = {**json.loads(done.stdout), **{key: found[key] for key in _TIMES if key in found}}
    assert again == found


def test_results_are_those_of_the_command(folio: Folio) -> None:
    _same_as(folio, lf.maps(elf=["/bin/sh", sys.executable], kernel="7.2+page=16K"))
    _same_as(folio, lf.maps(files="/bin/sh"))
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        try:
            # The program's memory changes until it sleeps.
            while not _sleeps(sleeping.pid):
                time.sleep(0.01)
            with warnings.catch_warnings():
                # Without root, not all folio sizes are known.
                warnings.simplefilter("ignore", lf.FolioWarning)
                _same_as(folio, lf.maps(sleeping.pid))
        finally:
            sleeping.kill()


def _sleeps(pid: int) -> bool:
    """Whether it sleeps, as `sleep` and not as the process that starts it."""
    words = Path(f"/proc/{pid}/stat").read_text().split()
    return words[1] == "(sleep)" and words[2] == "S"


def test_ctrl_c_stops_a_prediction_and_leaves_python_alive(traces: Path) -> None:
    """The signal arrives during a replay; the interpreter and the module keep working."""
    code = (
        "import os, signal, threading, largefolio as lf\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        f"try:\n    [lf.predict({str(traces / 'make.folio')!r}) for _ in range(99)]\n"
        "except KeyboardInterrupt:\n    print('interrupted')\n"
        "print(len(lf.maps(elf='/bin/sh')['files']))\n"
    )
    words = [sys.executable, "-c", code]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert ended.stdout == "interrupted\n1\n", ended


def test_a_forked_child_can_look() -> None:
    """A fork loses no thread pool."""
    lf.maps(os.getpid())
    child = os.fork()
    if child == 0:
        os._exit(0 if lf.maps(os.getpid())["processes"] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_command_is_on_the_path() -> None:
    folio = Path(sys.executable).parent / "folio"
    done = subprocess.run([folio, "--version"], capture_output=True, text=True, check=True)
    assert lf.__version__ in done.stdout


def test_a_missing_command_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LARGEFOLIO_FOLIO", "/nowhere/folio")
    with pytest.raises(lf.CommandError, match="/nowhere/folio is missing"):
        lf.record(["true"])


def test_a_signal_that_ends_the_command_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "folio"
    fake.write_text("#!/bin/sh\nkill -KILL $$\n")
    fake.chmod(0o755)
    monkeypatch.setenv("LARGEFOLIO_FOLIO", str(fake))
    with pytest.raises(lf.CommandError) as raised:
        lf.record(["true"])
    assert raised.value.returncode == -signal.SIGKILL
