#!/usr/bin/env python3
"""Debian packages and wheels for amd64 and arm64, whichever of them this machine is.

    package.py deb [--arch A]..      target/debian/largefolio_VERSION_ARCH.deb
    package.py wheel [--arch A]..    target/wheels/largefolio-VERSION-cp310-abi3-linux_ARCH.whl
    package.py sdist                 target/wheels/largefolio-VERSION.tar.gz, from which pip builds a wheel
    package.py check                 builds both for arm64, installs and uses them in a Debian root
                                     of arm64 under QEMU, and removes them

The other architecture is built with Debian's cross compiler, which this installs if it may.
--profile names another profile of cargo than release. `check` prints a line that begins with
SKIPPED where it cannot run.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import arm64  # noqa: E402
import foreign  # noqa: E402

# By the name of the architecture in Debian.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
COMPILERS = {"amd64": "gcc-x86-64-linux-gnu", "arm64": "gcc-aarch64-linux-gnu"}
# What `deb` installs if it is missing.
CARGO_DEB = "3.8.0"
TOOLS = ROOT / "target" / "tools"
PROGRAMS = ["cli", "recorder", "preload"]
WORK = ROOT / "target" / "foreign"
TRACE = "demo.folio"
ASKED = ["--kernel", "6.12,7.2+page=64K", "--machine", "altra", "--json"]
# Prints what the module predicts, as the command does.
USE_OF_WHEEL = """import json, sys
import largefolio
from largefolio._command import folio
report = largefolio.report(sys.argv[1], ["6.12", "7.2+page=64K"], ["altra"])
table = largefolio.predict(sys.argv[1], ["6.12", "7.2+page=64K"], ["altra"])
print(json.dumps([report, table.num_rows, folio()]))
"""


class Wrong(Exception):
    """A package that is not as it should be."""


def say(words):
    print(f"package.py: {words}", file=sys.stderr, flush=True)


def built_in():
    return pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


class Build:
    """One architecture and the profile it is built with."""

    def __init__(self, arch, profile):
        self.arch, self.profile = arch, profile
        machine = MACHINES[arch]
        is_own = platform.machine() == machine
        self.target = None if is_own else f"{machine}-unknown-linux-gnu"
        self.tools = "" if is_own else f"{machine}-linux-gnu-"

    def folder(self):
        """Where cargo puts programs."""
        return built_in() / (self.target or "") / self.profile

    def environment(self):
        environment = dict(os.environ)
        if self.target:
            name = self.target.upper().replace("-", "_")
            environment.setdefault(f"CARGO_TARGET_{name}_LINKER", f"{self.tools}gcc")
        return environment

    def prepare(self):
        """Has the Rust library and the compiler of another architecture installed."""
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
        self.cargo("build", *(f"--package=largefolio-{name}" for name in PROGRAMS))


def own_arch():
    return next((arch for arch, machine in MACHINES.items() if machine == platform.machine()), None)


def pages(profile):
    """Manual pages and completions, which this machine's folio writes for every architecture."""
    own = Build(own_arch(), profile)
    if not (own.folder() / "folio").exists():
        own.programs()
    install("pages", own)


