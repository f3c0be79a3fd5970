#!/usr/bin/env python3
"""Installs the packages in fresh Debian roots, uses them as a user would, and removes them.

    fresh.py                       Debian 12 and 13 for amd64, Debian 13 for arm64 under QEMU
    fresh.py bookworm-amd64        one of them
    fresh.py bookworm-amd64 --deb FILE --wheel FILE     packages that are built; else they are built now
    fresh.py bookworm-amd64 --source    compiles there instead: the source distribution with pip, the crates with cargo

In each root, the .deb is installed. `folio` records a program of that root, predicts, shows the
folios that back it (if the kernel is this machine's), and reads its own ELF file. pip installs the
wheel, which must give the same results. Both are removed, and nothing of them may be left. Another
architecture records in the laboratory (scripts/lab) instead.

Prints a line that begins with SKIPPED if it cannot run.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import arm64  # noqa: E402
import packages  # noqa: E402
import packed  # noqa: E402
import package  # noqa: E402
from package import said  # noqa: E402
import roots  # noqa: E402

PLACES = ["bookworm-amd64", "trixie-amd64", "trixie-arm64"]
# The wheel's pyarrow needs the C++ library. The package recommends the recording tools.
OWN = ["apt", "ca-certificates", "python3", "python3-venv", "qemu-user"]
COMPILED = [*OWN, "gcc", "libc6-dev"]
OTHER = ["libgcc-s1", "libstdc++6", "python3"]
TRACE = "demo.folio"
ASKED = ["--kernel", "6.12,7.2+page=64K", "--machine", "altra", "--json"]
USE_OF_WHEEL = """import json, sys
import largefolio
from largefolio._command import folio
report = largefolio.report(sys.argv[1], ["6.12", "7.2+page=64K"], ["altra"])
table = largefolio.predict(sys.argv[1], ["6.12", "7.2+page=64K"], ["altra"])
print(json.dumps([report, table.num_rows, folio()]))
"""
# A program that keeps memory for a while and is inspected meanwhile.
LOOK = """set -e
sleep 60 & looked=$!
sleep 1
folio maps --json $looked
kill $looked
"""


class Wrong(Exception):
    """A faulty package."""


def say(words):
    print(f"fresh.py: {words}", file=sys.stderr, flush=True)


def expect(is_so, why):
    if not is_so:
        raise Wrong(why)


class Place:
    """A root in which packages are used."""

    def __init__(self, name, is_source=False):
        self.name = name
        suite, _, arch = name.rpartition("-")
        self.root = roots.Root(suite, arch, "source" if is_source else "fresh")
        self.machine = roots.MACHINES[arch]
        self.is_source = is_source
        self.local = said("rustc", "--print", "sysroot") if is_source else None

    def made(self):
        if self.is_source and not self.root.is_own:
            raise roots.Unable("compiling under emulation takes hours")
        self.root.made(COMPILED if self.is_source else OWN if self.root.is_own else OTHER)
        if self.root.is_own:
            # Provide name resolution and this network's certificates.
            etc = self.root.path / "etc"
            shutil.copy("/etc/resolv.conf", etc / "resolv.conf")
            shutil.copy("/etc/ssl/certs/ca-certificates.crt", etc / "ssl/certs/ca-certificates.crt")
        if self.is_source:
            cargo = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
            there = self.root.path / "root/.cargo"
            shutil.rmtree(there, ignore_errors=True)
            there.mkdir(parents=True)
            for part in ("registry/cache", "registry/index"):
                if (cargo / part).exists():
                    shutil.copytree(cargo / part, there / part)
            if (cargo / "config.toml").exists():
                shutil.copy(cargo / "config.toml", there)

    def __call__(self, *words):
        """Returns a program's output in the root; a single string is a shell command."""
        words = ["sh", "-c", words[0]] if len(words) == 1 else words
        done = self.root.run(words, local=self.local, stdout=subprocess.PIPE, text=True)
        expect(done.returncode == 0, f"`{' '.join(words)}` ended with {done.returncode} in {self.name}")
        return done.stdout

    def put(self, path, name):
        shutil.copy(path, self.root.path / "tmp" / name)

    def files(self):
        """All files except those that dpkg, Python and this script change."""
        aside = ("var", "tmp", "proc", "dev", "sys", "run", "root")
        return {path for top in self.root.path.iterdir() if top.name not in aside
                for path in [top, *top.rglob("*")] if path.name != "__pycache__"}


