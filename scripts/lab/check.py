"""A check of the laboratory: a function of `Run` that returns its figures, or raises the reason for
a failure.

Owns the list of checks and their shared parts: commands with a time limit, settings that are
restored, a process that stands still.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

SECONDS = 300                   # a longer command is stuck
TOLD = 300                      # characters of a failure on its line
THP = pathlib.Path("/sys/kernel/mm/transparent_hugepage")
# A process with 16 MiB of private and 4 MiB of shared memory, unchanged until it is killed.
IDLE = """import mmap, signal
own = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
shared = mmap.mmap(-1, 4 << 20)
for memory in own, shared:
    for at in range(0, len(memory), 4096):
        memory[at] = 1
print("ready", flush=True)
signal.pause()
"""
WAITS = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
CHECKS = {}



class Failed(Exception):
    """The failure, in one line."""


class Skipped(Exception):
    """Why a check is not meaningful here."""


def check(function):
    """Makes a function of `Run` a check; its result is the figure on its line."""
    CHECKS[function.__name__.replace("_", "-")] = function
    return function


class Run:
    """A running check: the bundle, an empty folder, and a log of its commands."""

    def __init__(self, bundle, folder, log):
        self.bundle, self.folder, self.log = bundle, folder, log

    def command(self, *words, seconds=SECONDS, where=None, wanted=(0,), **environment):
        """Standard output of a command, which must end in time with an accepted status."""
        words = [str(word) for word in words]
        self.log.write(f"$ {' '.join(words)}\n")
        self.log.flush()
        began = time.monotonic()
        child = subprocess.Popen(words, cwd=where or self.folder, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 errors="replace", env={**os.environ, **environment},
                                 start_new_session=True)
        try:
            out, err = child.communicate(timeout=seconds)
        except BaseException as why:
            self.log.write("".join(end(child)))
            if not isinstance(why, subprocess.TimeoutExpired):
                raise
            raise Failed(f"`{' '.join(words[:4])}` did not end within {seconds} s") from None
        took = time.monotonic() - began
        self.log.write(f"{out}{err}# status {child.returncode}, {took:.1f} s\n\n")
        if child.returncode not in wanted:
            raise Failed(f"`{' '.join(words[:4])}` ended with {child.returncode}: "
                         f"{last_of(err or out)}")
        return out

    @property
    def folio_path(self):
        return self.bundle / "bin" / "folio"

    def program(self, verb):
        """The program that has the verb."""
        return self.folio_path.with_name("folio-lab") if verb == "crosscheck" else self.folio_path

    def folio(self, *words, **how):
        return self.command(self.program(words[0]), *words, **how)

    def folio_json(self, *words, **how):
        """A result; status 1 means "no"."""
        # Words after -- belong to another program.
        end = words.index("--") if "--" in words else len(words)
        words = [*words[:end], "--json", *words[end:]]
        return json.loads(self.folio(*words, wanted=(0, 1), **how))


def end(child):
    """Ends a child with all its processes and returns its output. On SIGTERM folio restores
    settings.
    """
    printed = ()
    for number, seconds in ((signal.SIGTERM, 30), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            printed = child.communicate(timeout=seconds)
    return printed


def last_of(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-TOLD:]


def expect(is_so, why):
    if not is_so:
        raise Failed(why)


@contextlib.contextmanager
def idle():
    """The process id of a process that runs IDLE."""
    with subprocess.Popen([sys.executable, "-c", IDLE], stdout=subprocess.PIPE) as child:
        try:
            child.stdout.readline()
            asleep(child.pid)
            yield child.pid
        finally:
            child.kill()


def asleep(pid):
    """Waits until a process sleeps: it still touches memory after its last line."""
    while ") S " not in pathlib.Path(f"/proc/{pid}/stat").read_text():
        time.sleep(0.05)
    time.sleep(0.1)


@contextlib.contextmanager
def standing(words):
    """The process ids of a waiting python and of its child, which may differ."""
    words = [*map(str, words), "-c", WAITS]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True,
                          env={**os.environ, "PYTHONHOME": "/usr"}) as child:
        try:
            pid = int(child.stdout.readline())
            asleep(pid)
            yield pid, child
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


@contextlib.contextmanager
def settings(run, values):
    """Changes settings through folio, with a separate record, and restores them."""
    state = {"XDG_STATE_HOME": str(run.folder / "state")}
    pairs = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    try:
        run.folio("tune", *pairs, "--yes", **state)
        yield
    finally:
        run.folio("tune", "--undo", **state)


def chosen(path):
    return re.search(r"\[(\w+)\]", path.read_text())[1]


def size_name(folder):
    kb = int(folder.name[10:-2])
    return f"{kb >> 10}M" if kb >= 1024 else f"{kb}K"


def copied(run):
    """Makes a fresh copy of folio on disk, so its folios are new."""
    copy = pathlib.Path(shutil.copy(run.bundle / "bin" / "folio", run.folder / "program"))
    os.sync()
    return copy
