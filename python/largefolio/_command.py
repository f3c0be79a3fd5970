"""The command ``folio`` that comes with the package: found, run, and its words understood.

What touches the running kernel (signals, forked keepers of settings, mounts) is done by a process
of its own, never inside the interpreter.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from largefolio.errors import CommandError, FolioWarning

_FOLIO = Path(__file__).resolve().parent / "_folio" / "bin" / "folio"
_VARIABLE = "LARGEFOLIO_FOLIO"
_ERROR = "folio: error: "
_WARNING = "folio: warning: "
# What is undone on the way out takes a moment; a second Ctrl-C does not wait for it.
_PATIENCE_S = 30


def folio() -> str:
    """Path of the command: the variable LARGEFOLIO_FOLIO, else the one in this package."""
    named = os.environ.get(_VARIABLE)
    path = Path(named) if named else _FOLIO
    if not path.is_file():
        raise CommandError(
            f"{path} is missing: set {_VARIABLE} to the command folio, or install the package "
            "from its repository with pip install ./python"
        )
    if not os.access(path, os.X_OK) and not named:
        path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    return str(path)


def main() -> NoReturn:
    """The console command ``folio``: becomes the program."""
    os.execv(folio(), ["folio", *sys.argv[1:]])


def run(arguments: Sequence[str], accepted: Iterable[int] = (0,), *, owns_streams: bool = False) -> str:
    """Runs ``folio`` and returns what it wrote to stdout.

    Its warnings become :class:`FolioWarning`, its error becomes :class:`CommandError`. Ctrl-C goes to
    it, and it is waited for while it puts everything back. With ``owns_streams`` standard input and
    output are the program's.
    """
    command = [folio(), *arguments]
    pipe = None if owns_streams else subprocess.PIPE
    stdin = None if owns_streams else subprocess.DEVNULL
    with subprocess.Popen(command, stdin=stdin, stdout=pipe, stderr=subprocess.PIPE) as process:
        try:
            out, err = process.communicate()
        except BaseException:
            _end(process)
            raise
    said = _heard(err.decode(errors="replace"))
    if process.returncode not in accepted:
        raise CommandError(said or f"folio ended with {_status(process.returncode)}", process.returncode)
    return (out or b"").decode(errors="replace")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends it as Ctrl-C in a terminal does, which may have reached it already."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=_PATIENCE_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.terminate()


def _heard(text: str) -> str:
    """Issues the warnings in ``text``; returns its error, else its other lines."""
    errors, others = [], []
    for line in text.splitlines():
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
    return f"signal {-code}" if code < 0 else f"status {code}"
