#!/usr/bin/env python3
"""Builds Debian packages of a kernel with largefolio's features (`make kernel`).

    scripts/kernel/debs.py 6.12                        like Debian's cloud kernel
    scripts/kernel/debs.py 6.12 --config full          like its usual kernel
    scripts/kernel/debs.py 6.12 --config running --modules loaded
    scripts/kernel/debs.py 6.12 --config FILE

Fetches the packaged source, adds the features of kernel/ that know the version, takes the
configuration of the packaged kernel (or of the running one, or a file), and builds packages of the
image and the headers for this machine's architecture in target/kernel/VERSION-CONFIG. An
interrupted build resumes; one with the same inputs is not repeated. Needs an apt
that reaches a Debian mirror. docs/guide/kernel.md shows the rest.
"""

import argparse
import hashlib
import os
import pathlib
import platform
import resource
import shutil
import signal
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "scripts" / "recordings")]
sys.dont_write_bytecode = True

import built  # noqa: E402
import configs  # noqa: E402
import edits  # noqa: E402
import packages  # noqa: E402

ARCHES = {"x86_64": "amd64", "aarch64": "arm64"}
FLAVOURS = {"cloud": "cloud-{}", "full": "{}"}
# Programs and headers that a kernel's packages need, and their Debian packages.
TOOLS = {"bc": "bc", "bison": "bison", "flex": "flex", "cpio": "cpio", "dh": "debhelper",
         "dpkg-buildpackage": "dpkg-dev", "gcc": "gcc", "kmod": "kmod", "make": "make",
         "openssl": "openssl", "rsync": "rsync", "xz": "xz-utils"}
HEADERS = {"/usr/include/gelf.h": "libelf-dev", "/usr/include/openssl/ssl.h": "libssl-dev"}
SECONDS_BETWEEN_LINES = 60


def say(words):
    print(f"kernel: {words}", flush=True)


def missing_packages(which=shutil.which, exists=os.path.exists):
    """The Debian packages that a build needs and this machine lacks."""
    lost = [package for tool, package in TOOLS.items() if not which(tool)]
    return sorted({*lost, *(package for path, package in HEADERS.items() if not exists(path))})


def versions():
    """The kernels that have features."""
    found = {path.stem for path in built.FEATURES.glob("*/*.toml")
             if path.parent.name != "settings"}
    return sorted(found, key=packages.numbers)


def feature_names(version):
    return {path.parent.name for path in built.FEATURES.glob(f"*/{version}.toml")} - {"settings"}


