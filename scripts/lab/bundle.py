#!/usr/bin/env python3
"""The folder that the checks need: folio, its unit tests, a trace, the checks themselves.

    scripts/lab/bundle.py DIR            for this machine
    scripts/lab/bundle.py --show FILE    what an archive of scripts/on-arm64.sh says
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True

import verbs  # noqa: E402

# Crates whose unit tests need no compiler, network or machine settings.
TESTED = ["mm", "trace", "linux"]
CHECKS = [f"{name}.py" for name in ("checks", "check", "killed", "model", "pagemap", "recording",
                                    "sizes", "units", "verbs")]
TRACE = ROOT / "traces" / "demo.folio"


def cargo(words, target, capture=False):
    """Runs cargo for a target, or for this machine."""
    environment = dict(os.environ)
    if target:
        name = target.upper().replace("-", "_")
        environment.setdefault(f"CARGO_TARGET_{name}_LINKER", compiler_for(target))
        words = [*words, "--target", target]
    done = subprocess.run(["cargo", *words], cwd=ROOT, env=environment, check=True, text=True,
                          stdout=subprocess.PIPE if capture else None)
    return done.stdout


def programs(target):
    """The build folder of folio and its libraries."""
    built = built_in() / (target or "")
    packages = [f"--package=largefolio-{name}" for name in ("cli", "lab", "preload", "recorder")]
    cargo(["build", "--profile=lab", *packages], target)
    return built / "lab"


def packaged(target):
    """The architecture's Debian package, if `make deb` built it."""
    machine = target.partition("-")[0] if target else platform.machine()
    arch = {"aarch64": "arm64", "x86_64": "amd64"}.get(machine, machine)
    found = list(built_in().joinpath("debian").glob(f"largefolio_*_{arch}.deb"))
    return max(found, key=lambda path: path.stat().st_mtime, default=None)


def built_in():
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def compiled(folder, target):
    """Builds the programs to record. They are static, so they run wherever the bundle does."""
    for source in sorted((HERE / "programs").glob("*.c")):
        compiler = compiler_for(target)
        subprocess.run([compiler, "-O1", "-static", "-pthread", "-o", folder / source.stem, source],
                       check=True)


def compiler_for(target):
    return f"{target.partition('-')[0]}-linux-gnu-gcc" if target else "cc"


def unit_tests(target):
    """The unit-test programs by crate."""
    packages = [f"--package=largefolio-{name}" for name in TESTED]
    said = cargo(["test", "--profile=lab", *packages, "--lib", "--no-run",
                  "--message-format=json"], target,
                 capture=True)
    found = {}
    for message in map(json.loads, said.splitlines()):
        if message.get("executable"):
            found[message["target"]["name"].removeprefix("largefolio_")] = message["executable"]
    return found


def make(folder, target=None, judge=None):
    """Makes the folder again. `judge` is a folio with correct predictions."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("bin", "lib/largefolio", "tests", "traces", "expected", "repository"):
        (folder / name).mkdir(parents=True)
    built = programs(target)
    for program in ("folio", "folio-lab"):
        shutil.copy(built / program, folder / "bin")
    for library in ("preload", "recorder"):
        shutil.copy(built / f"liblargefolio_{library}.so", folder / "lib" / "largefolio")
    compiled(folder / "tests", target)
    shutil.copy(TRACE, folder / "traces")
    if package := packaged(target):
        shutil.copy(package, folder / "largefolio.deb")
    for path in (*map(HERE.joinpath, CHECKS), HERE / "start", HERE.parent / "on-arm64.sh"):
        shutil.copy(path, folder)
    for crate, program in unit_tests(target).items():
        shutil.copy(program, folder / "tests" / crate)
        copy = folder / "repository" / "crates" / crate
        shutil.copytree(ROOT / "crates" / crate, copy, ignore=shutil.ignore_patterns("target"))
    where = {crate: str(ROOT / "crates" / crate) for crate in TESTED}
    (folder / "tests.json").write_text(json.dumps(where))
    if judge:
        (folder / "expected" / "predict.json").write_bytes(predicted(judge))
    return folder


def opened(archive, folder):
    """Unpacks a machine's results; returns their folder."""
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    found = sorted(folder.glob("*/summary.json"))
    if not found:
        raise FileNotFoundError(f"{archive} has no summary.json")
    return found[0].parent


def report(folder, name, judge=None):
    """Prints a machine's results; returns whether no check failed."""
    found = json.loads((folder / "summary.json").read_text())
    rows = found["checks"]
    done = {row["name"] for row in rows}
    rows += [{"name": name, "status": "FAILED", "seconds": 0, "why": "the checks ended before this one"}
             for name in found["names"] if name not in done]
    if judge and not judged_here(folder, judge):
        rows.append({"name": "predict", "status": "FAILED", "seconds": 0,
                     "why": "the prediction differs from here"})
    for each in rows:
        why = " ".join((each["why"] or "").split())
        print(f"{name}: {each['status']} {each['name']}{': ' if why else ''}{why}"
              f" ({each['seconds']:.0f} s)", flush=True)
    return not any(each["status"] == "FAILED" for each in rows)


def judged_here(folder, judge):
    """Whether a machine's prediction equals this one's."""
    said = folder / "predict.json"
    return not said.exists() or said.read_bytes() == predicted(judge)


def predicted(judge):
    """The prediction for the trace by this machine's folio."""
    return subprocess.run([judge.resolve(), *verbs.PREDICT], cwd=TRACE.parent, check=True,
                          stdout=subprocess.PIPE).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, nargs="?")
    parser.add_argument("--show", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--folio", type=pathlib.Path, help="with --show: also compare predictions")
    args = parser.parse_args()
    if bool(args.folder) == bool(args.show):
        parser.error("a folder to make, or --show FILE?")
    if args.folder:
        make(args.folder.resolve())
        return 0
    with tempfile.TemporaryDirectory() as folder:
        found = opened(args.show, pathlib.Path(folder))
        return 0 if report(found, found.name, args.folio) else 1


if __name__ == "__main__":
    sys.exit(main())