def install(verb, build):
    """What scripts/install.sh prints last."""
    environment = {**build.environment(), "BUILD": str(build.folder()), "PROFILE": build.profile,
                   "TARGET": build.target or ""}
    environment["PATH"] = f"{TOOLS / 'bin'}:{environment['PATH']}"
    done = subprocess.run([ROOT / "scripts/install.sh", verb], env=environment, check=True,
                          stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def deb(arch, profile):
    """Builds a Debian package; its path."""
    if not shutil.which("cargo-deb") and not (TOOLS / "bin" / "cargo-deb").exists():
        subprocess.run(["cargo", "install", "--locked", "--root", TOOLS, "cargo-deb", "--version",
                        CARGO_DEB], check=True)
    build = Build(arch, profile)
    build.programs()
    package = ROOT / install("deb", build)
    say(f"{package} ({package.stat().st_size >> 20} MiB)")
    return package


def wheel(arch, profile):
    """Builds a wheel; its path."""
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
    # manylinux_.. if that was asked for, else linux_..
    found = max(folder.glob(f"largefolio-*_{MACHINES[arch]}.whl"),
                key=lambda path: path.stat().st_mtime)
    say(f"{found} ({found.stat().st_size >> 20} MiB)")
    return found


# Calls the build backend, as pip does.
PACK = """import sys
sys.path.insert(0, "build_backend")
import largefolio_build
largefolio_build.build_sdist(sys.argv[1])
"""


def sdist():
    """Packs the source of a wheel; its path."""
    folder = built_in() / "wheels"
    bin_folder = environment_of_pip().parent
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    subprocess.run([bin_folder / "python", "-c", PACK, folder.absolute()], cwd=ROOT / "python",
                   env=environment, check=True, stdout=subprocess.DEVNULL)
    found = max(folder.glob("largefolio-*.tar.gz"), key=lambda path: path.stat().st_mtime)
    say(f"{found} ({found.stat().st_size >> 20} MiB)")
    return found


def environment_of_pip():
    """pip of an environment with maturin."""
    folder = built_in() / "package-python"
    pip = folder / "bin" / "pip"
    if not pip.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([pip, "install", "--quiet", "--disable-pip-version-check", "maturin>=1.16,<2"],
                   check=True)
    return pip


def expect(is_so, why):
    if not is_so:
        raise Wrong(why)


def check(args):
    """Uses both packages for arm64 in a Debian root of its own, which stays for the next time."""
    # The C++ library is for the pyarrow that the wheel needs.
    root = foreign.made(WORK / "root", ["python3", "libgcc-s1", "libstdc++6"])
    package = args.deb or deb("arm64", args.profile)
    module = args.wheel or wheel("arm64", args.profile)
    own = Build(own_arch(), args.profile).folder() / "folio"
    expected = predicted([own], ROOT / "traces", lambda words, **how: subprocess.run(
        words, check=True, stdout=subprocess.PIPE, text=True, **how).stdout)
    check_deb(root, package, expected)
    check_wheel(root, module, json.loads(expected))


def predicted(folio, folder, run):
    """What a folio says of the trace in a folder."""
    return run([*folio, "predict", TRACE, *ASKED], cwd=folder)


def inside(root, *words):
    """What a program prints in the root; words of the shell, if it is one string."""
    words = ["sh", "-c", words[0]] if len(words) == 1 else words
    done = foreign.run(["chroot", root, *words], stdout=subprocess.PIPE, text=True)
    expect(done.returncode == 0, f"`{' '.join(words)}` ended with {done.returncode} on arm64")
    return done.stdout


def files_of(root):
    """Everything in the root but what dpkg, Python and this script note."""
    aside = ("var", "tmp", "proc", "dev", "sys", "run", "root")
    return {path for top in root.iterdir() if top.name not in aside
            for path in [top, *top.rglob("*")] if path.name != "__pycache__"}


def check_deb(root, package, expected):
    """Installs the package with dpkg, uses its programs, removes it and finds nothing left."""
    shutil.copy(package, root / "tmp" / "largefolio.deb")
    if (root / "usr/bin/folio").exists():
        inside(root, "dpkg", "--purge", "largefolio")
    before = files_of(root)
    inside(root, "dpkg", "--install", "/tmp/largefolio.deb")
    version = inside(root, "folio", "--version")
    expect("target aarch64-unknown-linux-gnu" in version, f"not for arm64: {version}")
    for name in ("recorder plugin", "preload library"):
        expect(f"{name} /usr/lib/largefolio/" in version, f"does not find its {name}: {version}")
    words = " ".join(ASKED)
    told = inside(root, f"cd /usr/share/largefolio/traces && folio predict {TRACE} {words}")
    expect(told == expected, "another prediction than this machine's")
    elf = json.loads(inside(root, "folio", "maps", "--elf", "/usr/bin/folio", "--json"))
    expect(elf["files"], "maps --elf says nothing of its own program")
    expect("folio" in inside(root, "zcat -f /usr/share/man/man1/folio.1*"), "no manual page")
    inside(root, "dpkg", "--purge", "largefolio")
    left = files_of(root) - before
    expect(not left, f"left after dpkg --purge: {sorted(map(str, left))[:5]}")
    say(f"{package.name}: installed, used and removed in Debian {foreign.SUITE} for arm64")


def check_wheel(root, module, expected):
    """Has the Python of the root import the wheel, with pyarrow of its architecture, and use it."""
    version = inside(root, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
    site = root / "opt" / "largefolio"
    shutil.rmtree(site, ignore_errors=True)
    platforms = ["linux_aarch64", *(f"manylinux_2_{nr}_aarch64" for nr in (17, 26, 27, 28)),
                 "manylinux2014_aarch64"]
    subprocess.run([environment_of_pip(), "install", "--quiet", "--disable-pip-version-check",
                    "--only-binary=:all:", "--implementation=cp", "--no-compile",
                    f"--python-version={version.strip()}", f"--target={site}", module,
                    *(word for name in platforms for word in ("--platform", name))], check=True)
    shutil.copy(ROOT / "traces" / TRACE, root / "tmp" / TRACE)
    (root / "tmp" / "use.py").write_text(USE_OF_WHEEL)
    told = inside(root, f"cd /tmp && PYTHONPATH=/opt/largefolio python3 use.py {TRACE}")
    report, nr_rows, folio = json.loads(told)
    expect(nr_rows > 0, "predict has no rows")
    expect(report == {**expected, "command_line": []}, "another report than this machine's folio")
    said = inside(root, folio, "--version")
    expect("target aarch64-unknown-linux-gnu" in said, f"its folio is not for arm64: {said}")
    shutil.rmtree(site)
    say(f"{module.name}: imported and used by Python {version.strip()} for arm64")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["deb", "wheel", "sdist", "check"])
    parser.add_argument("--arch", action="append", choices=list(MACHINES), help="else both")
    parser.add_argument("--profile", default="release")
    parser.add_argument("--deb", type=pathlib.Path, help="check: a package for arm64 that is built")
    parser.add_argument("--wheel", type=pathlib.Path, help="check: a wheel for arm64 that is built")
    args = parser.parse_args()
    if own_arch() is None:
        parser.error(f"packages are made on {' and '.join(MACHINES)}, not {platform.machine()}")
    archs = args.arch or list(MACHINES)
    try:
        if args.what == "sdist":
            print(sdist())
            return 0
        if args.what != "wheel":
            pages(args.profile)
        if args.what == "check":
            check(args)
        for arch in archs if args.what != "check" else []:
            print({"deb": deb, "wheel": wheel}[args.what](arch, args.profile))
    except foreign.Unable as why:
        arm64.skipped("packages for arm64 are built, not used", why)
    except (Wrong, subprocess.CalledProcessError) as why:
        say(why)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
