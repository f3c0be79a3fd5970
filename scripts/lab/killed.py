"""Leftovers of a killed folio: there must be none, or none after the next run.

Each check runs a command completely once, and then kills it at moments spread over that time.
Settings are restored within `BACK` seconds by the helper that holds them. Named kernel objects (an
instance of tracefs, a probe) are removed by the next run.
"""

import contextlib
import os
import pathlib
import shutil
import subprocess
import time

from check import CHECKS, THP, Skipped, check, expect, settings, size_name, standing

MOMENTS, MOMENTS_OF_SHORT = 6, 20
SHORT = 2                       # seconds
BACK = 60                       # seconds; an emulated machine is slow
TRACING = pathlib.Path("/sys/kernel/tracing")


def state():
    """All possible leftovers of a killed folio, by name."""
    files = [*THP.rglob("*"), *pathlib.Path("/sys/block").glob("*/queue/read_ahead_kb")]
    # Exclude counters, including khugepaged's.
    files = [path for path in files if path.parent.name != "stats"
             and not path.name.endswith(("scans", "collapsed"))]
    found = {str(path): text(path) for path in files if path.is_file()}
    found["devices"] = sorted(path.name for path in pathlib.Path("/sys/block").glob("zram*"))
    found["mounts"] = sorted(text("/proc/self/mounts").splitlines())
    found["loop devices"] = sorted(map(text, pathlib.Path("/sys/block").glob("loop*/loop/*file")))
    return found


def text(path):
    with contextlib.suppress(OSError):
        return pathlib.Path(path).read_text().strip()
    return ""


def named():
    """folio's instances of tracefs and probes."""
    if not (TRACING / "instances").is_dir():
        raise Skipped(f"tracefs is not mounted at {TRACING}")
    instances = [path.name for path in (TRACING / "instances").glob("folio*")]
    probes = [line for line in text(TRACING / "kprobe_events").splitlines() if "folio" in line]
    return instances + probes


def comes_back(before):
    """Waits until the state is as before."""
    end = time.monotonic() + BACK
    while (now := state()) != before and time.monotonic() < end:
        time.sleep(0.2)
    other = [f"{name}: {now.get(name)}" for name in before | now
             if before.get(name) != now.get(name)]
    expect(not other, f"not as before: {'; '.join(other[:3])}")


def start(run, words, **environment):
    words = [str(word) for word in [run.program(words[0]), *words]]
    run.log.write(f"$ {' '.join(words)} &\n")
    run.log.flush()
    return subprocess.Popen(words, cwd=run.folder, stdin=subprocess.DEVNULL, stdout=run.log,
                            stderr=run.log, env={**os.environ, **environment})


def killed(run, words, afterwards=lambda: None, **environment):
    """Kills folio at moments of its run; returns how often it was alive, and the seconds of a run."""
    temporary = run.folder / "temporary"
    temporary.mkdir(exist_ok=True)
    environment = {"TMPDIR": str(temporary), **environment}
    before, began = state(), time.monotonic()
    run.folio(*words, wanted=(0, 1), **environment)
    took = time.monotonic() - began
    afterwards()
    comes_back(before)
    nr_alive = nr_left = 0
    nr_moments = MOMENTS if took > SHORT else MOMENTS_OF_SHORT
    for moment in range(nr_moments):
        child = start(run, words, **environment)
        time.sleep(took * (moment + 0.5) / nr_moments)
        nr_alive += child.poll() is None
        child.kill()
        child.wait()
        nr_left += bool(named())
        afterwards()
        comes_back(before)
    run.folio(*words, wanted=(0, 1), **environment)
    afterwards()
    comes_back(before)
    left = named() + [path.name for path in temporary.iterdir()]
    expect(not left, f"left after the next run: {left}")
    expect(nr_alive > 1, f"folio was alive at {nr_alive} of {nr_moments} moments")
    return f"{nr_alive} kills in {took:.0f} s, {nr_left} left a name for the next run"


@check
def killed_tune(run):
    """`--undo` works, whenever tune was killed."""
    own = {"XDG_STATE_HOME": str(run.folder / "state")}
    words = ["tune", "--set", f"thp.enabled={other(THP / 'enabled')}", "--yes"]

    def undone():
        run.folio("tune", "--undo", **own)

    return killed(run, words, undone, **own)


def other(path):
    return "always" if "[madvise]" in path.read_text() else "madvise"


@check
def killed_run(run):
    """The settings of `run --heap` are restored, and the program ends too."""
    sizes = sorted(THP.glob("hugepages-*kB/enabled"), key=lambda path: int(path.parent.name[10:-2]))
    before = state()
    words = [run.folio_path, "run", "--text", "off", "--heap", size_name(sizes[0].parent), "--",
             "/usr/bin/python3"]
    with standing(words) as (pid, child):
        expect(state() != before, "the heap size was not set")
        child.kill()
        comes_back(before)
        end = time.monotonic() + BACK
        while is_alive(pid) and time.monotonic() < end:
            time.sleep(0.2)
        expect(not is_alive(pid), "the program still runs")
    return "settings back, program ended"


def is_alive(pid):
    said = text(f"/proc/{pid}/stat")
    return bool(said) and ") Z " not in said


def job(name, words, **values):
    """Makes a check of a command that is killed while settings have these values."""
    def perform(run):
        with settings(run, values) if values else contextlib.nullcontext():
            return killed(run, words)
    CHECKS[f"killed-{name}"] = perform


job("crosscheck", ["crosscheck", "--only", "*seq*", "--fs", "ext4"])
job("program", ["crosscheck", "program", "--", "/bin/true"])
ADVISED = {"thp.enabled": "madvise"}
job("cow", ["crosscheck", "cow", "--programs", "5"], **ADVISED)
job("collapse", ["crosscheck", "collapse", "--programs", "5"], **ADVISED)


@check
def killed_files(run):
    """A warmed file is unchanged; a copy written by `align` is complete or absent."""
    folder = run.folder / "files"
    folder.mkdir()
    program, copy = folder / "program", folder / "copy"
    shutil.copy(run.folio_path, program)
    content, whole = program.read_bytes(), []

    def is_whole():
        expect(program.read_bytes() == content, "warm changed the file")
        if copy.exists():
            whole[:] = whole or [copy.read_bytes()]
            expect(copy.read_bytes() == whole[0], "the copy is incomplete")
        names = {path.name for path in folder.iterdir()} - {"program", "copy"}
        expect(not names, f"left next to the files: {names}")
        copy.unlink(missing_ok=True)

    said = [killed(run, words, is_whole)
            for words in (["align", program, "-o", copy], ["warm", program])]
    return "; ".join(said)
