#!/usr/bin/env python3
"""What is checked on an arm64 kernel, emulated or real: the verbs of folio, and its unit tests.

    checks.py --bundle DIR --out DIR [--only NAME,..]
    checks.py --list

DIR of --bundle is made by bundle.py. Each check prints one line, `ok NAME: ..`, `FAILED NAME: why`
or `skipped NAME: why`. DIR of --out gets summary.json and, for each check, NAME.txt: every command
with its output. Needs root, which it uses only through folio. Settings that folio changes are put
back.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PREDICT = ["predict", "demo.folio", "--kernel", "6.12,7.2,7.2+page=16K,7.2+page=64K",
           "--machine", "altra", "--runtime", "1s", "--json"]
PROGRAMS = 200                  # random ones of a kind
SECONDS = 300                   # a command that takes longer is stuck
TOLD = 300                      # characters of a failure that its line shows
THP = pathlib.Path("/sys/kernel/mm/transparent_hugepage")
# A process with 16 MiB of its own, which stays as it is until it is killed.
IDLE = """import mmap, signal
memory = mmap.mmap(-1, 16 << 20)
for at in range(0, len(memory), 4096):
    memory[at] = 1
print("ready", flush=True)
signal.pause()
"""
# Unit tests that say nothing here: of x86-64 programs, and one that gives a shell two seconds.
LEFT_OUT = {"linux": ["verify::tests::a_server_that_ends_is_told_with_its_last_words"]}
CHECKS = {}


class Failed(Exception):
    """What is wrong, in a line."""


class Skipped(Exception):
    """Why a check says nothing here."""


def check(function):
    """Makes a function of `Run` a check; what it returns is the figure on its line."""
    CHECKS[function.__name__.replace("_", "-")] = function
    return function


class Run:
    """One check on its way: the bundle, an empty folder, and a log of its commands."""

    def __init__(self, bundle, folder, log):
        self.bundle, self.folder, self.log = bundle, folder, log

    def command(self, *words, seconds=SECONDS, where=None, wanted=(0,), **environment):
        """Standard output of a command, which must end in time with a status that is wanted."""
        words = [str(word) for word in words]
        self.log.write(f"$ {' '.join(words)}\n")
        self.log.flush()
        began = time.monotonic()
        child = subprocess.Popen(words, cwd=where or self.folder, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 errors="replace", env={**os.environ, **environment},
                                 start_new_session=True)
        try:
            out, err = child.communicate(timeout=seconds)
        except BaseException as why:
            self.log.write("".join(end(child)))
            if not isinstance(why, subprocess.TimeoutExpired):
                raise
            raise Failed(f"`{' '.join(words[:4])}` did not end within {seconds} s") from None
        took = time.monotonic() - began
        self.log.write(f"{out}{err}# status {child.returncode}, {took:.1f} s\n\n")
        if child.returncode not in wanted:
            raise Failed(f"`{' '.join(words[:4])}` ended with {child.returncode}: "
                         f"{last_of(err or out)}")
        return out

    def folio(self, *words, **how):
        return self.command(self.bundle / "bin" / "folio", *words, **how)

    def folio_json(self, *words, **how):
        """A result: with status 1 its answer is no."""
        return json.loads(self.folio(*words, "--json", wanted=(0, 1), **how))


def end(child):
    """What a child printed, ended with all that it started. On SIGTERM folio puts settings back."""
    printed = ()
    for number, seconds in ((signal.SIGTERM, 30), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            printed = child.communicate(timeout=seconds)
    return printed


def last_of(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-TOLD:]


def expect(is_so, why):
    if not is_so:
        raise Failed(why)


@check
def version(run):
    said = run.folio("--version")
    target = re.search(r"^target (\S+)$", said, re.M)
    expect(target and target[1].startswith(platform.machine()), f"not built for here: {target}")
    return target[1]


@check
def maps(run):
    """Sizes of a process that stands still add up to what smaps says."""
    with idle() as pid:
        found = run.folio_json("maps", pid)
        smaps = pathlib.Path(f"/proc/{pid}/smaps").read_text()
    page = os.sysconf("SC_PAGE_SIZE")
    expect(found["page_bytes"] == page, f"pages of {found['page_bytes']}, not {page}")
    pmd = int((THP / "hpage_pmd_size").read_text())
    expect(found["pmd_bytes"] == pmd, f"PMD size {found['pmd_bytes']}, not {pmd}")
    expect(found["access"] == "full", f"access is {found['access']}")
    wrong = []
    for start, rss in rss_of(smaps).items():
        mapping = [each for each in found["processes"][0]["mappings"] if each["start"] == start]
        shown = sum(folio["mapped_bytes"] for each in mapping for folio in each["folios"])
        if shown != rss:
            wrong.append(f"{start:x}: {shown} mapped, Rss {rss}")
    expect(not wrong, f"{len(wrong)} mappings differ from smaps: {'; '.join(wrong[:3])}")
    sizes = sorted({total["folio_bytes"] >> 10 for total in found["totals"]})
    return f"{sum(rss_of(smaps).values()) >> 10} KiB, folios of {sizes} KiB"


@contextlib.contextmanager
def idle():
    """The process id of one that runs IDLE."""
    with subprocess.Popen([sys.executable, "-c", IDLE], stdout=subprocess.PIPE) as child:
        try:
            child.stdout.readline()
            yield child.pid
        finally:
            child.kill()


def rss_of(smaps):
    """Resident bytes by start of the mapping."""
    found = re.findall(r"^([0-9a-f]+)-[0-9a-f]+ .*?^Rss: +(\d+) kB", smaps, re.M | re.S)
    return {int(start, 16): int(kb) << 10 for start, kb in found if int(kb)}


@check
def maps_text(run):
    """What people read, and the ELF side."""
    with idle() as pid:
        said = run.folio("maps", pid)
    page = os.sysconf("SC_PAGE_SIZE") >> 10
    expect(f"{page}K pages" in said, f"does not say {page}K pages")
    run.folio("maps", "--elf", os.path.realpath(sys.executable))


@check
def predict(run):
    """The same bytes as on the machine that made the bundle."""
    said = run.folio(*PREDICT, where=run.bundle / "traces")
    (run.log_folder / "predict.json").write_text(said)
    expected = run.bundle / "expected" / "predict.json"
    if not expected.exists():
        raise Skipped("no other machine's prediction to compare with; it is in predict.json")
    expect(said == expected.read_text(), "another prediction than on the other machine")
    return f"{len(said)} bytes equal"


@check
def tune(run):
    """Settings change, are recorded, and come back."""
    # Anonymous memory has fewer sizes than shared memory.
    sizes = sorted((path.parent for path in THP.glob("hugepages-*kB/enabled")),
                   key=lambda path: int(path.name[10:-2]))
    if not sizes:
        raise Skipped("this kernel has no sizes to set: 6.8 is the first")
    files = [THP / "enabled", sizes[0] / "enabled", sizes[-1] / "enabled"]
    old = [chosen(path) for path in files]
    new = ["always" if each == "madvise" else "madvise" for each in old]
    names = ["thp.enabled", *(f"thp.{size_name(path)}" for path in (sizes[0], sizes[-1]))]
    run.folio("tune")
    with settings(run, dict(zip(names, new))):
        expect([chosen(path) for path in files] == new, f"{names} were not set")
    expect([chosen(path) for path in files] == old, f"{names} did not come back")
    return ", ".join(names)


@contextlib.contextmanager
def settings(run, values):
    """Has folio change settings, with a record of its own, and put them back."""
    state = {"XDG_STATE_HOME": str(run.folder / "state")}
    pairs = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    try:
        run.folio("tune", *pairs, "--yes", **state)
        yield
    finally:
        run.folio("tune", "--undo", **state)


def chosen(path):
    return re.search(r"\[(\w+)\]", path.read_text())[1]


def size_name(folder):
    kb = int(folder.name[10:-2])
    return f"{kb >> 10}M" if kb >= 1024 else f"{kb}K"


@check
def warm(run):
    """A file of base pages comes back in large folios."""
    copy = copied(run)
    [row] = run.folio_json("warm", copy)["rows"]
    expect(row["after_bytes"] > 0, f"nothing is large: {row['reason']}")
    [again] = run.folio_json("warm", "--check", copy)["rows"]
    large = row["after_bytes"]
    expect(again["before_bytes"] == large,
           f"{large} bytes were large, then {again['before_bytes']}")
    return f"{row['after_bytes'] >> 10} of {row['possible_bytes'] >> 10} KiB in folios of " \
           f"{row['folio_bytes'] >> 10} KiB"


def copied(run):
    """A fresh copy of folio on the disk, in the folios that a copy gets."""
    copy = pathlib.Path(shutil.copy(run.bundle / "bin" / "folio", run.folder / "program"))
    os.sync()
    return copy


@check
def run(run):
    """A program behaves under `folio run` as alone."""
    copy = copied(run)
    alone = run.command(copy, "--version")
    for text in ("off", "large", "remap"):
        said = run.folio("run", "--summary", "--text", text, "--", copy, "--version")
        expect(said == alone, f"--text {text} changes what the program prints")
    run.folio("run", "--", "sh", "-c", "exit 7", wanted=(7,))


@check
def crosscheck(run):
    found = run.folio_json("crosscheck", "--keep", run.log_folder / "crosscheck", seconds=1200)
    rows = found["rows"]
    counts = {name: sum(row["outcome"] == name for row in rows)
              for name in sorted({row["outcome"] for row in rows})}
    equal = counts.pop("equal", 0)
    skipped = counts.pop("skipped", 0)
    other = [row["name"] for row in rows if row["outcome"] not in ("equal", "skipped")]
    expect(not counts, f"{counts}, {equal} equal: {', '.join(other[:5])}")
    expect(equal, f"nothing was compared: {skipped} skipped")
    return f"{equal} equal, {skipped} skipped"


def programs(run, kind):
    """Random programs of a kind, all of which the model must agree with."""
    # The programs advise their memory.
    with settings(run, {"thp.enabled": "madvise"}):
        found = run.folio_json("crosscheck", kind, "--programs", PROGRAMS, "--keep",
                               run.log_folder / kind, seconds=900)
    equal = found["nr_equal"] + len(found["repeated_equal"])
    expect(equal == PROGRAMS, f"{equal} of {PROGRAMS} equal, {found['nr_not_judged']} not judged")
    return f"{equal} programs, {found['nr_steps']} steps, {found['nr_pages']} pages"


@check
def package(run):
    """The Debian package: unpacked by dpkg into a folder of its own, used there, and removed."""
    deb = run.bundle / "largefolio.deb"
    if not deb.exists():
        raise Skipped("the bundle has no package (make deb, before it is made)")
    if not shutil.which("dpkg"):
        raise Skipped("this system has no dpkg")
    root = run.folder / "root"
    state = root / "var" / "lib" / "dpkg"
    state.mkdir(parents=True)
    for name in ("status", "available"):
        (state / name).touch()
    # The libraries it depends on are those of this system, which this dpkg does not know.
    dpkg = ["dpkg", f"--instdir={root}", f"--admindir={state}", "--force-depends",
            "--force-script-chrootless", "--log=/dev/null"]
    run.command(*dpkg, "--install", deb)
    folio = root / "usr" / "bin" / "folio"
    version = run.command(folio, "--version")
    expect(f"target {platform.machine()}-" in version, "the package is for another architecture")
    expect(f"preload library {root}/usr/lib/largefolio/" in version, "its libraries are not found")
    said = run.command(folio, *PREDICT, where=root / "usr" / "share" / "largefolio" / "traces")
    expected = run.bundle / "expected" / "predict.json"
    expect(not expected.exists() or said == expected.read_text(),
           "another prediction than on the other machine")
    with idle() as pid:
        found = json.loads(run.command(folio, "maps", pid, "--json"))
    expect(found["processes"], "folio maps sees no process")
    run.command(*dpkg, "--purge", "largefolio")
    left = [path for path in (root / "usr").rglob("*") if not path.is_dir()]
    expect(not left, f"left after dpkg --purge: {left[:3]}")
    return f"{deb.stat().st_size >> 20} MiB, unpacked, used, removed"


@check
def crosscheck_cow(run):
    return programs(run, "cow")


@check
def crosscheck_collapse(run):
    if os.sysconf("SC_PAGE_SIZE") == 64 << 10:
        raise Skipped("a PMD entry maps 512 MiB, more than the window of a random program")
    return programs(run, "collapse")


def unit(run, crate):
    """The unit tests of a crate."""
    built = json.loads((run.bundle / "tests.json").read_text())
    if crate not in built:
        raise Skipped("the bundle was made without tests")
    folder = pathlib.Path(built[crate])
    expect(folder.is_dir(), f"no folder {folder}, where its tests look for files")
    skip = [word for name in LEFT_OUT.get(crate, []) for word in ("--skip", name)]
    said = run.command(run.bundle / "tests" / crate, "--quiet", *skip, where=folder, seconds=900)
    result = re.search(r"^test result: ok\. (\d+) passed", said, re.M)
    expect(result and int(result[1]), "no test ran")
    return f"{result[1]} passed"


for name in ("mm", "trace", "linux"):
    CHECKS[f"unit-{name}"] = lambda run, crate=name: unit(run, crate)


def performed(name, bundle, out):
    """Runs one check: its line, and what the summary says of it."""
    began = time.monotonic()
    with (out / f"{name}.txt").open("w") as log, \
            tempfile.TemporaryDirectory(dir="/var/tmp", prefix="largefolio-check-") as folder:
        on_way = Run(bundle, pathlib.Path(folder), log)
        on_way.log_folder = out
        try:
            status, why = "ok", CHECKS[name](on_way)
        except Skipped as reason:
            status, why = "skipped", str(reason)
        except (Failed, OSError, KeyError, ValueError) as reason:
            status, why = "FAILED", f"{type(reason).__name__}: {reason}"
            why = str(reason) if isinstance(reason, Failed) else why
            log.write(f"# {why}\n")
    seconds = round(time.monotonic() - began, 1)
    shown = " ".join(why.split()) if why else ""
    print(f"{status} {name}{': ' if shown else ''}{shown} ({seconds:.0f} s)", flush=True)
    return {"name": name, "status": status, "why": why, "seconds": seconds}


def machine():
    """What a reader of the results asks first."""
    def text(path):
        with contextlib.suppress(OSError):
            return pathlib.Path(path).read_text(errors="replace")
        return None
    thp = {str(path.relative_to(THP)): path.read_text().strip()
           for path in sorted(THP.rglob("*")) if path.is_file() and os.access(path, os.R_OK)}
    cpu = (text("/proc/cpuinfo") or "").partition("\n\n")[0]
    return {"kernel": platform.release(), "version": platform.version(),
            "page_bytes": os.sysconf("SC_PAGE_SIZE"), "nr_cpus": os.cpu_count(),
            "first_cpu": dict(re.findall(r"^(.+?)\s*: (.*)$", cpu, re.M)),
            "memory": (text("/proc/meminfo") or "").partition("\n")[0],
            "system": re.findall(r'^PRETTY_NAME="(.*)"', text("/etc/os-release") or "", re.M),
            "thp": thp, "command_line": text("/proc/cmdline")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--only", metavar="NAME,..")
    parser.add_argument("--list", action="store_true", help="print the names of the checks")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(CHECKS)
    if unknown := [name for name in names if name not in CHECKS]:
        parser.error(f"no check is called {', '.join(unknown)}; there are {', '.join(CHECKS)}")
    if args.list:
        print("\n".join(names))
        return 0
    if not args.bundle or not args.out:
        parser.error("--bundle and --out are needed")
    if os.geteuid() != 0:
        parser.error("folio sizes need root")
    # What is open then puts its settings back.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    args.out.mkdir(parents=True, exist_ok=True)
    summary = {"schema_version": 1, "machine": machine(), "checks": []}
    for name in names:
        summary["checks"].append(performed(name, args.bundle.resolve(), args.out.resolve()))
        (args.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    return 1 if any(each["status"] == "FAILED" for each in summary["checks"]) else 0


if __name__ == "__main__":
    sys.exit(main())
