#!/usr/bin/env python3
"""Does `folio maps` keep its promises for random memory?

Draws random processes from a seed (scripts/promised/cases.py), gets remedies from `folio maps PID
--json`, and carries each one out as printed. smaps, pagemap and kpageflags show the gain and the
additional memory, so folio does not judge itself. A promise that is off by more than a tenth and
more than 2 MiB is repeated on two more copies of the process, and is wrong if it is off in the same
way each time. Then the process collapses its memory itself. A gain that folio did not promise is
reported as `missed`, which is not an error.

`remedies.py` does the same for real programs. Needs root and gcc; every setting, mount and swap
space is restored, however this ends.

Exit status: 0 every promise is kept (or none could be tested), 1 some is not, 2 error.
"""

import argparse
import json
import os
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench import ROOT
from promised.cases import SETTINGS, THP, Case, case
from promised.kept import SLACK_BYTES, is_off
from promised.measure import PMD, family, large_of, memory_of
from promised.printed import as_printed
from promised.room import make_room
from remedies import M, Machine, commands

HERE = Path(__file__).resolve().parent
KSM = "/sys/kernel/mm/ksm"
POOL = "/proc/sys/vm/nr_hugepages"
# Settings during measurements: khugepaged sleeps, ksmd is fast, and hugetlb has pages.
KEPT = {f"{THP}/khugepaged/scan_sleep_millisecs": "4000000000", f"{KSM}/run": "0", f"{KSM}/pages_to_scan": "20000",
        f"{KSM}/sleep_millisecs": "5", POOL: "16"}
# Settings while khugepaged must work.
QUICK = {f"{THP}/khugepaged/scan_sleep_millisecs": "0", f"{THP}/khugepaged/alloc_sleep_millisecs": "0",
         f"{THP}/khugepaged/pages_to_scan": "100000"}
NR_TRIES = 3
# These programs split their large folios after each start, which their memory does not show. Gains
# of a new start cannot be promised and are not judged.
SPLITS_AGAIN = {"holes", "swapped"}
# Conditions that are not visible in advance, the starts in which they hold, and the smallest
# remaining share of the promise. memory.c's malloc maps 8 MiB and 64 KiB together: a boundary costs
# one block of four.
CONDITIONS = {
    "THP is disabled for the process except for advised memory": ("except advised", 0),
    "the gain is smaller if the allocator mapped the memory in pieces": ("own malloc", 0.75),
}
READY_SECONDS = 30
SWAP_MIB = 512
# Free PMD-sized blocks for every start: three areas, twice.
NR_FREE = 160


@dataclass(frozen=True)
class Remedy:
    """The command to type, and the folios it makes."""

    action: str
    command: str
    start: str
    restart: str
    undo: str
    folio_bytes: int

    def __str__(self):
        words = " ".join(part for part in (self.command, self.start) if part) or self.action
        return " ".join("PID" if word.isdigit() else word for word in words.split())


@dataclass
class Promise:
    """The sums of a remedy over a process's mappings. A setting affects all memory, including
    memory with a better remedy, which `most` counts too.
    """

    gain: int = 0
    extra: int = 0
    most_gain: int = 0
    most_extra: int = 0
    conditions: set[str] = field(default_factory=set)


@dataclass
class Verdict:
    """One remedy, carried out."""

    number: int
    kinds: list[str]
    start: str
    remedy: str
    said_gain: int
    gain: int
    said_extra: int
    extra: int
    wrong: list[str] = field(default_factory=list)
    missed: int = 0

    def off(self):
        """The larger of both differences, in bytes."""
        return max(abs(self.gain - self.said_gain), abs(self.extra - self.said_extra))


class NotTried(RuntimeError):
    """A case that this machine cannot create."""


