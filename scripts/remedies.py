#!/usr/bin/env python3
"""Do the remedies of `folio maps` gain what it promises?

Starts real programs under several settings, gets remedies from `folio maps PID --json`, applies
each one to a fresh copy of the same situation, and compares gain and memory with the promise. A
remedy without a restart is applied to the inspected copy; any other one between two starts.
Programs that are not installed are named and skipped. REMEDIES_REDIS names a redis-server with its
own jemalloc, because Debian's has none; REMEDIES_NUMPY a Python with numpy and pandas. Needs root;
every setting is restored, however this ends.

A gain, or memory, is wrong if it is off by more than a tenth and more than 2 MiB. Two starts of a
program without any remedy differ too: a new start may be off by as much as the scene's starts
differ (printed as `starts differ by`). A wrong remedy is repeated on two more copies, and counts as
wrong if most of them are.

Exit status: 0 every remedy keeps its promise (or nothing could be tested), 1 some does not.
"""

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench import ROOT
from promised.kept import is_off
from promised.measure import family
from promised.room import Fragmented, make_room
from scenes import M, nr_blocks, scenes

THP = Path("/sys/kernel/mm/transparent_hugepage")
SETTINGS = ["enabled", "shmem_enabled", "hugepages-64kB/enabled", "hugepages-64kB/shmem_enabled", "/proc/sys/vm/nr_hugepages"]
# Attempts for a remedy with an unexpected result, including the first.
NR_TRIES = 3
# Minimal starts without a remedy; they measure the normal variation.
NR_PLAIN = 2
# Smaller promises are not tested: for 2M folios, and for smaller ones.
LEAST, LEAST_SMALL = 4 * M, M
READY_SECONDS = 60
# Waits for this process to end, remounts /dev/shm as before, runs `undo`, and restores each file's
# old value.
KEEPER = """trap '' INT TERM HUP; cat >/dev/null; [ -z "$1" ] || mount -o "remount,huge=$1" /dev/shm; eval "$2"; shift 2
while [ $# -gt 0 ]; do printf %s "$2" >"$1"; shift 2; done"""


def keeper(folder, values, huge="", undo=":"):
    """Starts a process that restores the files of `folder`, and the `huge` option of /dev/shm, when
    its input ends.
    """
    words = [str(word) for name, value in values.items() for word in (folder / name, value)]
    return subprocess.Popen(["sh", "-c", KEEPER, "keeper", huge, undo, *words], stdin=subprocess.PIPE,
                            start_new_session=True)


def huge_of_shm():
    """The `huge` option of the mount at /dev/shm; nothing without one."""
    found = ""
    for _, place, kind, options, *_ in map(str.split, Path("/proc/mounts").read_text().splitlines()):
        if (place, kind) == ("/dev/shm", "tmpfs"):
            named = (option.removeprefix("huge=") for option in options.split(",") if option.startswith("huge="))
            found = next(named, "never")
    return found


