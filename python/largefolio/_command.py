"""Finds and runs the command ``folio`` that comes with the package, and reads its output.

What runs programs, watches signals, forks keepers of settings or mounts is done by a process of its
own, never inside the interpreter.
"""

from __future__ import annotations

import math
import os
import select
import signal
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import NoReturn

from largefolio.errors import CommandError, FolioWarning

_FOLIO = Path(__file__).resolve().parent / "_folio" / "bin" / "folio"
_VARIABLE = "LARGEFOLIO_FOLIO"
_ERROR = "folio: error: "
_WARNING = "folio: warning: "
# Exit status of folio where it fails itself.
_FAILED = 2
# Between two looks whether a program that says nothing has ended.
_LOOK_MS = 100
# What it said before it ended is in the pipe then. Somebody who goes on writing is not read for longer.
_REST_S = 1
# How long a child may take to end of itself, having had the same Ctrl-C.
_HEARD_S = 2
# What is undone on the way out takes a moment; a second Ctrl-C does not wait for it.
_PATIENCE_S = 30


def place() -> str:
    """Where the command should be: the variable LARGEFOLIO_FOLIO, else in this package."""
    return os.environ.get(_VARIABLE) or str(_FOLIO)


def folio() -> str:
    """Path of the command, which is there and can be run."""
    named = os.environ.get(_VARIABLE)
    path = Path(place())
    if not path.is_file():
        raise CommandError(
            f"{path} is missing: set {_VARIABLE} to the command folio, or install the package "
            "from its repository with pip install ./python"
        )
    if not os.access(path, os.X_OK) and not named:
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return str(path)


def main() -> NoReturn:
    """The console command ``folio``: replaces this process."""
    os.execv(folio(), ["folio", *sys.argv[1:]])


def run(arguments: Sequence[str], accepted: Iterable[int] = (0,)) -> str:
    """Runs ``folio`` and returns what it wrote to stdout.

    Its warnings become :class:`FolioWarning`, its error becomes :class:`CommandError`. Ctrl-C goes to
    it, and it is waited for while it puts everything back.
    """
    command = [folio(), *arguments]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=PIPE, stderr=PIPE) as process:
        with _ending(process):
            out, err = process.communicate()
    said = _heard(err.decode(errors="replace").splitlines())
    if process.returncode not in accepted:
        raise CommandError(said or _status(process.returncode), process.returncode)
    return out.decode(errors="replace")


def run_program(arguments: Sequence[str]) -> int:
    """Runs ``folio`` with a program that has standard input, output and error of this process.

    Returns the exit status, which is the program's; warnings are as in :func:`run`, and so is the
    error that ``folio`` itself ends with. What the program leaves running is not waited for; its
    standard error is closed.
    """
    warned: list[str] = []
    # From a line on that may begin folio's own error, which is the last that it says.
    held: list[str] = []
    with subprocess.Popen([folio(), *arguments], stderr=PIPE) as process:
        with _ending(process):
            for text in _lines_until_it_ends(process):
                if text.startswith(_WARNING):
                    warned.append(text.rstrip("\n"))
                elif text.startswith(_ERROR) or held:
                    held.append(text)
                else:
                    _show(text)
            process.wait()
    _heard(warned)
    code = process.returncode
    if code < 0 or (held and code == _FAILED):
        raise CommandError(_heard("".join(held).splitlines()) or _status(code), code)
    # The program has said it.
    _show("".join(held))
    return code


def _lines_until_it_ends(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """What it writes to stderr, until it ends: others that have the pipe may keep it open for long."""
    assert process.stderr is not None
    pipe = process.stderr.fileno()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    begun = bytearray()
    until = math.inf
    while time.monotonic() < until:
        has_ended = process.poll() is not None
        if has_ended:
            until = min(until, time.monotonic() + _REST_S)
        if poll.poll(0 if has_ended else _LOOK_MS):
            if not (read := os.read(pipe, 1 << 16)):
                break
            begun += read
            if b"\n" in read:
                *lines, begun = begun.split(b"\n")
                yield from (line.decode(errors="replace") + "\n" for line in lines)
        elif has_ended:
            break
    if begun:
        yield begun.decode(errors="replace")


def _show(text: str) -> None:
    if text and sys.stderr is not None:
        sys.stderr.write(text)


@contextmanager
def _ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ends the process as Ctrl-C does when this one is interrupted."""
    try:
        yield
    except BaseException:
        # Ctrl-C in a terminal reaches the child too; once is enough then.
        if not _waited(process, _HEARD_S):
            process.send_signal(signal.SIGINT)
            if not _waited(process, _PATIENCE_S):
                process.terminate()
        raise


def _waited(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether it ended within that time."""
    try:
        process.communicate(timeout=seconds)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        return process.poll() is not None
    return True


def _heard(lines: Iterable[str]) -> str:
    """Issues the warnings among ``lines``; returns the error, else the other lines."""
    errors, others = [], []
    for line in lines:
        if line.startswith(_WARNING):
            warnings.warn(line.removeprefix(_WARNING), FolioWarning, stacklevel=4)
        elif line.startswith(_ERROR):
            errors.append(line.removeprefix(_ERROR))
        elif errors:
            errors.append(line)
        else:
            others.append(line)
    return "\n".join(errors or others).strip()


def _status(code: int) -> str:
    return f"folio was ended by signal {-code}" if code < 0 else f"folio ended with status {code}"