def promises_of(found):
    """The promises of a result of `folio maps --json` with one process."""
    promised, mappings = {}, []
    for mapping in found["processes"][0]["mappings"]:
        target = mapping["target"] or {}
        remedies = [one for one in target.get("remedies", []) if one["action"] != "nothing"]
        # Memory watched by userfaultfd gets no promise. If the program touches it first, a setting
        # has an effect.
        watched = sum(one["bytes"] for one in target.get("reasons", []) if one["refusal"] == "userfaultfd")
        mappings.append((remedies, watched, target))
        for one in remedies:
            key = Remedy(*(one[name] for name in Remedy.__dataclass_fields__))
            promise = promised.setdefault(key, Promise())
            promise.gain += one["gain_bytes"]
            # Swap-in is a separate cost, and also takes memory.
            promise.extra += one["extra_bytes"] + one["swapped_in_bytes"]
            promise.conditions |= {condition for condition in CONDITIONS if condition in one["cost"]}
    for key, promise in promised.items():
        def most(name):
            best = 0
            for remedies, watched, target in mappings:
                # Memory judged by a larger size has no promise for this one.
                is_smaller = name == "gain_bytes" and target.get("target_bytes", 0) > key.folio_bytes
                least = target["missing_bytes"] if is_smaller else 0
                best += max([least, *(one[name] for one in remedies if one["folio_bytes"] >= key.folio_bytes)]) + watched
            return best if "folio tune" in key.command or key.action == "remount" else 0

        promise.most_gain = max(promise.gain, most("gain_bytes"))
        promise.most_extra = max(promise.extra, most("extra_bytes"))
    return promised


def wrongs(promise, gain, extra, start="plain"):
    """The parts of a promise that a newly started process did not keep."""
    held = (CONDITIONS[one] for one in promise.conditions)
    share = min((share for of, share in held if of == start), default=1)
    least_gain, least_extra = promise.gain * share, promise.extra * share
    found = ["gain"] if is_off(gain, least_gain, promise.most_gain) else []
    return found + (["memory"] if is_off(extra, least_extra, promise.most_extra) else [])


