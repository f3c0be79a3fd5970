"""The examples of the guide run, in one session, and stubs and types are right."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import largefolio

ROOT = Path(__file__).resolve().parents[2]


def test_the_examples_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "traces").symlink_to(ROOT / "traces")
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/guide/python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    session: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "docs/guide/python.md", "exec"), session)


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


def test_every_public_name_has_a_docstring() -> None:
    for name in largefolio.__all__:
        if not name.startswith("__"):
            assert getattr(largefolio, name).__doc__, name
