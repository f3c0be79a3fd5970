"""Builds the wheel: maturin makes the native module, cargo `folio` and its two libraries.

The programs go into the package, laid out like an installation, so that `folio` finds its
libraries and traces as it does in `/usr`:

    largefolio/_folio/bin/folio
    largefolio/_folio/lib/largefolio/liblargefolio_{recorder,preload}.so
    largefolio/_folio/share/largefolio/traces/*.folio

`pip install --config-settings profile=dev ./python`, or LARGEFOLIO_PROFILE=dev, builds with that
cargo profile instead of `release`. `pip wheel --config-settings target=aarch64-unknown-linux-gnu
./python` builds for another architecture than this machine's; scripts/package.py does that.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import maturin

_PYTHON = Path(__file__).resolve().parent.parent
_ROOT = _PYTHON.parent
_STAGE = _PYTHON / "largefolio" / "_folio"
# The native module is among them so that cargo chooses the same features as for it alone: what
# they share is compiled once.
_PACKAGES = ("largefolio-cli", "largefolio-recorder", "largefolio-preload", "largefolio-python")
_FILES = ("folio", "liblargefolio_recorder.so", "liblargefolio_preload.so")


@dataclass(frozen=True)
class Build:
    """What cargo builds with: a profile, and a target if it is not this machine."""

    profile: str
    target: str | None

    @classmethod
    def of(cls, config_settings: Mapping[str, Any] | None) -> Build:
        settings = config_settings or {}
        profile = settings.get("profile") or os.environ.get("LARGEFOLIO_PROFILE") or "release"
        target = settings.get("target")
        return cls(str(profile), str(target) if target else None)

    def words(self) -> list[str]:
        target = ["--target", self.target] if self.target else []
        return ["--profile", self.profile, "--locked", *target]

    def tool(self, name: str) -> str:
        """A tool of binutils for the target: `aarch64-linux-gnu-strip`."""
        return f"{self.target.partition('-')[0]}-linux-gnu-{name}" if self.target else name


get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
prepare_metadata_for_build_wheel = maturin.prepare_metadata_for_build_wheel
get_requires_for_build_editable = maturin.get_requires_for_build_editable
prepare_metadata_for_build_editable = maturin.prepare_metadata_for_build_editable


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds a wheel with the programs in it."""
    build = Build.of(config_settings)
    with _staged(build):
        return maturin.build_wheel(wheel_directory, _arguments(build), metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds for an editable installation: the programs stay in the source tree."""
    build = Build.of(config_settings)
    _stage(build)
    return maturin.build_editable(wheel_directory, _arguments(build), metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """Refuses, because kernels, machines and studies are read from the whole repository."""
    raise RuntimeError(
        "largefolio is built from its repository, not from an sdist; build a wheel instead: "
        "pip wheel ./python"
    )


def _arguments(build: Build) -> dict[str, Any]:
    return {"build-args": " ".join(build.words())}


@contextmanager
def _staged(build: Build) -> Iterator[None]:
    _stage(build)
    try:
        yield
    finally:
        shutil.rmtree(_STAGE, ignore_errors=True)


def _stage(build: Build) -> None:
    """Builds the programs and lays them out in the package."""
    built = _build(build)
    shutil.rmtree(_STAGE, ignore_errors=True)
    libraries = _STAGE / "lib" / "largefolio"
    traces = _STAGE / "share" / "largefolio" / "traces"
    for directory in (_STAGE / "bin", libraries, traces):
        directory.mkdir(parents=True)
    for path in built:
        target = _STAGE / "bin" if path.name == "folio" else libraries
        _strip(shutil.copy(path, target), build.tool("strip"))
    for path in sorted((_ROOT / "traces").glob("*.folio")):
        shutil.copy(path, traces)


def _build(build: Build) -> list[Path]:
    """Files that cargo made, wherever CARGO_TARGET_DIR or a configuration puts them."""
    command = ["cargo", "build", *build.words(), "--message-format=json"]
    for package in _PACKAGES:
        command += ["--package", package]
    done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, check=True, text=True)
    paths = []
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact":
            paths += [Path(name) for name in message["filenames"]]
    return [path for path in paths if path.name in _FILES]


def _strip(path: str | Path, tool: str) -> None:
    """Removes debug information if the tool for it is installed."""
    if strip := shutil.which(tool):
        subprocess.run([strip, "--strip-debug", path], check=True)