class Machine:
    """The settings, and the programs that were started."""

    def __init__(self, folio, names=SETTINGS, undo=":", nr_free=0):
        self.folio = folio
        self.nr_free = nr_free
        self.old = {name: chosen(THP / name) for name in names if (THP / name).exists()}
        self.others = {"hugepages-2048kB/enabled": "inherit", "hugepages-2048kB/shmem_enabled": "inherit"}
        self.state = tempfile.TemporaryDirectory()
        self.started = []
        self.huge = huge_of_shm()
        self.keeper = keeper(THP, self.old, self.huge, undo)

    def set(self, settings):
        for name, value in (self.old | settings).items():
            (THP / name).write_text(value)

    def shell(self, command):
        """A command of a remedy, as root and with this build."""
        text = command.replace("sudo ", "")
        environment = dict(os.environ, XDG_STATE_HOME=self.state.name)
        done = subprocess.run(["sh", "-c", text], env=environment, capture_output=True, text=True)
        return done.returncode, (done.stdout + done.stderr).strip()

    def wait(self):
        """Waits until no other program holds a setting that we must not change."""
        end = time.monotonic() + 10 * READY_SECONDS
        while any(chosen(THP / name) != value for name, value in self.others.items()):
            if time.monotonic() > end:
                raise RuntimeError(f"another program keeps changing {', '.join(self.others)}")
            time.sleep(0.5)

    def is_undisturbed(self, scene):
        settings = self.old | scene.settings | self.others
        return huge_of_shm() == self.huge and all(chosen(THP / name) == value for name, value in settings.items())

    def start(self, scene, start="", is_first=True):
        if scene.before and is_first:
            scene.before()
        if scene.beside and is_first:
            self.start(scene.beside)
        words, environment = scene.words(start)
        make_room(self.nr_free)
        process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   start_new_session=True)
        self.started.append(process)
        end = time.monotonic() + READY_SECONDS
        os.set_blocking(process.stdout.fileno(), False)
        seen = b""
        is_ready = False
        while not is_ready:
            seen += process.stdout.read() or b""
            if time.monotonic() > end or process.poll() is not None:
                raise RuntimeError(f"{scene.name} does not start: {seen[-300:]!r}")
            time.sleep(0.1)
            if scene.fill:
                is_ready = subprocess.run(scene.fill, stdout=subprocess.DEVNULL,
                                          stderr=subprocess.DEVNULL, check=False).returncode == 0
            else:
                is_ready = scene.ready in seen
        time.sleep(0.5)
        return process

    def stop(self, process):
        # Let servers remove their shared memory first.
        for one in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, one)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
                break
        process.stdout.close()
        self.started.remove(process)

    def stop_all(self):
        for process in list(self.started):
            self.stop(process)

    def close(self):
        self.stop_all()
        self.keeper.stdin.close()
        self.keeper.wait()
        self.state.cleanup()


def chosen(path):
    text = path.read_text().strip()
    return text.split("[")[1].split("]")[0] if "[" in text else text


def child(pid, name):
    """The process itself, or the one started by a launcher."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    children = [int(word) for word in path.read_text().split()]
    return children[0] if name and children else pid


def group(mapping, pmd):
    """Classifies private memory by the effect of a smaller size. A mapping below two blocks of 2M
    holds one or none, depending on its address at each start. Heap and stack grow in steps and
    get no promise.
    """
    if mapping["path"] in ("[heap]", "[stack]"):
        return "grows"
    return "short" if mapping["end"] - mapping["start"] < 2 * pmd else "long"


@dataclass
class Promise:
    """The sums of a remedy over a process's mappings. A setting affects all memory of a kind,
    including memory with a better remedy, which `most` counts too.
    """
    gain: int = 0
    extra: int = 0
    most_gain: int = 0
    most_extra: int = 0


@dataclass
class Look:
    """folio's view of a process: large bytes by kind of memory, file and size, and promises by
    remedy.
    """
    large: dict
    promised: dict
    memory: int = 0

    def sum_of(self, key, is_launched=False):
        """Bytes in the folios that a remedy is about."""
        *_, kind, target, path = key
        # Libraries load anywhere, so another one can fit by chance. hugetlb pages count as well.
        kinds, paths = (("file", "shmem"), "") if is_launched else ((kind, "hugetlb"), path)
        return sum(sizes[target] for of, sizes in self.large.items() if of[0] in kinds and paths in ("", of[1]))


def kind_of(mapping):
    """The kind of most of a mapping's memory."""
    kinds = {cell["kind"]: cell["mapped_bytes"] for cell in mapping["folios"]}
    kind = max(kinds, key=kinds.get) if kinds else ""
    return "file" if kind in ("text", "file") else kind


def promises_of(mappings, pmd):
    """The promises by remedy, kind of memory, size and file: gains of that kind, and memory of all
    kinds, since a process's memory is measured as a whole.
    """
    promised, extras, best = {}, defaultdict(int), defaultdict(lambda: [0, 0])
    for mapping in mappings:
        target, kind = mapping["target"], kind_of(mapping)
        remedies = [one for one in (target or {}).get("remedies", []) if one["action"] != "nothing"]
        for remedy in remedies:
            key = tuple(remedy[name] for name in ("action", "command", "start", "restart", "undo"))
            size = remedy["folio_bytes"]
            path = mapping["path"] if kind == "file" else group(mapping, pmd) if size < pmd else ""
            promise = promised.setdefault((*key, kind, size, path), Promise())
            promise.gain += remedy["gain_bytes"]
            extras[key] += remedy["extra_bytes"]
        for size in {one["folio_bytes"] for one in remedies}:
            for i, name in enumerate(("gain_bytes", "extra_bytes")):
                best[kind, size][i] += max(one[name] for one in remedies if one["folio_bytes"] == size)
    for key, promise in promised.items():
        promise.extra = extras[key[:5]]
        most = best[key[5], key[6]] if key[0] in ("tune", "remount") else (0, 0)
        promise.most_gain, promise.most_extra = max(promise.gain, most[0]), max(promise.extra, most[1])
    return promised


