"""Builds the wheel: maturin makes the native module, cargo `folio` and its two libraries.

The programs go into the package, laid out like an installation, so that `folio` finds its
libraries and traces as it does in `/usr`:

    largefolio/_folio/bin/folio
    largefolio/_folio/lib/largefolio/liblargefolio_{recorder,preload}.so
    largefolio/_folio/share/largefolio/traces/*.folio

`pip install --config-settings profile=dev ./python`, or LARGEFOLIO_PROFILE=dev, builds with that
cargo profile instead of `release`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    profile = _profile(config_settings)
    with _staged(profile):
        return maturin.build_wheel(wheel_directory, _arguments(profile), metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds for an editable installation: the programs stay in the source tree."""
    profile = _profile(config_settings)
    _stage(profile)
    return maturin.build_editable(wheel_directory, _arguments(profile), metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """Refuses, because kernels, machines and studies are read from the whole repository."""
    raise RuntimeError(
        "largefolio is built from its repository, not from an sdist; build a wheel instead: "
        "pip wheel ./python"
    )


def _profile(config_settings: Mapping[str, Any] | None) -> str:
    settings = config_settings or {}
    return str(settings.get("profile") or os.environ.get("LARGEFOLIO_PROFILE") or "release")


def _arguments(profile: str) -> dict[str, Any]:
    return {"build-args": f"--profile {profile} --locked"}


@contextmanager
def _staged(profile: str) -> Iterator[None]:
    _stage(profile)
    try:
        yield
    finally:
        shutil.rmtree(_STAGE, ignore_errors=True)


def _stage(profile: str) -> None:
    """Builds the programs and lays them out in the package."""
    built = _build(profile)
    shutil.rmtree(_STAGE, ignore_errors=True)
    libraries = _STAGE / "lib" / "largefolio"
    traces = _STAGE / "share" / "largefolio" / "traces"
    for directory in (_STAGE / "bin", libraries, traces):
        directory.mkdir(parents=True)
    for path in built:
        target = _STAGE / "bin" if path.name == "folio" else libraries
        _strip(shutil.copy(path, target))
    for path in sorted((_ROOT / "traces").glob("*.folio")):
        shutil.copy(path, traces)


def _build(profile: str) -> list[Path]:
    """Files that cargo made, wherever CARGO_TARGET_DIR or a configuration puts them."""
    command = ["cargo", "build", "--locked", "--profile", profile, "--message-format=json"]
    for package in _PACKAGES:
        command += ["--package", package]
    done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, check=True, text=True)
    paths = []
    for line in done.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact":
            paths += [Path(name) for name in message["filenames"]]
    return [path for path in paths if path.name in _FILES]


def _strip(path: str | Path) -> None:
    """Removes debug information if the tool for it is installed."""
    if strip := shutil.which("strip"):
        subprocess.run([strip, "--strip-debug", path], check=True)
