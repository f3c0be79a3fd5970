"""The bar on stderr: only on a terminal unless requested, not for short calls, removed at the end."""

from __future__ import annotations

import io
import sys
import time
from pathlib import Path

import pytest

import largefolio as lf
from largefolio._progress import progressing


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_shows_rows_and_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    screen = _Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with progressing(None) as hears:
        assert hears is not None
        hears(0, 1000)
        assert screen.getvalue() == "", "a short call shows none"
        now = 10.0
        hears(0, 1000)
        hears(250, 1000)
        hears(2000, 1000)
    shown = screen.getvalue().split("\r\033[K")
    assert shown == [
        "",
        "replaying [" + " " * 30 + "] 0 of 1,000 rows, starting",
        "replaying [" + "=" * 7 + " " * 23 + "] 250 of 1,000 rows, 30 s left",
        "replaying [" + "=" * 30 + "] 2,000 of 1,000 rows, 0 s left",
        "",
    ]


def test_there_is_no_bar_off_a_terminal(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lf.predict(small, "7.2")
    lf.predict(small, "7.2", progress=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys, "stderr", None)
    lf.predict(small, "7.2")