class Judge(Machine):
    """The machine, the program that makes memory, and the places for its files."""

    def __init__(self, folio, folder):
        self.folder = folder
        self.swap = folder / "swap"
        names = [name for name in dict.fromkeys([*SETTINGS, *KEPT, *QUICK]) if Path(name).exists()]
        super().__init__(folio, names, undo=f"swapoff {shlex.quote(str(self.swap))} 2>/dev/null")
        self.original = dict(self.old)
        self.base = self.old | {name: value for name, value in KEPT.items() if name in self.old}
        self.others = {f"{THP}/hugepages-2048kB/enabled": "inherit", f"{THP}/hugepages-2048kB/shmem_enabled": "inherit"}
        self.missing = {}
        self.prepare()

    def prepare(self):
        source, flags = HERE / "promised/memory.c", ["-O1", "-pthread"]
        subprocess.run(["gcc", *flags, source, "-o", self.folder / "memory"], check=True)
        subprocess.run(["gcc", *flags, "-fno-builtin-malloc", "-DOWN_MALLOC", source, "-o", self.folder / "own"], check=True)
        for huge in ("never", "always", "within_size", "advise"):
            place = self.folder / f"tmpfs-{huge}"
            place.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"huge={huge}", f"judged-{huge}", place], check=True)
        script = self.folder / "script"
        script.write_text('#!/bin/sh\n"$@"\nexit $?\n')
        script.chmod(0o755)
        for program in ("memory (deleted)", "gone"):
            shutil.copy(self.folder / "memory", self.folder / program)
        os.posix_fallocate(os.open(self.swap, os.O_RDWR | os.O_CREAT, 0o600), 0, SWAP_MIB * M)
        made = subprocess.run(["mkswap", self.swap], capture_output=True, text=True)
        done = made.returncode or subprocess.run(["swapon", self.swap], capture_output=True, text=True).returncode
        if done:
            self.missing["swapped"] = "no swap file can be made here"
        if not Path(f"{KSM}/run").exists():
            self.missing["merged"] = "this kernel has no KSM"

    def set(self, settings):
        for name, value in (self.base | settings).items():
            if self.now(name) != value:
                Path(name).write_text(value)

    def now(self, name):
        text = Path(name).read_text().strip()
        return text.split("[")[1].split("]")[0] if "[" in text else text

    def is_as(self, one):
        return all(self.now(name) == value for name, value in (self.others | one.settings).items())

    def typed(self, one):
        """The command line of the process itself."""
        program = {"own malloc": "own", "named (deleted)": "memory (deleted)", "deleted": "gone"}.get(one.start, "memory")
        loader = next(iter(sorted(Path("/lib64").glob("ld-*.so*")) or sorted(Path("/lib").glob("ld-*.so*"))), None)
        words = [str(self.folder / program), str(self.folder), *one.words()]
        return [str(loader), *words] if one.start == "loader" else words

    def run(self, words, environment=None, before=None):
        """A program that has printed that it is ready."""
        process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True, preexec_fn=before)
        self.started.append(process)
        os.set_blocking(process.stdout.fileno(), False)
        wait_for(process, b"ready")
        return process

    def launched(self, one, start=""):
        """A started process of the case, once it has its memory; the process that has it."""
        values = {"tunables": "glibc.malloc.arena_max=2", "hugetlb=1": "glibc.malloc.hugetlb=1"}
        environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
        if one.start in values:
            environment["GLIBC_TUNABLES"] = values[one.start]
        words, environment = as_printed(start, self.typed(one), environment)
        flag = {"disabled": "full", "except advised": "advised"}.get(one.start)
        if flag:
            words = [str(self.folder / "memory"), "--disable", flag, *words]
        if one.start == "script":
            words = [str(self.folder / "script"), *words]
        make_room(NR_FREE)
        for file in self.folder.glob("tmpfs-*/file-*"):
            file.unlink()
        if one.start == "deleted":
            shutil.copy(self.folder / "memory", self.folder / "gone")
        is_merged = any(kind == "merged" for kind, *_ in one.areas)
        if is_merged:
            Path(f"{KSM}/run").write_text("1")
        process = self.run(words, environment, unlimited if one.start == "unlimited stack" else None)
        if is_merged:
            Path(f"{KSM}/run").write_text("0")
        if one.start == "deleted":
            (self.folder / "gone").unlink()
        own = {Path(word).name[:15] for word in self.typed(one)[:2]}
        pids = [pid for pid in family(process.pid) if Path(f"/proc/{pid}/comm").read_text().strip() in own]
        return process, pids[0]

    def let_khugepaged_work(self, pid):
        """Waits until khugepaged has nothing left to do: only it collapses memory that was touched
        before the advice.
        """
        end, large, since = time.monotonic() + READY_SECONDS, large_of(pid, PMD), time.monotonic()
        old = {name: self.now(name) for name in QUICK}
        for name, value in QUICK.items():
            Path(name).write_text(value)
        while time.monotonic() < end and time.monotonic() - since < 2:
            time.sleep(0.2)
            now = large_of(pid, PMD)
            if now != large:
                large, since = now, time.monotonic()
        for name, value in old.items():
            Path(name).write_text(value)

    def look(self, pid):
        done = subprocess.run([self.folio, "maps", str(pid), "--json"], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"folio maps {pid}: {done.stderr.strip()}")
        return promises_of(json.loads(done.stdout))

    def close(self):
        self.stop_all()
        subprocess.run(["swapoff", self.swap], capture_output=True)
        super().close()