def look(folio, pid):
    """Promises and large bytes of a process, and its memory including all child processes."""
    used = memory(pid)
    done = subprocess.run([folio, "maps", str(pid), "--json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    if not found["processes"]:
        raise Disturbed(f"process {pid} has ended")
    pmd, contpte = found["pmd_bytes"], found["contpte_bytes"]
    mappings = found["processes"][0]["mappings"]
    large = defaultdict(lambda: {pmd: 0, contpte: 0})
    for mapping in mappings:
        for cell in mapping["folios"]:
            kind = "file" if cell["kind"] in ("text", "file") else cell["kind"]
            of = large[kind, mapping["path"] if kind == "file" else group(mapping, pmd)]
            of[pmd] += cell["pmd_bytes"]
            of[contpte] += cell["contpte_bytes"]
    return Look(dict(large), promises_of(mappings, pmd), used)


def memory(pid):
    """The program's memory in bytes, including swapped pages. Pages shared by its processes count
    once. Files do not count, because they are in the page cache anyway.
    """
    total, shared = 0, 0
    for one in family(pid):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            kib = {line.split()[0]: int(line.split()[1]) for line in lines if line.endswith(" kB")}
            total += sum(kib.get(name, 0) for name in ("Pss_Anon:", "Pss_Shmem:", "SwapPss:", "Private_Hugetlb:"))
            # Pss excludes hugetlb pages. Assume that the processes share the same ones.
            shared = max(shared, kib.get("Shared_Hugetlb:", 0))
    return total + shared << 10


def commands(undo):
    """Extracts the commands from an undo such as `start it as before; folio tune --undo`."""
    programs = {"folio", "mount", "nsenter", "sysctl"}
    return [one for one in undo.split("; ") if Path(one.removeprefix("sudo ").split()[0]).name in programs]


@dataclass
class Outcome:
    """A remedy's promise and its effect on one copy, in bytes."""
    said: Promise
    gain: int = 0
    more: int = 0
    error: str = ""

    def wrongs(self, key, spread, is_least=False):
        """The parts of the promise that were not kept. Starts without a remedy differ by `spread`."""
        said, gain, more = self.said, 0, 0
        most_gain, most_extra = said.most_gain, said.most_extra
        if key[3] != "none":
            gain, more = spread.gains.get(key, 0), spread.memory
            if is_least:
                most_gain = most_extra = float("inf")
        found = ["gain"] if is_off(self.gain, said.gain, most_gain, gain) else []
        found += ["memory"] if is_off(self.more, said.extra, most_extra, more) else []
        return [self.error] if self.error else found


@dataclass
class Spread:
    """The variation between starts of a program without a remedy, in bytes."""
    looks: list = field(default_factory=list)

    @property
    def memory(self):
        return span(one.memory for one in self.looks)

    @property
    def gains(self):
        """By remedy, the variation of the promises, and the memory that is already large."""
        keys = {key for one in self.looks for key in one.promised}
        return {key: max(span(one.promised[key].gain for one in self.looks if key in one.promised),
                         span(one.sum_of(key) for one in self.looks)) for key in keys}


def span(values):
    values = list(values)
    return max(values) - min(values) if values else 0


class NotTried(RuntimeError):
    """A remedy that this script does not carry out."""


class Disturbed(RuntimeError):
    """Settings changed, or a program ended: an undo failed, or another program interfered."""


def tried(machine, scene, key, folder, spread, nr_left=2):
    """Like `once`, but repeated if another program changed the settings meanwhile."""
    machine.wait()
    try:
        return once(machine, scene, key, folder, spread)
    except Disturbed:
        if not nr_left:
            raise
        return tried(machine, scene, key, folder, spread, nr_left - 1)
    finally:
        machine.stop_all()


def plain(machine, scene, spread):
    """Starts the program without a remedy, and inspects it."""
    machine.set(scene.settings)
    process = machine.start(scene)
    before = look(machine.folio, process.pid)
    if not machine.is_undisturbed(scene):
        raise Disturbed(scene.name)
    spread.looks.append(before)
    return process, before


def once(machine, scene, key, folder, spread):
    """One remedy's gain and memory on a fresh copy, and the promise for that copy."""
    action, command, start, restart, undo, kind, target, path = key
    if "cp -a" in command and str(folder) not in command:
        raise NotTried("it replaces a file of the system")
    process, before = plain(machine, scene, spread)
    try:
        if restart == "none":
            key = next(one for one in before.promised if one[0] == action and one[5:] == (kind, target, path))
            status, said = machine.shell(key[1])
        else:
            if restart == "around":
                machine.stop(process)
            status, said = machine.shell(command) if command else (0, "")
            if restart == "after":
                machine.stop(process)
            process = machine.start(scene, start, is_first=False)
        is_launched = start.startswith("folio run")
        pid = process.pid if scene.wrapper else child(process.pid, is_launched)
        after = look(machine.folio, pid)
    finally:
        for one in commands(undo):
            machine.shell(one)
    if not machine.is_undisturbed(scene):
        raise Disturbed(f"{scene.name}: the settings were not restored by: {undo}")
    gain = after.sum_of(key, is_launched) - before.sum_of(key, is_launched)
    error = "" if status in (0, 1) else said
    return Outcome(before.promised.get(key, Promise()), gain, after.memory - before.memory, error)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--folio", type=Path, default=ROOT / "target/release/folio")
    arguments.add_argument("--only", default="", help="only scenes with this name prefix")
    arguments.add_argument("--size", type=int, default=64, help="MiB of each program's memory [64]")
    arguments.add_argument("--copies", type=int, default=1, help="copies to try each remedy on [1]")
    arguments.add_argument("--json", type=Path, help="also write the rows to this file")
    arguments.add_argument("--table", action="store_true", help="also print the results as a table for docs/reference/maps.md")
    options = arguments.parse_args()
    if os.geteuid() != 0 or not THP.is_dir():
        print("remedies.py: skipped: it changes settings, which needs root and transparent huge pages")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folio = options.folio.resolve()
    # Remedies call it by name, as users do.
    os.environ["PATH"] = f"{folio.parent}:{os.environ['PATH']}"
    machine = Machine(folio, nr_free=nr_blocks(options.size))
    rows, nr_bad = [], 0
    try:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
            folder = Path(name)
            folder.chmod(0o755)
            found, missing = scenes(machine.folio, folder, options.size, options.only)
            for scene in found:
                nr_bad += show(machine, scene, rows, folder, options.copies)
            for one in missing:
                print(f"left out, not installed: {one}")
    finally:
        machine.close()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    if options.table:
        print(table(rows))
    nr = sum(bool(row["outcomes"]) for row in rows)
    print(f"{nr} remedies of {len({row['scene'] for row in rows})} programs tried, {nr_bad} not as said")
    return 1 if nr_bad else 0


def in_mib(values, form):
    """One value, or the smallest and the largest."""
    shown = [format(value / M, form) for value in (min(values), max(values))]
    return shown[0] if shown[0] == shown[1] else " to ".join(shown)


def table(rows):
    lines = ["| program | remedy | size | said MiB | gained MiB | memory said MiB | memory taken MiB | n | starts differ by MiB: gain, memory | |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        if not row["outcomes"]:
            lines.append(f"| {row['scene']} | {row['error'] or 'nothing to gain, as said'} | | | | | | | | |")
            continue
        size = f"{row['size'] // M}M" if row["size"] >= M else f"{row['size'] >> 10}K"
        remedy = " ".join("PID" if word.isdigit() else word for word in row["remedy"].split())
        remedy = remedy.replace("sudo ", "").removesuffix(" ..")
        remedy = re.sub(r"/var/tmp/[^\s)]*?(?=\.X{6}|[\s)]|$)", "FILE", remedy)
        nr, nr_kept = len(row["outcomes"]), row["nr_kept"]
        notes = ["judged by the minimum"] if row["is_least"] else []
        notes += [f"{nr_kept} of {nr} as said"] if nr_kept < nr else []
        note = row["error"] or ", ".join(notes)
        said, gain, extra, more = values_of(row["outcomes"])
        lines.append(f"| {row['scene']} | `{remedy}` | {size} | {in_mib(said, '.0f')} | {in_mib(gain, '.0f')} | "
                     f"{in_mib(extra, '+.0f')} | {in_mib(more, '+.0f')} | {nr} | {row['spread_of_gain'] / M:.0f}, {row['spread'] / M:.1f} | {note} |")
    return "\n".join(lines)


def values_of(outcomes):
    """Gains promised and measured, and memory promised and taken."""
    pairs = [(one["said"]["gain"], one["gain"], one["said"]["extra"], one["more"]) for one in outcomes]
    return list(zip(*pairs))


def judged(machine, scene, key, folder, spread, nr_copies):
    """The outcomes of a remedy on some copies, on more if it is wrong; and why it stopped."""
    outcomes = []
    while len(outcomes) < nr_copies or len(outcomes) < NR_TRIES and any(one.wrongs(key, spread, scene.is_least) for one in outcomes):
        try:
            found = tried(machine, scene, key, folder, spread)
        except NotTried as reason:
            return outcomes, f"not tried: {reason}"
        except Fragmented as reason:
            return outcomes, f"not judged: {reason}"
        except (RuntimeError, ValueError, subprocess.CalledProcessError, StopIteration) as failure:
            found = Outcome(Promise(), error=str(failure) or "another remedy for the copy")
        if not found.error and found.said.gain < least_of(key):
            return outcomes, "not judged: too little on this copy"
        outcomes.append(found)
    return outcomes, ""


def least_of(key):
    return LEAST if key[6] >= 2 * M else LEAST_SMALL


def show(machine, scene, rows, folder, nr_copies):
    """Tries all remedies of one scene, and counts the wrong ones."""
    machine.wait()
    spread, nr_bad = Spread(), 0
    for _ in range(NR_PLAIN):
        plain(machine, scene, spread)
        machine.stop_all()
    promised = spread.looks[0].promised
    for key in sorted(promised, key=lambda key: -promised[key].gain):
        if promised[key].gain >= least_of(key):
            row = row_of(scene, key, *judged(machine, scene, key, folder, spread, nr_copies), spread)
            nr_bad += row["is_bad"]
            rows.append(row)
            print(line_of(row), flush=True)
    if not any(row["scene"] == scene.name for row in rows):
        print(f"    {scene.name:36} no gain was promised", flush=True)
        rows.append({"scene": scene.name, "remedy": "", "outcomes": [], "error": "", "is_bad": False})
    return nr_bad


def row_of(scene, key, outcomes, left_off, spread):
    wrongs = [one.wrongs(key, spread, scene.is_least) for one in outcomes]
    nr_kept = sum(not one for one in wrongs)
    errors = [one.error for one in outcomes if one.error]
    return {"scene": scene.name, "remedy": " ".join(part for part in key[1:3] if part) or key[0], "size": key[6],
            "outcomes": [asdict(one) for one in outcomes], "nr_kept": nr_kept, "spread": spread.memory if key[3] != "none" else 0,
            "spread_of_gain": spread.gains.get(key, 0) if key[3] != "none" else 0,
            "is_least": scene.is_least and key[3] != "none", "is_bad": 2 * nr_kept < len(outcomes), "wrongs": wrongs, "error": errors[0] if errors else left_off}


def line_of(row):
    """A row for the reader."""
    how = f"{row['scene']:30} {row['remedy']}"
    if not row["outcomes"]:
        return f"--  {how}: {row['error']}"
    said, gain, extra, more = (in_mib(values, ".1f") for values in values_of(row["outcomes"]))
    starts = f"; starts differ by {row['spread'] / M:.1f}, their gains by {row['spread_of_gain'] / M:.1f}"
    return (f"{'NO ' if row['is_bad'] else 'ok '} {how}\n      in {row['size'] >> 10}K: said {said} gained {gain}, memory "
            f"said {extra} took {more} MiB; {row['nr_kept']} of {len(row['outcomes'])} as said{starts}"
            f"{'; ' + row['error'] if row['error'] else ''}")


if __name__ == "__main__":
    sys.exit(main())