def predicted(profile):
    """The prediction by this machine's folio for the demonstration's trace."""
    own = package.Build(package.own_arch(), profile)
    if not (own.folder() / "folio").exists():
        own.programs()
    return subprocess.run([own.folder() / "folio", "predict", TRACE, *ASKED], cwd=ROOT / "traces", check=True,
                          stdout=subprocess.PIPE, text=True).stdout


def check_deb(place, deb, expected):
    """Installs the package, uses its programs, removes it and checks that nothing is left."""
    place.put(deb, "largefolio.deb")
    if (place.root.path / "usr/bin/folio").exists():
        place("dpkg", "--purge", "largefolio")
    before = place.files()
    place("dpkg", "--install", "/tmp/largefolio.deb")
    version = place("folio", "--version", "--verbose")
    expect(f"target {place.machine}-unknown-linux-gnu" in version, f"for another machine: {version}")
    for name in ("recorder plugin /usr/lib", "preload library /usr/lib", "policy header /usr/share"):
        expect(name in version, f"does not find its {name}: {version}")
    told = place(f"cd /usr/share/largefolio/traces && folio predict {TRACE} {' '.join(ASKED)}")
    expect(told == expected, "the prediction differs from this machine's")
    elf = json.loads(place("folio", "maps", "--elf", "/usr/bin/folio", "--json"))
    expect(elf["files"], "maps --elf does not list its own program")
    expect("folio" in place("zcat -f /usr/share/man/man1/folio.1*"), "no manual page")
    if place.root.is_own:
        used(place)
    place("dpkg", "--purge", "largefolio")
    left = place.files() - before
    expect(not left, f"left after dpkg --purge: {sorted(map(str, left))[:5]}")
    say(f"{deb.name}: installed, used and removed in {place.name}")


def used(place):
    """Records a program of the root, predicts it, and inspects a running one."""
    place("cd /tmp && folio record -o own.folio -- ls -l /usr/bin >own.txt")
    report = json.loads(place(f"cd /tmp && folio predict own.folio {' '.join(ASKED)}"))
    nr_faults = [row["faults"]["total"] for row in report["rows"]]
    expect(len(nr_faults) == 2 and min(nr_faults) > 50, f"faults of ls: {nr_faults}")
    looked = json.loads(place(LOOK))
    expect(looked["processes"], "maps does not list a running program")
    place("rm -f /tmp/own.folio /tmp/own.txt")


