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
    words = ["trace", "gen", "zipf", "--runs", "100000", "--seed", "7", "-o", str(path)]
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


@pytest.fixture
def recordings(tmp_path: Path) -> tuple[Path, Path]:
    """Two touches of an eight-page file: with 6.18's responses, and with impossible ones."""
    text = (
        "# kernel=6.18.44-test arch=x86-64 variant=small fs=ext4 read_ahead_kb=128 "
        "max_sectors_kb=512 fault_around_bytes=65536 prot=r map=shared advice=plain pattern=seq "
        "page=4096 file_pages=8 file_bytes=32768 n=2 seed=0 opens=1 skew=0 settle=1500 "
        "resid_before=0 minflt=1 majflt=1 ra_pages=32 events=1 lost=0\n"
        "N 0 open=0 first=0 pages=8 prot=r map=shared advice=plain addr=0x400000000000\n"
        "T 0\nA 0 0 x8\nT 1\nE 0\nP 0..7\n"
    )
    equal, other = tmp_path / "equal.txt", tmp_path / "other.txt"
    equal.write_text(text)
    other.write_text(text.replace("x8", "x7"))
    return equal, other


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
