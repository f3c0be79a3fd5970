#!/usr/bin/env python3
"""Builds Debian packages and wheels for amd64 and arm64, on either architecture.

    package.py deb [--arch A]..      target/debian/largefolio_VERSION_ARCH.deb
    package.py wheel [--arch A]..    target/wheels/largefolio-VERSION-cp310-abi3-linux_ARCH.whl
    package.py sdist                 target/wheels/largefolio-VERSION.tar.gz, from which pip builds a wheel
    package.py crates                target/package/largefolio-*-VERSION.crate, from which cargo installs folio
    package.py deb wheel             both, and what they share is compiled once

The other architecture is built with Debian's cross compiler, which this installs if permitted.
--profile selects a cargo profile other than release. scripts/fresh.py installs and uses the
packages.
"""

import argparse
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import arm64  # noqa: E402
import packed  # noqa: E402
from built_in import said  # noqa: E402
from roots import MACHINES  # noqa: E402

COMPILERS = {"amd64": "gcc-x86-64-linux-gnu", "arm64": "gcc-aarch64-linux-gnu"}
CARGO_DEB = "3.8.0"
TOOLS = ROOT / "target" / "tools"
FOLIO = ["--package=largefolio-cli", "--bin=folio"]
LIBRARIES = ["--package=largefolio-recorder", "--package=largefolio-preload",
             "--package=largefolio-regions", "--package=largefolio-c"]
# Built together with folio, so that cargo selects the features of a wheel's folio.
MODULE = ["--package=largefolio-python"]
# Not published as crates: the wheel has one, the tests use the other.
UNPUBLISHED = ["largefolio-lab", "largefolio-python", "largefolio-testkit"]


class Wrong(Exception):
    """A faulty package."""


def say(words):
    print(f"package.py: {words}", file=sys.stderr, flush=True)


def built_in():
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


class Build:
    """One architecture, its build profile, and whether folio is for a wheel."""

    def __init__(self, arch, profile, has_module=False):
        self.arch, self.profile = arch, profile
        self.folio = [*FOLIO, *(MODULE if has_module else [])]
        machine = MACHINES[arch]
        is_own = platform.machine() == machine
        self.target = None if is_own else f"{machine}-unknown-linux-gnu"
        self.tools = "" if is_own else f"{machine}-linux-gnu-"

    def folder(self):
        """cargo's output folder for programs."""
        return built_in() / (self.target or "") / self.profile

    def environment(self):
        environment = dict(os.environ)
        if self.profile == "release":
            # The package of debug symbols has them; the programs themselves are stripped.
            environment.setdefault("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only")
            environment.setdefault("CARGO_PROFILE_RELEASE_STRIP", "none")
        if self.target:
            name = self.target.upper().replace("-", "_")
            environment.setdefault(f"CARGO_TARGET_{name}_LINKER", f"{self.tools}gcc")
        return environment

    def prepare(self):
        """Installs the Rust library and the compiler of another architecture."""
        if not self.target:
            return
        if not arm64.has_target(self.target):
            raise Wrong(f"no Rust library for {self.target}. Run: rustup target add {self.target}")
        if not shutil.which(f"{self.tools}gcc"):
            install = ["apt-get", "install", "-y", "-qq", COMPILERS[self.arch]]
            if os.geteuid() or not shutil.which("apt-get") or \
                    subprocess.run(install, stdout=subprocess.DEVNULL).returncode:
                raise Wrong(f"no compiler for {self.arch}. Run: sudo {' '.join(install)}")

    def cargo(self, *words):
        target = ["--target", self.target] if self.target else []
        subprocess.run(["cargo", *words, "--profile", self.profile, *target], cwd=ROOT,
                       env=self.environment(), check=True)

    def programs(self):
        self.prepare()
        self.cargo("build", *self.folio)
        self.cargo("build", *LIBRARIES)


def own_arch():
    return next((arch for arch, machine in MACHINES.items() if machine == platform.machine()), None)


def pages(profile, has_module=False):
    """Manual pages and completions; this machine's folio writes them for every architecture."""
    own = Build(own_arch(), profile, has_module)
    own.programs()
    install("pages", own)


