"""Builds the wheel: maturin builds the native module, cargo builds `folio` and its two libraries.

The package contains the programs, laid out like an installation, so that `folio` finds its
libraries and traces as it does in `/usr`:

    largefolio/_folio/bin/folio
    largefolio/_folio/lib/largefolio/liblargefolio_{recorder,preload}.so, qemu.sh
    largefolio/_folio/share/largefolio/traces/*.folio
    largefolio/_folio/share/largefolio/policies/folio_policy.h, *.c, *.o

`pip install --config-settings profile=dev ./python`, or LARGEFOLIO_PROFILE=dev, builds with that
cargo profile instead of `release`. `pip wheel --config-settings target=aarch64-unknown-linux-gnu
./python` builds for another architecture; scripts/package.py does that.
LARGEFOLIO_COMPATIBILITY=manylinux_2_36 checks that the module runs with that glibc, and adds it to
the wheel's name.

A source distribution contains this directory and, in `workspace`, the repository's compiled parts.
Builds from the same commit have the same bytes if SOURCE_DATE_EPOCH is set.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import maturin

_PYTHON = Path(__file__).resolve().parent.parent
# The crates' folder; in a source distribution it is below this one.
_ROOT = _PYTHON / "workspace" if (_PYTHON / "workspace").is_dir() else _PYTHON.parent
_STAGE = _PYTHON / "largefolio" / "_folio"
# Built by cargo, in addition to the module, which maturin builds. The module is built together with
# folio so that both get the same features; the libraries share nothing with them.
_BUILT = (
    ("--package=largefolio-cli", "--package=largefolio-python", "--bin=folio"),
    ("--package=largefolio-recorder", "--package=largefolio-preload", "--package=largefolio-regions"),
)
_FILES = ("folio", *(f"liblargefolio_{name}.so" for name in ("recorder", "preload", "regions")))
_QEMU = "scripts/qemu.sh"
# Licences of the compiled crates. A source distribution contains it; in the repository it exists
# only while a wheel is built.
_THIRD_PARTY = _PYTHON / "THIRD-PARTY.txt"


@dataclass(frozen=True)
class Build:
    """cargo's build options: a profile, and a target if it is not this machine."""

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
        """The target's binutils tool: `aarch64-linux-gnu-strip`."""
        return f"{self.target.partition('-')[0]}-linux-gnu-{name}" if self.target else name


get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
get_requires_for_build_editable = maturin.get_requires_for_build_editable


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Mapping[str, Any] | None = None
) -> str:
    """Writes the metadata of a wheel, with the licences."""
    with _licensed():
        return str(maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings))


def prepare_metadata_for_build_editable(
    metadata_directory: str, config_settings: Mapping[str, Any] | None = None
) -> str:
    """Writes the metadata of an editable installation, with the licences."""
    with _licensed():
        return str(maturin.prepare_metadata_for_build_editable(metadata_directory, config_settings))


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds a wheel that contains the programs."""
    build = Build.of(config_settings)
    with _staged(build), _licensed():
        return maturin.build_wheel(wheel_directory, _arguments(build), metadata_directory)


def build_editable(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Builds for an editable installation: the programs stay in the source tree."""
    build = Build.of(config_settings)
    _stage(build)
    with _licensed():
        return maturin.build_editable(wheel_directory, _arguments(build), metadata_directory)


# The source distribution's files outside python/; the tests need more.
_SOURCES = (
    "Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "LICENSE-*", "README.md", "crates", "kernels",
    "machines", "policies", "probe", "schemas", "studies", "traces", "tunings", _QEMU,
    ":(exclude,glob)crates/*/tests/**", ":(exclude,glob)crates/*/fixtures/**",
    ":(exclude,glob)**/snapshots/**",
)