def check_wheel(place, wheel, expected, settings=()):
    """Lets pip install or build the wheel, imports and uses it, and lets pip remove it."""
    place.put(ROOT / "traces" / TRACE, TRACE)
    (place.root.path / "tmp" / "use.py").write_text(USE_OF_WHEEL)
    site = place.root.path / "opt" / "largefolio"
    shutil.rmtree(site, ignore_errors=True)
    version = place("python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    run = f"cd /tmp && PYTHONPATH=/opt/largefolio python3 use.py {TRACE}"
    if place.root.is_own:
        place.put(wheel, wheel.name)
        place("python3", "-m", "venv", "/opt/largefolio")
        place("/opt/largefolio/bin/pip", "install", "--quiet", *settings, f"/tmp/{wheel.name}")
        run = f"cd /tmp && /opt/largefolio/bin/python use.py {TRACE}"
    else:
        unpacked(wheel, version, site, place.machine)
    report, nr_rows, folio = json.loads(place(run))
    expect(nr_rows > 0, "predict has no rows")
    expect(report == {**expected, "command_line": []}, "the report differs from this machine's folio")
    told = place(folio, "--version", "--verbose")
    expect(f"target {place.machine}-unknown-linux-gnu" in told, f"for another machine: {told}")
    script = (place.root.path / folio.lstrip("/")).parents[1] / "lib/largefolio/qemu.sh"
    expect(os.access(script, os.X_OK), f"no {script}, which folio record suggests without QEMU")
    if place.root.is_own:
        place("cd /tmp && /opt/largefolio/bin/folio record -o own.folio -- ls >own.txt")
        place("/opt/largefolio/bin/pip", "uninstall", "--quiet", "--yes", "largefolio")
        left = [path for path in site.rglob("*") if "largefolio" in path.name or path.name == "folio"]
        expect(not left, f"left after pip uninstall: {sorted(map(str, left))[:5]}")
    shutil.rmtree(site)
    say(f"{wheel.name}: installed, used and removed by Python {version} in {place.name}")


def unpacked(wheel, version, site, machine):
    """Unpacks the wheel and pyarrow of another architecture with this machine's pip."""
    platforms = [f"linux_{machine}", *(f"manylinux_2_{nr}_{machine}" for nr in (17, 26, 27, 28, 36)),
                 f"manylinux2014_{machine}"]
    subprocess.run([package.environment_of_pip(), "install", "--quiet", "--disable-pip-version-check",
                    "--only-binary=:all:", "--implementation=cp", "--no-compile",
                    f"--python-version={version}", f"--target={site}", wheel,
                    *(word for name in platforms for word in ("--platform", name))], check=True)


def check_crates(place, crates, is_release, expected):
    """Lets cargo install folio from the crates as from a registry, uses and removes it."""
    commit = said("git", "rev-parse", "--short=12", "HEAD")
    folder = place.root.path / "tmp" / "crates"
    shutil.rmtree(folder, ignore_errors=True)
    patches = []
    for crate in crates:
        with tarfile.open(crate) as archive:
            archive.extractall(folder, filter="data")
        name = crate.stem.rpartition("-")[0]
        patches += ["--config", f'patch.crates-io.{name}.path="/tmp/crates/{crate.stem}"']
    (own,) = [crate.stem for crate in crates if crate.stem.startswith("largefolio-cli-")]
    place.put(ROOT / "traces" / TRACE, TRACE)
    place("cargo", "install", "--quiet", *([] if is_release else ["--debug"]), *patches,
          f"--path=/tmp/crates/{own}", "--root=/opt/cargo", "--target-dir=/tmp/target")
    version = place("/opt/cargo/bin/folio", "--version")
    expect(f"commit {commit}" in version, f"of another commit: {version}")
    told = place(f"cd /tmp && /opt/cargo/bin/folio predict {TRACE} {' '.join(ASKED)}")
    expect(told == expected, "the prediction differs from this machine's")
    place("cargo", "uninstall", "--quiet", "--root=/opt/cargo", "largefolio-cli")
    left = list((place.root.path / "opt/cargo/bin").glob("*"))
    expect(not left, f"left after cargo uninstall: {left}")
    for built in (folder, place.root.path / "tmp/target", place.root.path / "opt/cargo"):
        shutil.rmtree(built)
    say(f"{len(crates)} crates: folio installed, used and removed by cargo in {place.name}")


def check(name, args, expected):
    place = Place(name, args.source)
    place.made()
    if args.source:
        profile = ["--config-settings", f"profile={args.profile}"]
        check_wheel(place, package.sdist(), json.loads(expected), profile)
        check_crates(place, package.crates(), args.profile == "release", expected)
        return
    is_all = not (args.deb or args.wheel)
    if is_all or args.deb:
        deb = args.deb or package.deb(place.root.arch, args.profile, has_module=is_all)
        check_deb(place, deb, expected)
    if is_all or args.wheel:
        wheel = args.wheel or package.wheel(place.root.arch, args.profile)
        check_wheel(place, wheel, json.loads(expected))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("places", nargs="*", metavar="SUITE-ARCH", help=f"of {', '.join(PLACES)}; else all")
    parser.add_argument("--profile", default="release")
    parser.add_argument("--deb", type=pathlib.Path, help="a built package, for one place")
    parser.add_argument("--wheel", type=pathlib.Path, help="a built wheel, for one place")
    parser.add_argument("--source", action="store_true", help="compile the sdist and the crates in one place")
    args = parser.parse_args()
    if unknown := set(args.places) - set(PLACES):
        parser.error(f"no place {', '.join(sorted(unknown))}; there are {', '.join(PLACES)}")
    if (args.deb or args.wheel or args.source) and len(args.places) != 1:
        parser.error("--deb, --wheel and --source: in which place?")
    if args.source and (args.deb or args.wheel):
        parser.error("--source packs the committed files: omit --deb and --wheel")
    # Stop whatever runs in a root together with this script.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    is_good = True
    for name in args.places or PLACES:
        try:
            if not (args.deb or args.wheel or args.source):
                package.pages(args.profile, has_module=True)
            check(name, args, predicted(args.profile))
        except (roots.Unable, packages.Missing) as why:
            arm64.skipped(f"packages are not used in {name}", why)
        except (Wrong, package.Wrong, packed.Wrong, subprocess.CalledProcessError) as why:
            say(f"{name}: {why}")
            is_good = False
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
