"""Finds and runs the package's command ``folio``, and reads its output.

The command is a separate process. It runs programs, watches signals, forks keepers of settings and
mounts filesystems; the interpreter never does.
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
# folio's exit status for its own errors.
_FAILED = 2
# Interval between checks whether a silent program has ended.
_LOOK_MS = 100
# Longest time to read the rest of the pipe after the program ended; another process may still write
# to it.
_REST_S = 1
# Time for a child to end by itself after the same Ctrl-C.
_HEARD_S = 2
# Time to undo changes on exit; a second Ctrl-C does not wait for it.
_PATIENCE_S = 30


def place() -> str:
    """Returns the command's expected path: the variable LARGEFOLIO_FOLIO, otherwise in this
    package.
    """
    return os.environ.get(_VARIABLE) or str(_FOLIO)


def folio() -> str:
    """Returns the path of the command, after checking that it exists and is executable."""
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
    """Runs ``folio`` and returns its stdout.

    Its warnings become :class:`FolioWarning`, its error becomes :class:`CommandError`. Ctrl-C is
    passed to it, and this process waits while it restores everything.
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
    """Runs ``folio`` with a program that uses this process's standard input, output and error.

    Returns the program's exit status. Warnings and folio's own final error are handled as in
    :func:`run`. The call does not wait for processes that the program leaves running; their
    standard error is closed.
    """
    warned: list[str] = []
    # Lines from one that may begin folio's own error, which is its last output.
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
    _show("".join(held))
    return code


def _lines_until_it_ends(process: subprocess.Popen[bytes]) -> Iterator[str]:
    """Yields the lines of its stderr until it ends; other processes may keep the pipe open for
    long.
    """
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
    """Ends the process as Ctrl-C would if this one is interrupted."""
    try:
        yield
    except BaseException:
        # In a terminal, Ctrl-C reaches the child too, and one signal is enough.
        if not _waited(process, _HEARD_S):
            process.send_signal(signal.SIGINT)
            if not _waited(process, _PATIENCE_S):
                process.terminate()
        raise


def _waited(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Returns whether it ended within that time."""
    try:
        process.communicate(timeout=seconds)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        return process.poll() is not None
    return True


def _heard(lines: Iterable[str]) -> str:
    """Issues the warnings in ``lines``; returns the error, otherwise the other lines."""
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
