"""Progress of long calls: a bar on stderr, a callable, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

Progress: TypeAlias = "Callable[[int, int], object] | bool | None"
"""``None``: a bar on stderr if that is a terminal; ``True``: a bar; ``False``: nothing; a callable
hears what is done and what there is (rows; cells of a sweep), some twenty times a second, and may
raise."""

_WIDTH = 30
_HIDDEN_S = 0.3


@contextmanager
def progressing(
    progress: Progress, what: str = "rows"
) -> Iterator[Callable[[int, int], object] | None]:
    """Returns the progress callable."""
    if callable(progress):
        yield progress
        return
    if not (progress is None or isinstance(progress, bool)):
        kind = type(progress).__name__
        raise TypeError(f"progress: expected None, True, False or a callable, not {kind}")
    if progress is False or (progress is None and not _is_terminal()):
        yield None
        return
    bar = _Bar(what)
    try:
        yield bar
    finally:
        bar.close()


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


class _Bar:
    """A line on stderr; short calls show none."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._start = time.monotonic()
        self._is_shown = False

    def __call__(self, done: int, total: int) -> None:
        elapsed = time.monotonic() - self._start
        if elapsed < _HIDDEN_S or not total:
            return
        part = min(done / total, 1.0)
        bar = ("=" * int(part * _WIDTH)).ljust(_WIDTH)
        left = f"{elapsed * (1 - part) / part:.0f} s left" if part else "starting"
        sys.stderr.write(f"\r\033[Kreplaying [{bar}] {done:,} of {total:,} {self._what}, {left}")
        sys.stderr.flush()
        self._is_shown = True

    def close(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