def unlimited():
    resource.setrlimit(resource.RLIMIT_STACK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def wait_for(process, word):
    end, seen = time.monotonic() + READY_SECONDS, b""
    while word not in seen:
        seen += process.stdout.read() or b""
        if process.poll() is not None or time.monotonic() > end:
            raise NotTried(f"it does not start: {seen[-200:].decode(errors='replace')!r}")
        time.sleep(0.01)


@dataclass
class Before:
    """One copy of a process before the remedy."""

    pid: int
    process: subprocess.Popen
    large: dict[int, int]
    memory: int
    promises: dict[Remedy, Promise]


def copied(judge, one):
    """A fresh copy under the settings of the case, measured."""
    judge.set(one.settings)
    process, pid = judge.launched(one)
    promises = judge.look(pid)
    sizes = {key.folio_bytes for key in promises} | {PMD}
    return Before(pid, process, {size: large_of(pid, size) for size in sizes}, memory_of(family(process.pid)), promises)


def carried_out(judge, one, before, remedy):
    """Bytes in larger folios and of memory after a remedy, and failures of its commands."""
    said, wrong = "", []
    try:
        if remedy.restart == "none":
            status, said = judge.shell(remedy.command)
            pid, process = before.pid, before.process
        else:
            if remedy.restart == "around":
                judge.stop_all()
            status, said = judge.shell(remedy.command) if remedy.command else (0, "")
            judge.stop_all()
            process, pid = judge.launched(one, remedy.start)
            if remedy.action == "tune" and one.is_advised_late():
                judge.let_khugepaged_work(pid)
        # 1: not everything was collapsed.
        if status not in (0, 1):
            wrong = [f"exit status {status}: {said}"]
        return large_of(pid, remedy.folio_bytes), memory_of(family(process.pid)), wrong
    finally:
        for command in commands(remedy.undo):
            judge.shell(command)


def verdict_of(judge, one, before, remedy):
    """The effect of one remedy, compared with its promise."""
    promise = before.promises[remedy]
    large, memory, wrong = carried_out(judge, one, before, remedy)
    if not judge.is_as(one):
        wrong.append("undo")
    verdict = Verdict(one.number, [kind for kind, *_ in one.areas], one.start, str(remedy), promise.gain,
                      large - before.large[remedy.folio_bytes], promise.extra, memory - before.memory, wrong)
    verdict.wrong += wrongs(promise, verdict.gain, verdict.extra, one.start)
    return verdict


def is_worth(promise):
    return max(promise.gain, promise.extra) >= SLACK_BYTES


def judged(judge, one, before, remedy):
    """Like `verdict_of`, but a promise is wrong only if it is wrong on each copy, since addresses
    are partly random.
    """
    for nr_left in reversed(range(NR_TRIES)):
        try:
            verdict = verdict_of(judge, one, before, remedy)
        except ValueError as error:
            promise = before.promises[remedy]
            return Verdict(one.number, [kind for kind, *_ in one.areas], one.start, str(remedy), promise.gain, 0,
                           promise.extra, 0, [str(error)])
        if not verdict.wrong or not nr_left:
            return verdict
        judge.stop_all()
        before = copied(judge, one)
        same = [key for key in before.promises if str(key) == str(remedy) and key.folio_bytes == remedy.folio_bytes]
        if not same or not is_worth(before.promises[same[0]]):
            return verdict
        remedy = same[0]
    return verdict


def missed(before, judge):
    """Bytes that the process gains by collapsing its memory itself."""
    old = large_of(before.pid, PMD)
    os.kill(before.pid, signal.SIGUSR1)
    wait_for(before.process, b"collapsed")
    return large_of(before.pid, PMD) - old


def tried(judge, one):
    """All verdicts of a case, and the bytes that collapse gains without a promise."""
    before = copied(judge, one)
    verdicts = []
    remedies = sorted((key for key, promise in before.promises.items() if is_worth(promise)),
                      key=lambda key: (key.action != "collapse", str(key)))
    for remedy in remedies:
        is_split = any(kind in SPLITS_AGAIN for kind, *_ in one.areas)
        if remedy.action in ("warm", "run") or remedy.restart != "none" and is_split:
            continue
        if remedy.restart == "none" and verdicts:
            judge.stop_all()
            before = copied(judge, one)
            remedy = next((key for key in before.promises if str(key) == str(remedy)), None)
        if remedy:
            verdicts.append(judged(judge, one, before, remedy))
    judge.stop_all()
    before = copied(judge, one)
    nr = missed(before, judge)
    promised = sum(promise.gain for key, promise in before.promises.items() if key.action == "collapse")
    judge.stop_all()
    return verdicts, max(0, nr - promised)


def table(verdicts, misses):
    """Rows by kind of memory and by start: promises, wrong ones, and the largest difference."""
    lines = ["| | promises | wrong | worst MiB off | missed by collapse |", "|---|---|---|---|---|"]
    groups = defaultdict(list)
    for one in verdicts:
        for name in {*one.kinds, f"start: {one.start}", "all"}:
            groups[name].append(one)
    lost = defaultdict(list)
    for one, nr in misses:
        for name in {*(kind for kind, *_ in one.areas), f"start: {one.start}", "all"}:
            lost[name].append(nr)
    for name in sorted(groups.keys() | lost.keys(), key=lambda name: (name == "all", name.startswith("start"), name)):
        of = groups[name]
        nr_wrong = sum(bool(one.wrong) for one in of)
        worst = max((one.off() for one in of if one.wrong), default=0) / M
        text = f"{len(lost[name])}, at most {max(lost[name]) / M:.0f} MiB" if lost[name] else "-"
        lines.append(f"| {name} | {len(of)} | {nr_wrong} | {worst:.1f} | {text} |")
    return "\n".join(lines)


def show(one, verdict):
    said = f"gain {verdict.said_gain / M:.1f} -> {verdict.gain / M:.1f}, memory {verdict.said_extra / M:+.1f} -> {verdict.extra / M:+.1f} MiB"
    if verdict.wrong:
        print(f"NO  {one}\n    {verdict.remedy}\n    {said}: {', '.join(verdict.wrong)}", flush=True)


def run(options, judge):
    """Judges the cases: verdicts, missed gains, and cases that were left out."""
    verdicts, misses, left_out = [], [], []
    numbers = [options.case] if options.case is not None else range(options.first, options.first + options.random)
    end = time.monotonic() + options.seconds
    done = 0
    for number in numbers:
        if time.monotonic() > end:
            break
        one = case(options.seed, number)
        done += 1
        lacking = [judge.missing[kind] for kind, *_ in one.areas if kind in judge.missing]
        try:
            if lacking:
                raise NotTried(lacking[0])
            found, nr_missed = tried(judge, one)
        except (NotTried, RuntimeError, OSError) as error:
            left_out.append(str(one))
            print(f"--  {one}: not tried: {error}", flush=True)
            continue
        finally:
            judge.stop_all()
        for verdict in found:
            show(one, verdict)
            if options.case is not None and not verdict.wrong:
                print(f"ok  {verdict}")
        verdicts += found
        if nr_missed > SLACK_BYTES:
            misses.append((one, nr_missed))
            print(f"?   {one}: collapse gains {nr_missed / M:.0f} MiB that were not promised", flush=True)
    return verdicts, misses, left_out, done


def in_own_mounts():
    """Restarts this script in a mount namespace that ends with it."""
    if os.environ.get("PROMISES_MOUNTS") != "own":
        os.environ["PROMISES_MOUNTS"] = "own"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--folio", type=Path, default=ROOT / "target/release/folio")
    arguments.add_argument("--random", type=int, default=12, metavar="N", help="how many processes [12]")
    arguments.add_argument("--seed", type=int, default=1, help="which ones [1]")
    arguments.add_argument("--first", type=int, default=0, metavar="K", help="start with number K [0]")
    arguments.add_argument("--case", type=int, metavar="K", help="only number K, with all measurements")
    arguments.add_argument("--seconds", type=float, default=float("inf"), help="start none after this time")
    arguments.add_argument("--json", type=Path, help="also write the verdicts to this file")
    options = arguments.parse_args()
    if os.geteuid() != 0 or not Path(THP).is_dir() or not shutil.which("gcc") or os.sysconf("SC_PAGESIZE") != 4096:
        print("promises.py: skipped: it needs root, gcc, transparent huge pages, and pages of 4K")
        return 0
    in_own_mounts()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folio = options.folio.resolve()
    os.environ["PATH"] = f"{folio.parent}:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="promises-") as name:
        judge = None
        try:
            judge = Judge(folio, Path(name))
            verdicts, misses, left_out, done = run(options, judge)
        finally:
            if judge:
                judge.close()
            for place in Path(name).glob("tmpfs-*"):
                subprocess.run(["umount", "--lazy", place], capture_output=True)
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in verdicts], indent=1) + "\n")
    print(table(verdicts, misses))
    nr_wrong = sum(bool(one.wrong) for one in verdicts)
    print(f"seed {options.seed}, {done} processes from {options.first} on: {len(verdicts)} promises, {nr_wrong} broken; "
          f"{len(misses)} processes could gain more; {len(left_out)} not tried")
    for reason in judge.missing.values():
        print(f"left out: {reason}")
    return 1 if nr_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
