"""The command ``folio`` of the installed package, and a trace to predict."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from largefolio import _command

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def traces() -> Path:
    """The traces of the repository."""
    return ROOT / "traces"


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace that replays quickly, with executable code, files and private memory."""
    path = tmp_path_factory.mktemp("traces") / "mix.folio"
    words = ["trace", "gen", "zipf", "--runs", "20000", "--seed", "7", "-o", str(path)]
    _command.run(words)
    return path


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four traces that replay quickly."""
    place = tmp_path_factory.mktemp("sweep")
    for seed in range(4):
        path = str(place / f"mix{seed}.folio")
        _command.run(["trace", "gen", "zipf", "--runs", "5000", "--seed", str(seed), "-o", path])
    return sorted(place.glob("*.folio"))


@pytest.fixture(scope="session")
def folio() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs ``folio``."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [_command.folio(), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


@pytest.fixture(scope="session")
def complaint(folio: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., str]:
    """The error text that ``folio`` ends with."""

    def said(*words: str) -> str:
        done = folio(*words)
        assert done.returncode == 2, done
        (first, *rest) = done.stderr.splitlines()
        return "\n".join([first.removeprefix("folio: error: "), *rest])

    return said