def install(verb, build):
    """The last line that scripts/install.sh prints."""
    environment = {**build.environment(), "BUILD": str(build.folder()), "PROFILE": build.profile,
                   "TARGET": build.target or ""}
    environment["PATH"] = f"{TOOLS / 'bin'}:{environment['PATH']}"
    done = subprocess.run([ROOT / "scripts/install.sh", verb], env=environment, check=True,
                          stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def deb(arch, profile, has_module=False):
    """Builds a Debian package; returns its path."""
    if not shutil.which("cargo-deb") and not (TOOLS / "bin" / "cargo-deb").exists():
        subprocess.run(["cargo", "install", "--locked", "--root", TOOLS, "cargo-deb", "--version",
                        CARGO_DEB], check=True)
    build = Build(arch, profile, has_module)
    build.programs()
    package = ROOT / install("deb", build)
    lint(package)
    say(f"{package} ({package.stat().st_size >> 20} MiB)")
    return package


def lint(package):
    """Lets lintian look for errors; its warnings vary by version and are only printed."""
    if shutil.which("lintian"):
        subprocess.run(["lintian", "--fail-on=error", package], check=True, stdout=sys.stderr)
    else:
        print("SKIPPED: lintian is not installed. Run: sudo apt-get install lintian", file=sys.stderr)


def wheel(arch, profile):
    """Builds a wheel; returns its path."""
    build = Build(arch, profile)
    build.prepare()
    pip = environment_of_pip()
    folder = built_in() / "wheels"
    settings = [f"profile={profile}", *([f"target={build.target}"] if build.target else [])]
    words = [word for each in settings for word in ("--config-settings", each)]
    environment = build.environment()
    environment["PATH"] = f"{pip.parent}:{environment['PATH']}"
    subprocess.run([pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", *words,
                    "--wheel-dir", folder, ROOT / "python"], env=environment, check=True)
    # manylinux_.. if requested, otherwise linux_..
    found = max(folder.glob(f"largefolio-*_{MACHINES[arch]}.whl"),
                key=lambda path: path.stat().st_mtime)
    packed.check_wheel(found)
    say(f"{found} ({found.stat().st_size >> 20} MiB)")
    return found


# Calls the build backend as pip does.
PACK = """import sys
sys.path.insert(0, "build_backend")
import largefolio_build
largefolio_build.build_sdist(sys.argv[1])
"""


def sdist():
    """Packs a wheel's source; returns its path."""
    folder = built_in() / "wheels"
    bin_folder = environment_of_pip().parent
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    subprocess.run([bin_folder / "python", "-c", PACK, folder.absolute()], cwd=ROOT / "python",
                   env=environment, check=True, stdout=subprocess.DEVNULL)
    found = max(folder.glob("largefolio-*.tar.gz"), key=lambda path: path.stat().st_mtime)
    say(f"{found} ({found.stat().st_size >> 20} MiB)")
    return found


def crates():
    """Packs every published crate as committed; returns the paths."""
    without = [f"--exclude={name}" for name in UNPUBLISHED]
    words = ["cargo", "package", "--quiet", "--workspace", "--locked", "--no-verify", *without]
    subprocess.run(words, cwd=ROOT, check=True)
    return sorted((built_in() / "package").glob("*.crate"))


def environment_of_pip():
    """Returns pip of an environment with maturin."""
    folder = built_in() / "package-python"
    pip = folder / "bin" / "pip"
    if not pip.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([pip, "install", "--quiet", "--disable-pip-version-check", *build_requires()], check=True)
    return pip


def build_requires():
    """pyproject.toml's build requirement: one version of maturin."""
    return tomllib.loads((ROOT / "python/pyproject.toml").read_text())["build-system"]["requires"]


def made(args):
    """Builds the requested packages; returns their paths."""
    if "sdist" in args.what:
        yield sdist()
    if "crates" in args.what:
        yield from crates()
    is_both = {"deb", "wheel"} <= set(args.what)
    if "deb" in args.what:
        pages(args.profile, is_both)
    for arch in args.arch or list(MACHINES):
        if "wheel" in args.what:
            yield wheel(arch, args.profile)
        if "deb" in args.what:
            yield deb(arch, args.profile, is_both)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="+", choices=["deb", "wheel", "sdist", "crates"])
    parser.add_argument("--arch", action="append", choices=list(MACHINES), help="else both")
    parser.add_argument("--profile", default="release")
    args = parser.parse_args()
    if own_arch() is None:
        parser.error(f"packages are made on {' and '.join(MACHINES)}, not {platform.machine()}")
    try:
        for path in made(args):
            print(path)
    except (Wrong, packed.Wrong, subprocess.CalledProcessError) as why:
        say(why)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
