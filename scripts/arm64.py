#!/usr/bin/env python3
"""Tests crates/bulk for arm64 under QEMU user emulation, with every instruction it has a use for.

Needs the Rust target, a cross linker and a QEMU of 8.2 or newer, the first with the instructions
of FEAT_MOPS. An older QEMU of this machine is replaced by a packaged one, unpacked under target/;
what cannot be had is skipped with a line that begins with SKIPPED.
"""

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
SYSROOT = pathlib.Path("/usr/aarch64-linux-gnu")
WITHOUT_MOPS = "portable,stp,stnp,dc-zva"
MOPS_SINCE = (8, 2)


def skipped(what, remedy):
    """Says so and lets the gate go on."""
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


def has_target():
    """Whether Rust can build for arm64, after asking rustup."""
    library = ["rustc", "--print", "target-libdir", "--target", TARGET]
    where = subprocess.run(library, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    if where and pathlib.Path(where).exists():
        return True
    if not shutil.which("rustup"):
        return False
    add = ["rustup", "target", "add", TARGET]
    return subprocess.run(add, cwd=ROOT, capture_output=True).returncode == 0


def main():
    if not has_target():
        skipped(f"no Rust library for {TARGET}", f"Run: rustup target add {TARGET}")
        return 0
    if not shutil.which(LINKER) or not (SYSROOT / "lib/ld-linux-aarch64.so.1").exists():
        words = "apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
        skipped("no linker or C library for arm64", f"Run: {words}")
        return 0
    package = ["-p", "largefolio-bulk", "--target", TARGET]
    environment = dict(os.environ)
    name = TARGET.upper().replace("-", "_")
    environment[f"CARGO_TARGET_{name}_LINKER"] = LINKER
    lint = ["cargo", "clippy", *package, "--all-targets", "--quiet", "--", "-D", "warnings"]
    subprocess.run(lint, cwd=ROOT, env=environment, check=True)
    qemu = emulator()
    if not qemu:
        skipped("no QEMU for arm64: built, not run", "Run: apt-get install qemu-user")
        return 0
    primitives = WITHOUT_MOPS
    if version_of(qemu) >= MOPS_SINCE:
        primitives += ",mops"
    else:
        skipped("FEAT_MOPS is not tested", "It needs QEMU 8.2")
    environment[f"CARGO_TARGET_{name}_RUNNER"] = f"{qemu} -cpu max -L {SYSROOT}"
    environment["LARGEFOLIO_PRIMITIVES"] = primitives
    test = ["cargo", "test", *package, "--lib", "--tests"]
    return subprocess.run(test, cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
