#!/usr/bin/env python3
"""Does what `folio maps` recommends gain what it says?

Starts real programs under several settings, asks `folio maps PID --json` for remedies, applies each
one to a fresh copy of the same situation, and compares gain and memory with what was said. A remedy without
a restart is applied to the copy that was asked; any other one between two starts. Programs that are
not installed are named and left out. REMEDIES_REDIS names a redis-server with its own jemalloc:
Debian's has none. Needs root; every setting is put back, however this ends. A gain that is not as said is
measured a second time: which text a program touches, and how large a heap gets, is partly chance.

Exit status: 0 every gain is as said (or nothing could be tried), 1 some is not.
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
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import ROOT
from scenes import M, scenes

THP = Path("/sys/kernel/mm/transparent_hugepage")
SETTINGS = ["enabled", "shmem_enabled", "hugepages-64kB/enabled", "hugepages-64kB/shmem_enabled"]
# A gain may differ by a tenth, or by two blocks: heaps do not have the same size twice.
TOLERANCE = 0.1
# And memory by so many bytes: of a process that runs on, and between two starts.
MEMORY_SLACK, RESTART_SLACK = 2 * M, 4 * M
# Smaller promises are not tried: of 2M folios, and of smaller ones.
LEAST, LEAST_SMALL = 4 * M, M
READY_SECONDS = 60
# Waits for this process to end, mounts /dev/shm as it was, runs `undo`, and writes the old value of each file.
KEEPER = """trap '' INT TERM HUP; cat >/dev/null; [ -z "$1" ] || mount -o "remount,huge=$1" /dev/shm; eval "$2"; shift 2
while [ $# -gt 0 ]; do printf %s "$2" >"$1"; shift 2; done"""


def keeper(folder, values, huge="", undo=":"):
    """A process that gives files of `folder` their values, and /dev/shm its `huge`, when its input ends."""
    words = [str(word) for name, value in values.items() for word in (folder / name, value)]
    return subprocess.Popen(["sh", "-c", KEEPER, "keeper", huge, undo, *words], stdin=subprocess.PIPE,
                            start_new_session=True)


def huge_of_shm():
    """Which folios the mount of /dev/shm takes; nothing where there is none."""
    found = ""
    for _, place, kind, options, *_ in map(str.split, Path("/proc/mounts").read_text().splitlines()):
        if (place, kind) == ("/dev/shm", "tmpfs"):
            named = (option.removeprefix("huge=") for option in options.split(",") if option.startswith("huge="))
            found = next(named, "never")
    return found


class Machine:
    """The settings, and the programs that were started."""

    def __init__(self, folio, names=SETTINGS, undo=":"):
        self.folio = folio
        self.old = {name: chosen(THP / name) for name in names}
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
        """Until no other program holds a setting that is not ours to change."""
        end = time.monotonic() + 10 * READY_SECONDS
        while any(chosen(THP / name) != value for name, value in self.others.items()):
            if time.monotonic() > end:
                raise RuntimeError(f"somebody keeps changing {', '.join(self.others)}")
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
        # Servers remove their shared memory if they may.
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
    """The process itself, or the one that a launcher started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    children = [int(word) for word in path.read_text().split()]
    return children[0] if name and children else pid


def group(mapping, pmd):
    """Private memory by what a smaller size can do for it: a mapping below two blocks of 2M holds one or none,
    which its address decides anew at each start; heap and stack grow in steps and are promised nothing."""
    if mapping["path"] in ("[heap]", "[stack]"):
        return "grows"
    return "short" if mapping["end"] - mapping["start"] < 2 * pmd else "long"


def look(folio, pid):
    """Promises by remedy, and large bytes by kind of memory and file, and by size."""
    done = subprocess.run([folio, "maps", str(pid), "--json"], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    if not found["processes"]:
        raise Disturbed(f"process {pid} has ended")
    pmd = found["pmd_bytes"]
    large, promised = {}, {}
    for mapping in found["processes"][0]["mappings"]:
        for cell in mapping["folios"]:
            kind = "file" if cell["kind"] in ("text", "file") else cell["kind"]
            path = mapping["path"] if kind == "file" else group(mapping, pmd)
            of = large.setdefault((kind, path), {pmd: 0, found["contpte_bytes"]: 0})
            of[pmd] += cell["pmd_bytes"]
            of[found["contpte_bytes"]] += cell["contpte_bytes"]
        target = mapping["target"]
        kinds = {cell["kind"]: cell["mapped_bytes"] for cell in mapping["folios"]}
        kind = max(kinds, key=kinds.get) if kinds else ""
        kind = "file" if kind in ("text", "file") else kind
        for remedy in (target or {}).get("remedies", []):
            key = tuple(remedy[name] for name in ("action", "command", "start", "restart", "undo"))
            key += (kind, target["target_bytes"], mapping["path"] if kind == "file" else "")
            if not key[-1] and target["target_bytes"] < pmd:
                key = (*key[:-1], group(mapping, pmd))
            gain, extra = promised.get(key, (0, 0))
            promised[key] = (gain + remedy["gain_bytes"], extra + remedy["extra_bytes"])
    return large, promised


def members(pid):
    """The process and everything that it started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    children = path.read_text().split() if path.exists() else []
    return [pid] + [one for child in children for one in members(int(child))]


def memory(pid):
    """The program's memory in bytes, including swapped pages; pages that its processes share count once."""
    total = 0
    for one in members(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                if line.startswith(("Pss:", "SwapPss:")):
                    total += int(line.split()[1]) << 10
    return total


def commands(undo):
    """What can be typed of an undo such as `start it as before; folio tune --undo`."""
    programs = {"folio", "mount"}
    return [one for one in undo.split("; ") if Path(one.removeprefix("sudo ").split()[0]).name in programs]


@dataclass
class Outcome:
    """A remedy's promise and its effect, in bytes."""
    said: int
    gain: int
    said_more: int = 0
    more: int = 0
    error: str = ""

    def is_as_said(self, key):
        # A setting is for all memory: of that with a better remedy too, which is not in `said`.
        most = float("inf") if key[0] == "tune" else self.said
        slack = max(TOLERANCE * self.said, min(2 * key[6], self.said / 2))
        return not self.error and self.said - slack <= self.gain <= most + slack and self.is_memory_as_said(key)

    def is_memory_as_said(self, key):
        """`folio collapse` says how much memory it takes, a new start how much at most: its heap varies."""
        slack = max(TOLERANCE * self.said_more, MEMORY_SLACK if key[3] == "none" else RESTART_SLACK)
        return self.more <= self.said_more + slack and (key[3] != "none" or self.more >= self.said_more - slack)


class Disturbed(RuntimeError):
    """Settings changed, or a program ended: an undo that did not work, or somebody else."""


def tried(machine, scene, key, folder, nr_left=2):
    """As `once`, again if something else on the machine changed the settings meanwhile."""
    machine.wait()
    try:
        return once(machine, scene, key, folder)
    except Disturbed:
        if not nr_left:
            raise
        return tried(machine, scene, key, folder, nr_left - 1)
    finally:
        machine.stop_all()


def once(machine, scene, key, folder):
    """One remedy's gain and memory on a fresh copy, and the promise for that copy."""
    action, command, start, restart, undo, kind, target, path = key
    if "cp -a" in command and str(folder) not in command:
        raise RuntimeError("not tried: it replaces a file of the system")
    if start.startswith("folio run") and scene.command[0] == "setpriv":
        raise RuntimeError("not tried: folio run would move the text of setpriv")
    machine.set(scene.settings)
    process = machine.start(scene)
    before, promised = look(machine.folio, process.pid)
    memory_before = memory(process.pid)
    if not machine.is_undisturbed(scene):
        raise Disturbed(scene.name)
    try:
        if restart == "none":
            key = next(one for one in promised if one[0] == action and one[5:] == (kind, target, path))
            status, said = machine.shell(key[1])
        else:
            if restart == "around":
                machine.stop(process)
            status, said = machine.shell(command) if command else (0, "")
            if restart == "after":
                machine.stop(process)
            process = machine.start(scene, start, is_first=False)
        is_launched = start.startswith("folio run")
        after, _ = look(machine.folio, child(process.pid, is_launched))
        more = memory(process.pid) - memory_before
    finally:
        for one in commands(undo):
            machine.shell(one)
    if not machine.is_undisturbed(scene):
        raise Disturbed(f"{scene.name}: the settings are not what they were after: {undo}")
    # Of libraries, which are loaded anywhere, another one may fit by chance.
    def sum_of(large):
        kinds, paths = (("file", "shmem"), "") if is_launched else ((kind,), path)
        return sum(sizes[target] for of, sizes in large.items() if of[0] in kinds and paths in ("", of[1]))
    gain = sum_of(after) - sum_of(before)
    said_gain, said_extra = promised.get(key, (0, 0))
    return Outcome(said_gain, gain, said_extra, more, "" if status in (0, 1) else said)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--folio", type=Path, default=ROOT / "target/release/folio")
    arguments.add_argument("--only", default="", help="scenes whose name begins so")
    arguments.add_argument("--size", type=int, default=64, help="MiB of each program's memory")
    arguments.add_argument("--json", type=Path, help="also write the rows there")
    arguments.add_argument("--table", action="store_true", help="also print the table of docs/guide/maps.md")
    options = arguments.parse_args()
    if os.geteuid() != 0 or not THP.is_dir():
        print("remedies.py: skipped: it changes settings, which needs root and transparent huge pages")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folio = options.folio.resolve()
    # Remedies name it as people type it.
    os.environ["PATH"] = f"{folio.parent}:{os.environ['PATH']}"
    machine = Machine(folio)
    rows, nr_bad = [], 0
    try:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
            folder = Path(name)
            folder.chmod(0o755)
            all_scenes, missing = scenes(machine.folio, folder, options.size)
            for scene in (one for one in all_scenes if one.name.startswith(options.only)):
                nr_bad += show(machine, scene, rows, folder)
            for one in missing:
                print(f"left out, not installed: {one}")
    finally:
        machine.close()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    if options.table:
        print(table(rows))
    nr = sum(row["said"] is not None for row in rows)
    print(f"{nr} remedies of {len({row['scene'] for row in rows})} programs tried, {nr_bad} not as said")
    return 1 if nr_bad else 0


def table(rows):
    lines = ["| program | remedy | size | said MiB | gained MiB | memory said MiB | memory taken MiB | |",
             "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        if row["said"] is None:
            lines.append(f"| {row['scene']} | nothing to gain, as said | | | | | | |")
            continue
        size = f"{row['size'] // M}M" if row["size"] >= M else f"{row['size'] >> 10}K"
        remedy = " ".join("PID" if word.isdigit() else word for word in row["remedy"].split())
        remedy = remedy.replace("sudo ", "").removesuffix(" ..")
        remedy = re.sub(r"/var/tmp/[^\s)]*?(?=\.X{6}|[\s)]|$)", "FILE", remedy)
        note = "" if row["good"] and row["tries"] == 1 else "second try" if row["good"] else row["error"] or "not as said"
        lines.append(f"| {row['scene']} | `{remedy}` | {size} | {row['said'] / M:.0f} | {row['gain'] / M:.0f} | "
                     f"{row['said_more'] / M:+.0f} | {row['more'] / M:+.0f} | {note} |")
    return "\n".join(lines)


def show(machine, scene, rows, folder):
    """Tries all remedies of one scene; how many did not gain what they said."""
    machine.wait()
    machine.set(scene.settings)
    process = machine.start(scene)
    _, promised = look(machine.folio, process.pid)
    machine.stop_all()
    nr_bad = 0
    for key, (said, _) in sorted(promised.items(), key=lambda one: -one[1][0]):
        least = LEAST if key[6] >= 2 * M else LEAST_SMALL
        if key[0] == "nothing" or said < least:
            continue
        for nr_tries in (1, 2):
            try:
                found = tried(machine, scene, key, folder)
            except (RuntimeError, subprocess.CalledProcessError, StopIteration) as failure:
                found = Outcome(said, 0, error=str(failure) or "another remedy for the copy")
            is_good = found.is_as_said(key)
            if not found.error and found.said < least:
                found.error = "not judged: too little on this copy"
            if is_good or found.error.startswith("not "):
                break
        is_good = is_good and not found.error
        is_bad = not is_good and not found.error.startswith("not ")
        nr_bad += is_bad
        how = " ".join(part for part in key[1:3] if part) or key[0]
        rows.append({"scene": scene.name, "remedy": how, "size": key[6], "good": is_good, "tries": nr_tries,
                     **asdict(found)})
        print(f"{'NO ' if is_bad else 'ok ' if is_good else '-- '} {scene.name:36} said {found.said / M:7.1f} gained "
              f"{found.gain / M:7.1f} MiB in {key[6] >> 10}K, memory said {found.said_more / M:+7.1f} took {found.more / M:+7.1f}"
              f"  {how}{' (second try)' if nr_tries > 1 else ''}{'  ' + found.error if found.error else ''}", flush=True)
    if not any(row["scene"] == scene.name for row in rows):
        print(f"    {scene.name:36} nothing to gain was said", flush=True)
        rows.append({"scene": scene.name, "remedy": "", "good": True, **asdict(Outcome(None, 0))})
    return nr_bad


if __name__ == "__main__":
    sys.exit(main())