def build_sdist(sdist_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """Packs the sources of a wheel: files tracked by git, unchanged."""
    with tempfile.TemporaryDirectory() as folder, _licensed():
        info = Path(folder) / maturin.prepare_metadata_for_build_wheel(folder, {})
        metadata = (info / "METADATA").read_bytes()
        licences = {path.name: path.read_bytes() for path in (info / "licenses").iterdir()}
    version = next(line for line in metadata.decode().splitlines() if line.startswith("Version: "))
    name = f"largefolio-{version.removeprefix('Version: ')}"
    project = (_PYTHON / "pyproject.toml").read_text().replace('"../crates/', '"workspace/crates/')
    # As `cargo package` writes it into a crate: `folio --version` prints the commit.
    commit = json.dumps({"git": {"sha1": _git("rev-parse", "HEAD").strip()}}).encode()
    members: dict[str, bytes | Path] = {
        "PKG-INFO": metadata,
        "pyproject.toml": project.encode(),
        **licences,
        "workspace/crates/cli/.cargo_vcs_info.json": commit,
    }
    for path in _known(_PYTHON, "largefolio", "build_backend", "README.md"):
        members[str(path.relative_to(_PYTHON))] = path
    for path in _known(_ROOT, *_SOURCES):
        members[f"workspace/{path.relative_to(_ROOT)}"] = path
    _check_links(members)
    packed = Path(sdist_directory) / f"{name}.tar.gz"
    packed.parent.mkdir(parents=True, exist_ok=True)
    _pack(packed, name, members)
    return packed.name


def _check_links(members: Mapping[str, bytes | Path]) -> None:
    """Checks that the targets of the crates' symbolic links exist."""
    for name, content in members.items():
        if not isinstance(content, Path) or not content.is_symlink():
            continue
        target = os.path.normpath(Path(name).parent / os.readlink(content))
        if target not in members and not any(each.startswith(f"{target}/") for each in members):
            raise RuntimeError(f"{name} links to {target}, which the sdist does not contain: add it to _SOURCES")


def _known(folder: Path, *paths: str) -> list[Path]:
    """Files below `folder` that git tracks."""
    names = _git("-C", str(folder), "ls-files", "-z", "--", *paths).split("\0")
    return [folder / name for name in names if name]


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=_ROOT, stdout=subprocess.PIPE, check=True, text=True
    ).stdout


def _pack(packed: Path, top: str, members: Mapping[str, bytes | Path]) -> None:
    """Writes an archive that depends only on names and contents."""
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
    with (
        packed.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=seconds) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, content in sorted(members.items()):
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.mtime = seconds
            if isinstance(content, Path) and content.is_symlink():
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, os.readlink(content), 0o777
                archive.addfile(entry)
                continue
            if isinstance(content, Path):
                entry.mode = 0o755 if os.access(content, os.X_OK) else 0o644
                content = content.read_bytes()
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def _arguments(build: Build) -> dict[str, Any]:
    compatibility = os.environ.get("LARGEFOLIO_COMPATIBILITY")
    checked = ["--compatibility", compatibility] if compatibility else []
    return {"build-args": " ".join([*build.words(), *checked])}


@contextmanager
def _staged(build: Build) -> Iterator[None]:
    _stage(build)
    try:
        yield
    finally:
        shutil.rmtree(_STAGE, ignore_errors=True)


@contextmanager
def _licensed() -> Iterator[None]:
    """Provides THIRD-PARTY.txt where pyproject.toml expects it."""
    if _ROOT.parent == _PYTHON:
        yield
        return
    script = _ROOT / "scripts/third_party.py"
    subprocess.run([sys.executable, script, _THIRD_PARTY], check=True)
    try:
        yield
    finally:
        _THIRD_PARTY.unlink(missing_ok=True)


def _stage(build: Build) -> None:
    """Builds the programs and lays them out in the package."""
    built = _build(build)
    shutil.rmtree(_STAGE, ignore_errors=True)
    libraries = _STAGE / "lib" / "largefolio"
    for directory in (_STAGE / "bin", libraries):
        directory.mkdir(parents=True)
    for path in built:
        target = _STAGE / "bin" if path.name == "folio" else libraries
        _strip(shutil.copy(path, target), build.tool("strip"))
    shutil.copy(_ROOT / _QEMU, libraries)
    for name, pattern in (("traces", "*.folio"), ("policies", "*.[cho]")):
        for path in sorted((_ROOT / name).rglob(pattern)):
            shared = _STAGE / "share" / "largefolio" / path.relative_to(_ROOT)
            shared.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, shared)


def _build(build: Build) -> list[Path]:
    """Files built by cargo, wherever CARGO_TARGET_DIR or a configuration puts them."""
    paths = []
    for chosen in _BUILT:
        command = ["cargo", "build", *build.words(), *chosen, "--message-format=json"]
        done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, check=True, text=True)
        for line in done.stdout.splitlines():
            message = json.loads(line)
            if message.get("reason") == "compiler-artifact":
                paths += [Path(name) for name in message["filenames"]]
    return [path for path in paths if path.name in _FILES]


def _strip(path: str | Path, tool: str) -> None:
    """Removes debug information if the target's tool is installed."""
    if strip := shutil.which(tool):
        subprocess.run([strip, "--strip-unneeded", path], check=True)