class Build:
    """One kernel's packages."""

    def __init__(self, args):
        self.version, self.kind = args.version, args.config
        self.work = args.work.resolve()
        self.arch = ARCHES[platform.machine()]
        named = self.kind if self.kind in (*FLAVOURS, "running") else "own"
        reduced = "" if args.modules == "all" else "-reduced"
        self.folder = args.out.resolve() / f"{self.version}-{named}{reduced}"
        self.tree = self.folder / "build"
        self.log = self.folder / "build.log"
        self.nr_jobs = args.jobs
        self.modules = modules_text(args.modules)
        self.names = feature_names(self.version)

    def base(self):
        """The configuration to start from: its text, and where it is from."""
        if self.kind in FLAVOURS:
            debs = self.work / "debs"
            debs.mkdir(parents=True, exist_ok=True)
            apt = packages.apt_for(self.work, self.version, self.arch)
            flavour = FLAVOURS[self.kind].format(self.arch)
            deb = packages.fetch_config(apt, self.version, flavour, debs)
            return configs.config_of(deb), deb.name
        path = pathlib.Path(f"/boot/config-{os.uname().release}" if self.kind == "running"
                            else self.kind)
        try:
            text = path.read_text()
        except OSError as error:
            raise packages.Missing(f"{path}: {error.strerror}; name a file such as "
                                   "/boot/config-VERSION, or CONFIG=cloud") from None
        return text, str(path)

    def inputs(self, config):
        """A hash of everything that the packages depend on."""
        compiler = subprocess.run(["gcc", "--version"], capture_output=True, text=True, check=True)
        parts = [config, self.modules or "", compiler.stdout, built.features_digest(self.version),
                 *sorted(deb.name for deb in
                         (self.work / "debs").glob(f"linux-source-{self.version}_*.deb"))]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest() + "\n"

    def packages(self):
        """The finished packages; the kernel's headers for programs are the distribution's."""
        return sorted(path for path in self.folder.glob("*.deb")
                      if not path.name.startswith("linux-libc-dev"))

    def made(self):
        """Makes the packages unless they exist with these inputs."""
        say(f"looking for the configuration ({self.kind}) and the source of {self.version}")
        text, origin = self.base()
        config = edits.private(text, self.names)
        complete = self.folder / "complete"
        if complete.exists() and self.packages() and complete.read_text() == self.inputs(config):
            say("the packages exist already")
            return self.packages()
        if lost := missing_packages():
            raise packages.Missing(f"to build a kernel: sudo apt-get install {' '.join(lost)}")
        sources = built.attached(self.work, self.version)
        self.tree.mkdir(parents=True, exist_ok=True)
        self.configure(sources, config, origin)
        complete.unlink(missing_ok=True)
        for deb in self.folder.glob("*.deb"):
            deb.unlink()
        jobs = f"-j{self.nr_jobs}"
        self.run("compiling", sources, jobs, "all")
        self.run("packing", sources, jobs, "bindeb-pkg")
        complete.write_text(self.inputs(config))
        return self.packages()

    def configure(self, sources, config, origin):
        """Writes the configuration that the build uses."""
        say(f"settling the configuration of {origin}")
        own = self.tree / ".config"
        own.write_text(config)
        built.make(sources, self.tree, self.arch, "olddefconfig")
        if self.modules is not None:
            path = self.folder / "modules"
            path.write_text(self.modules)
            built.make(sources, self.tree, self.arch, f"LSMOD={path}", "localmodconfig")
        settled = own.read_text()
        has, lacks = edits.accepted(settled, self.names)
        say(f"{edits.nr_modules(settled):,} options for modules; features: {', '.join(has)}")
        for name in lacks:
            say(f"not {name}: kernel/{name}/Kconfig says which options it needs")

    def run(self, doing, sources, *words):
        """Runs make, and says every minute how far it is."""
        say(f"{doing}; the log is {self.log}")
        progress = edits.Progress()
        began, cpu = time.monotonic(), cpu_seconds()
        environment = {**os.environ, "KDEB_CHANGELOG_DIST": "unstable", "LC_ALL": "C"}
        command = [word for word in built.command(sources, self.tree, self.arch) if word != "-s"]
        with self.log.open("w") as log, self.log.open() as lines, subprocess.Popen(
                [*command, *words], env=environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT) as child:
            try:
                while is_running(child):
                    for line in lines:
                        progress.read(line)
                    say(f"{doing}, {progress.text(time.monotonic() - began)}")
            except BaseException:
                child.terminate()
                raise
        if child.returncode:
            lines = "\n".join(edits.errors(self.log.read_text(errors="replace")))
            raise packages.Missing(f"make {words[-1]} failed; {self.log} says why:\n{lines}")
        say(f"{doing} took {edits.clock(time.monotonic() - began)}, "
            f"and {edits.clock(cpu_seconds() - cpu)} of CPU time")


def cpu_seconds():
    """CPU time of the children that have ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def is_running(child):
    """Waits until a line is due; returns whether the child has not ended by then."""
    try:
        child.wait(SECONDS_BETWEEN_LINES)
    except subprocess.TimeoutExpired:
        return True
    return False


def modules_text(which):
    """The list for `localmodconfig`: None for all modules, or what lsmod prints."""
    if which == "all":
        return None
    if which == "loaded":
        return subprocess.run(["lsmod"], check=True, capture_output=True, text=True).stdout
    try:
        return pathlib.Path(which).read_text()
    except OSError as error:
        raise packages.Missing(f"MODULES={which}: {error.strerror}; it is `all`, `loaded`, or a "
                               "file with the output of lsmod") from None


def options(parser):
    parser.add_argument("version", choices=versions(), metavar="VERSION",
                        help=", ".join(versions()))
    parser.add_argument("--config", default="cloud", metavar="cloud|full|running|FILE",
                        help="the configuration to start from (default: cloud)")
    parser.add_argument("--modules", default="all", metavar="all|loaded|FILE",
                        help="loaded: only the modules that this machine has loaded; a file has "
                        "the output of lsmod (default: all)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="default: one per CPU")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target" / "recordings",
                        help="for the source (default: target/recordings)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target" / "kernel",
                        help="for the build and the packages (default: target/kernel)")


def stopped(_signal, _frame):
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options(parser)
    args = parser.parse_args()
    if platform.machine() not in ARCHES:
        sys.exit(f"kernel: no features for {platform.machine()}")
    signal.signal(signal.SIGTERM, stopped)
    began = time.monotonic()
    try:
        found = Build(args).made()
    except (packages.Missing, edits.Unfit) as error:
        sys.exit(f"kernel: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(f"kernel: {' '.join(map(str, error.cmd))} failed")
    except KeyboardInterrupt:
        sys.exit(f"kernel: stopped after {edits.clock(time.monotonic() - began)}; "
                 "the same command resumes it")
    for path in found:
        say(f"{path} ({path.stat().st_size >> 20} MiB)")
    image = next(path for path in found if path.name.startswith("linux-image"))
    say(f"to install: sudo apt-get install {image}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
