#!/usr/bin/env python3
"""Lints the workspace for arm64 and runs its portable tests under QEMU user emulation.

    arm64.py lint       clippy for arm64: the crates that depend on the architecture and build quickly
    arm64.py portable   the tests of crates/bulk
    arm64.py all        both, with clippy of the tests, FEAT_MOPS, and the unit tests of mm, trace
                        and sim

Needs the Rust target and a cross linker, which it installs if permitted, and a QEMU; FEAT_MOPS
needs 8.2 or newer. If this machine's QEMU is older, a packaged one is unpacked under target/. A
missing requirement skips the step with a line that begins with SKIPPED.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "recordings"))
sys.dont_write_bytecode = True

import packages  # noqa: E402

TARGET = "aarch64-unknown-linux-gnu"
LINKER = "aarch64-linux-gnu-gcc"
CROSS = ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"]
SYSROOT = pathlib.Path("/usr/aarch64-linux-gnu")
WITHOUT_MOPS = "portable,stp,stnp,dc-zva"
MOPS_SINCE = (8, 2)
# Per crate, the tests that do not depend on the host. linux's unit tests do; they run on arm64
# kernels in the laboratory (scripts/lab).
FAST = {"bulk": ["--lib", "--tests"]}
LINTED = ("bulk", "preload", "recorder")
REST = {crate: ["--lib"] for crate in ("mm", "trace", "sim")}


def skipped(what, remedy):
    """Prints the reason and lets the gate continue."""
    print(f"SKIPPED: {what}. {remedy}", file=sys.stderr)


def version_of(qemu):
    shown = subprocess.run([qemu, "--version"], check=True, capture_output=True, text=True).stdout
    major, minor = re.search(r"version (\d+)\.(\d+)", shown).groups()
    return int(major), int(minor)


def fetched_qemu():
    """A static QEMU of a newer suite, unpacked once."""
    work = ROOT / "target" / "qemu"
    qemu = work / "tree/usr/bin/qemu-aarch64"
    if not qemu.exists():
        debs = work / "debs"
        debs.mkdir(parents=True, exist_ok=True)
        deb = packages.Apt(work, "amd64").download("qemu-user", debs)
        subprocess.run(["dpkg", "-x", deb, work / "tree"], check=True)
    return str(qemu)


def emulator():
    """The newest QEMU available, or None."""
    own = shutil.which("qemu-aarch64")
    if own and version_of(own) >= MOPS_SINCE:
        return own
    try:
        return fetched_qemu()
    except (packages.Missing, OSError, subprocess.CalledProcessError) as why:
        skipped(f"no QEMU of 8.2 or newer ({why})", "Install one: apt-get install qemu-user")
        return own


def has_target(target=TARGET):
    """Whether Rust can build for a target, after asking rustup."""
    library = ["rustc", "--print", "target-libdir", "--target", target]
    where = subprocess.run(library, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    if where and pathlib.Path(where).exists():
        return True
    if not shutil.which("rustup"):
        return False
    add = ["rustup", "target", "add", target]
    return subprocess.run(add, cwd=ROOT, capture_output=True).returncode == 0


def has_linker():
    """Whether Debian's cross compiler is installed, after trying to install it."""
    is_there = shutil.which(LINKER) and (SYSROOT / "lib/ld-linux-aarch64.so.1").exists()
    if is_there or os.geteuid() or not shutil.which("apt-get"):
        return bool(is_there)
    words = ["apt-get", "install", "-y", "-qq", *CROSS]
    return subprocess.run(words, stdout=subprocess.DEVNULL).returncode == 0


class Cargo:
    """cargo for arm64."""

    def __init__(self):
        self.variable = f"CARGO_TARGET_{TARGET.upper().replace('-', '_')}"
        self.environment = {**os.environ, f"{self.variable}_LINKER": LINKER}

    def run(self, *words):
        subprocess.run(["cargo", *words], cwd=ROOT, env=self.environment, check=True)

    def lint(self, lane):
        chosen = ["--workspace", "--all-targets"]
        if lane != "all":
            chosen = [f"--package=largefolio-{crate}" for crate in LINTED]
        self.run("clippy", *chosen, "--quiet", "--target", TARGET, "--", "-D", "warnings")

    def test(self, crates, qemu, primitives):
        self.environment[f"{self.variable}_RUNNER"] = f"{qemu} -cpu max -L {SYSROOT}"
        self.environment["LARGEFOLIO_PRIMITIVES"] = primitives
        for crate, words in crates.items():
            self.run("test", "--package", f"largefolio-{crate}", "--target", TARGET, *words)


def tested(cargo, lane):
    """Runs the tests of a lane with the required QEMU."""
    qemu = emulator() if lane == "all" else shutil.which("qemu-aarch64") or emulator()
    if not qemu:
        skipped("no QEMU for arm64: its tests did not run", "Run: apt-get install qemu-user")
        return
    primitives = WITHOUT_MOPS
    if version_of(qemu) >= MOPS_SINCE:
        primitives += ",mops"
    elif lane == "all":
        skipped("FEAT_MOPS is not tested", "It needs QEMU 8.2")
    cargo.test(FAST, qemu, primitives)
    if lane == "all":
        cargo.test(REST, qemu, primitives)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lane", choices=["lint", "portable", "all"])
    lane = parser.parse_args().lane
    if not has_target():
        skipped(f"no Rust library for {TARGET}", f"Run: rustup target add {TARGET}")
        return 0
    if not has_linker():
        skipped("no linker or C library for arm64", f"Run: apt-get install {' '.join(CROSS)}")
        return 0
    cargo = Cargo()
    try:
        if lane != "portable":
            cargo.lint(lane)
        if lane != "lint":
            tested(cargo, lane)
    except subprocess.CalledProcessError as why:
        print(f"arm64.py: `{' '.join(map(str, why.cmd))}` ended with {why.returncode}",
              file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
