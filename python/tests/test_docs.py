"""Stubs and types are correct, and every public name has a docstring."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import largefolio


@pytest.mark.parametrize(
    "words",
    [
        ["mypy", "--strict", "-p", "largefolio"],
        ["mypy.stubtest", "largefolio._native", "--ignore-disjoint-bases"],
    ],
    ids=["types", "stubs"],
)
def test_types_are_right(words: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_policy_with_types_is_checked(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(
        "import largefolio as lf\n"
        "from largefolio._native import PolicyContext\n"
        "class Small(lf.Policy):\n"
        "    def anon_order(self, ctx: PolicyContext) -> int:\n"
        "        return ctx.orders if ctx.odrers else 0\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "small.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    (said,) = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert said.startswith('small.py:5: error: "PolicyContext" has no attribute "odrers"'), said


def test_every_public_name_has_a_docstring() -> None:
    for name in largefolio.__all__:
        if not name.startswith("__"):
            assert getattr(largefolio, name).__doc__, name
