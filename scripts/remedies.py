#!/usr/bin/env python3
"""Does what `folio maps` recommends gain what it says?

Starts real programs under several settings, asks `folio maps PID --json` for remedies, applies each
one to a fresh copy of the same situation, and compares the gain with what was said. A remedy without
a restart is applied to the copy that was asked; any other one between two starts. Programs that are
not installed are named and left out. REMEDIES_REDIS names a redis-server with its own jemalloc:
Debian's has none. Needs root; every setting is put back at the end. A gain that is not as said is
measured a second time: which text a program touches, and how large a heap gets, is partly chance.

Exit status: 0 every gain is as said (or nothing could be tried), 1 some is not.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import ROOT

THP = Path("/sys/kernel/mm/transparent_hugepage")
SETTINGS = ["enabled", "shmem_enabled", "hugepages-64kB/enabled", "hugepages-64kB/shmem_enabled"]
M = 1 << 20
# A gain may differ by a tenth, or by two blocks: heaps do not have the same size twice.
TOLERANCE = 0.1
# Smaller promises are not tried: of 2M folios, and of smaller ones.
LEAST, LEAST_SMALL = 4 * M, M
READY_SECONDS = 60

PY_MAP = """
import mmap, os, sys, time
kind, n, step = sys.argv[1], int(sys.argv[2]) << 20, int(sys.argv[3])
if kind == "anon":
    m = mmap.mmap(-1, n, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
elif kind == "shared":
    m = mmap.mmap(-1, n)
elif kind == "memfd":
    fd = os.memfd_create("x"); os.ftruncate(fd, n); m = mmap.mmap(fd, n)
elif kind == "tmpfs":
    path = f"/dev/shm/remedies-{os.getpid()}"
    fd = os.open(path, os.O_RDWR | os.O_CREAT); os.unlink(path); os.ftruncate(fd, n); m = mmap.mmap(fd, n)
elif kind == "forbidden":
    m = mmap.mmap(-1, n, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m.madvise(mmap.MADV_NOHUGEPAGE)
elif kind == "file":
    m = mmap.mmap(os.open(sys.argv[4], os.O_RDONLY), 0, mmap.MAP_SHARED, mmap.PROT_READ)
for i in range(0, len(m), step):
    if kind == "file": m[i]
    else: m[i] = 1
print("ready", flush=True); time.sleep(1000)
"""
PY_LISTS = "import time; a = [float(i) for i in range(4_000_000)]; print('ready', flush=True); time.sleep(1000)"
NODE = """const a = []; for (let i = 0; i < 1500000; i++) a.push({ x: i, y: [i] });
const b = Buffer.alloc(64 << 20, 1); console.log('ready'); setInterval(() => a.length + b.length, 100000);"""
JAVA = """public class Fill { static java.util.List<byte[]> kept = new java.util.ArrayList<>();
public static void main(String[] a) throws Exception { int n = Integer.parseInt(a[0]);
for (int i = 0; i < n * 16; i++) { byte[] b = new byte[64 << 10]; b[0] = 1; kept.add(b); }
System.out.println("ready"); System.out.flush(); Thread.sleep(1000000); } }"""
GO = """package main
import ("fmt"; "time")
var kept [][]byte
func main() { for i := 0; i < 2000; i++ { b := make([]byte, 64<<10); for j := 0; j < len(b); j += 4096 { b[j] = 1 }
kept = append(kept, b) }; fmt.Println("ready"); time.Sleep(1000 * time.Second); fmt.Println(len(kept)) }"""
C = """#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <pthread.h>
#include <sys/shm.h>
static void *small(void *n) { for (long i = 0; i < (long)n * 1024; i++) memset(malloc(1000), 1, 1000); return 0; }
int main(int c, char **v) { long n = atol(v[2]);
if (!strcmp(v[1], "small")) small((void *)n);
if (!strcmp(v[1], "large")) for (int i = 0; i < 4; i++) memset(malloc(n << 18), 1, n << 18);
if (!strcmp(v[1], "threads")) { pthread_t t[2]; for (int i = 0; i < 2; i++) pthread_create(t + i, 0, small, (void *)(n / 2));
for (int i = 0; i < 2; i++) pthread_join(t[i], 0); }
if (!strcmp(v[1], "sysv")) { int id = shmget(IPC_PRIVATE, n << 20, 0600); char *p = shmat(id, 0, 0); shmctl(id, IPC_RMID, 0); memset(p, 1, n << 20); }
puts("ready"); fflush(stdout); sleep(1000); return 0; }"""
# Text of 1.25 MiB, all of it called: of a program, or of a library that `-DLIBRARY` makes.
SHORT = r"""#include <stdio.h>
#include <unistd.h>
void all(void);
#ifndef USER
__asm__(".text\n.balign 4096\n.type stubs, @function\nstubs:\n.fill 1310720,1,0xc3\n");
extern char stubs[] __attribute__((visibility("hidden")));
void all(void) { for (long at = 0; at < 1310720; at += 4096) ((void (*)(void))(stubs + at))(); }
#endif
#ifndef LIBRARY
int main(void) { all(); puts("ready"); fflush(stdout); sleep(1000); return 0; }
#endif"""
CXX = """#include <map>
#include <string>
#include <cstdio>
#include <unistd.h>
int main() { std::map<int, std::string> m; for (int i = 0; i < 700000; i++) m[i] = std::string(40, 'x');
puts("ready"); fflush(stdout); sleep(1000); return (int)m.size(); }"""


class Scene:
    """A program in a situation: how it is started, and under which settings."""

    def __init__(self, name, command, settings=None, environment=None, before=None, fill=None, beside=None,
                 ready="ready"):
        self.name, self.command, self.ready = name, [str(word) for word in command], ready.encode()
        # Another program with the same file.
        self.beside = Scene(f"beside {name}", beside) if beside else None
        self.settings, self.environment = settings or {}, environment or {}
        # What happens before the start, and what fills a server.
        self.before, self.fill = before, fill

    def words(self, start):
        """The command and its variables as a remedy wants them started."""
        words, environment = list(self.command), dict(os.environ, **self.environment)
        if start.startswith("folio run"):
            prefix = start.split(" -- ")[0].split()
            return prefix + ["--quiet", "--"] + words, environment
        fields = start.split()
        while fields and "=" in fields[0]:
            key, value = fields.pop(0).split("=", 1)
            environment[key] = value
        options = [field for field in fields[1:] if field != ".."]
        return words[:1] + options + words[1:], environment


class Machine:
    """The settings, and what is put back."""

    def __init__(self, folio):
        self.folio = folio
        self.old = {name: chosen(THP / name) for name in SETTINGS}
        self.others = {"hugepages-2048kB/enabled": "inherit", "hugepages-2048kB/shmem_enabled": "inherit"}
        self.state = tempfile.TemporaryDirectory()
        self.started = []

    def set(self, settings):
        for name, value in (self.old | settings).items():
            (THP / name).write_text(value)

    def shell(self, command):
        """A command of a remedy, as root and with this build."""
        text = command.replace("sudo ", "")
        environment = dict(os.environ, XDG_STATE_HOME=self.state.name)
        environment["PATH"] = f"{self.folio.parent}:{environment['PATH']}"
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
        return all(chosen(THP / name) == value for name, value in settings.items())

    def start(self, scene, start="", is_first=True):
        if scene.before and is_first:
            scene.before()
        if scene.beside and is_first:
            self.start(scene.beside)
        words, environment = scene.words(start)
        environment["PATH"] = f"{self.folio.parent}:{environment['PATH']}"
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
        self.set({})
        self.state.cleanup()


def chosen(path):
    return path.read_text().split("[")[1].split("]")[0]


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
            promised[key] = promised.get(key, 0) + remedy["gain_bytes"]
    return large, promised


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
    """The gain of one remedy on a fresh copy, and what was said of that copy."""
    action, command, start, restart, undo, kind, target, path = key
    if "cp -a" in command and str(folder) not in command:
        raise RuntimeError("not tried: it replaces a file of the system")
    if start.startswith("folio run") and scene.command[0] == "setpriv":
        raise RuntimeError("not tried: folio run would move the text of setpriv")
    machine.set(scene.settings)
    process = machine.start(scene)
    before, promised = look(machine.folio, process.pid)
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
    finally:
        for one in undo.split("; "):
            if one.startswith("sudo"):
                machine.shell(one)
    if not machine.is_undisturbed(scene):
        raise Disturbed(f"{scene.name}: the settings are not what they were after: {undo}")
    # Of libraries, which are loaded anywhere, another one may fit by chance.
    def sum_of(large):
        kinds, paths = (("file", "shmem"), "") if is_launched else ((kind,), path)
        return sum(sizes[target] for of, sizes in large.items() if of[0] in kinds and paths in ("", of[1]))
    gain = sum_of(after) - sum_of(before)
    return promised.get(key, 0), gain, "" if status in (0, 1) else said


def scenes(folio, folder, size):
    """What can be started here; what cannot is named."""
    never, madvise, always = ({"enabled": word} for word in ("never", "madvise", "always"))
    python = sys.executable
    found, missing = [], []

    def add(name, needs, *rest, **more):
        lost = [one for one in needs if not one or not (shutil.which(str(one)) or Path(one).exists())]
        missing.append(f"{name}: {lost[0] or needs}") if lost else found.append(Scene(name, *rest, **more))

    def mapped(kind, mib=size, step=4096, *more):
        return [python, "-c", PY_MAP, kind, mib, step, *more]

    add("python, private map", [], mapped("anon"), madvise)
    add("python, private map, thp never", [], mapped("anon"), never)
    add("python, sparse map", [], mapped("anon", size, 3 * M), madvise)
    add("python, sparse map, 64K", [], mapped("anon", size, 40960), madvise)
    add("python, map that forbids", [], mapped("forbidden"), madvise)
    add("python, shared map", [], mapped("shared"), {"shmem_enabled": "never"})
    add("python, shared map, advise", [], mapped("shared"), {"shmem_enabled": "advise"})
    add("python, memfd", [], mapped("memfd"), {"shmem_enabled": "never"})
    add("python, file on tmpfs", [], mapped("tmpfs"), {})
    add("python, objects", [], [python, "-c", PY_LISTS], madvise)
    data = folder / "data"
    data.write_bytes(os.urandom(size * M))

    def cold():
        with data.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.read()
    file = mapped("file", size, 4096, data)
    add("python, file on disk", [], file, before=cold)
    add("python, file that others map", [], file, before=cold, beside=file)

    if shutil.which("gcc"):
        for name in ("fixed", "random"):
            kind = ["-no-pie"] if name == "fixed" else ["-pie", "-fPIE"]
            compiled(["gcc", "-O1", "-fPIC", "-x", "c", "-", *kind, "-o", folder / name], SHORT)
        for name, pages in (("lib64k.so", 65536), ("lib4k.so", 4096)):
            compiled(["gcc", "-O1", "-fPIC", "-shared", "-DLIBRARY", f"-Wl,-z,max-page-size={pages}", "-x", "c", "-",
                      "-o", folder / name], SHORT)
            compiled(["gcc", "-O1", "-DUSER", "-x", "c", "-", "-o", folder / f"uses-{name}", f"-Wl,-rpath,{folder}",
                      f"-L{folder}", f"-l:{name}"], SHORT)

    def in_pieces(file):
        """Into the cache page by page, as a file that came in small folios."""
        def read():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
                for at in range(0, file.stat().st_size, 4096):
                    os.pread(opened.fileno(), 4096, at)
        return read
    for name, program, file in [
            ("C, short program, fixed", "fixed", "fixed"), ("C, short program, any address", "random", "random"),
            ("C, short library, 64K", "uses-lib64k.so", "lib64k.so"), ("C, short library, 4K", "uses-lib4k.so", "lib4k.so")]:
        add(name, [folder / program], [folder / program], madvise, before=in_pieces(folder / file))
    add("C, short library, 64K, others map", [folder / "uses-lib64k.so"], [folder / "uses-lib64k.so"], madvise,
        before=in_pieces(folder / "lib64k.so"), beside=[folder / "uses-lib64k.so"])
    watch = [folio, "maps", os.getpid(), "--watch=1000", "--json"]
    add("folio, text at any address", [], watch, ready="schema_version")
    c, cxx = folder / "c", folder / "cxx"
    if shutil.which("gcc"):
        compiled(["gcc", "-O1", "-pthread", "-x", "c", "-", "-o", c], C)
    if shutil.which("g++"):
        compiled(["g++", "-O1", "-x", "c++", "-", "-o", cxx], CXX)
    add("C, small mallocs", [c], [c, "small", size], madvise)
    add("C, small mallocs, thp never", [c], [c, "small", size], never)
    add("C, large mallocs", [c], [c, "large", size], madvise)
    add("C, mallocs of threads", [c], [c, "threads", size], madvise)
    add("C, System V memory", [c], [c, "sysv", size], {"shmem_enabled": "never"})
    add("C++, std::map", [cxx], [cxx], madvise)
    for name in ("jemalloc", "tcmalloc_minimal", "mimalloc"):
        library = next(iter(sorted(Path("/usr/lib").glob(f"*/lib{name}.so*"))), None)
        add(f"C with {name}", [c, library], [c, "small", size], madvise,
            environment={"LD_PRELOAD": str(library)})
    if shutil.which("javac"):
        (folder / "Fill.java").write_text(JAVA)
        subprocess.run(["javac", folder / "Fill.java"], check=True)
    heap = [f"-Xms{6 * size}m", f"-Xmx{6 * size}m", "-cp", folder, "Fill", 3 * size]
    for name, option in [("G1", "-XX:+UseG1GC"), ("Parallel", "-XX:+UseParallelGC"),
                         ("pretouched", "-XX:+AlwaysPreTouch")]:
        add(f"java, {name}", ["java", folder / "Fill.class"], ["java", option, *heap], madvise)
    program = folder / "gofill"
    if shutil.which("go"):
        (folder / "fill.go").write_text(GO)
        subprocess.run(["go", "build", "-o", program, folder / "fill.go"], check=False)
    add("go", [program], [program], madvise)
    add("node", ["node"], ["node", "-e", NODE], madvise)
    socket = folder / "redis.sock"
    # A Redis with its own jemalloc, where there is one: Debian's uses the system's.
    own = os.environ.get("REMEDIES_REDIS", "")
    options = ["--port", "0", "--save", "", "--unixsocket", socket]
    server = ["redis-server", *options, "--enable-debug-command", "yes"]
    fill = ["redis-cli", "-e", "-s", socket, "debug", "populate", str(size * 12000), "key", "100"]
    for name, settings in [("redis", madvise), ("redis, thp always", always)]:
        add(name, ["redis-server", "redis-cli"], server, settings, fill=fill)
        add(name.replace("redis", "redis, own jemalloc"), [own, "redis-cli"], [own, *options], settings, fill=fill)
    postgres, initdb = (next(iter(sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
                        for name in ("postgres", "initdb"))
    if postgres and initdb:
        base = folder / "db"
        base.mkdir()
        shutil.chown(base, "postgres")
        subprocess.run(["setpriv", "--reuid=postgres", "--clear-groups", initdb, "-D", base],
                       check=True, stdout=subprocess.DEVNULL)
        command = ["setpriv", "--reuid=postgres", "--clear-groups", postgres, "-D", base, "-k", base,
                   "-c", f"shared_buffers={size}MB", "-c", "listen_addresses=", "-c", "logging_collector=off",
                   "-c", "log_destination=stderr"]
        fill = ["psql", "-U", "postgres", "-h", base, "-v", "ON_ERROR_STOP=1", "-qc",
                "drop table if exists t; create table t (s text); insert into t select "
                f"repeat('x', 900) from generate_series(1, {size * 1000})", "postgres"]
        add("postgres", ["psql"], command, {"shmem_enabled": "never"}, fill=fill)
    else:
        missing.append("postgres")
    return found, missing


def compiled(command, text):
    subprocess.run([str(word) for word in command], input=text, text=True, check=True)


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
    machine = Machine(options.folio.resolve())
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
    lines = ["| program | remedy | size | said MiB | gained MiB | |", "|---|---|---|---|---|---|"]
    for row in rows:
        if row["said"] is None:
            lines.append(f"| {row['scene']} | nothing works, as said | | | | |")
            continue
        size = f"{row['size'] // M}M" if row["size"] >= M else f"{row['size'] >> 10}K"
        remedy = " ".join("PID" if word.isdigit() else word for word in row["remedy"].split())
        remedy = remedy.replace("sudo ", "").removesuffix(" ..")
        remedy = " ".join("FILE" if word.startswith("/var/tmp/") else word for word in remedy.split())
        note = "" if row["good"] and row["tries"] == 1 else "second try" if row["good"] else row["error"] or "not as said"
        lines.append(f"| {row['scene']} | `{remedy}` | {size} | {row['said'] / M:.0f} | {row['gain'] / M:.0f} | {note} |")
    return "\n".join(lines)


def show(machine, scene, rows, folder):
    """Tries all remedies of one scene; how many did not gain what they said."""
    machine.wait()
    machine.set(scene.settings)
    process = machine.start(scene)
    _, promised = look(machine.folio, process.pid)
    machine.stop_all()
    nr_bad = 0
    for key, said in sorted(promised.items(), key=lambda one: -one[1]):
        least = LEAST if key[6] >= 2 * M else LEAST_SMALL
        if key[0] == "nothing" or said < least:
            continue
        for nr_tries in (1, 2):
            try:
                said, gain, error = tried(machine, scene, key, folder)
            except (RuntimeError, subprocess.CalledProcessError, StopIteration) as failure:
                gain, error = 0, str(failure) or "another remedy for the copy"
            # A setting is for all memory: of that with a better remedy too, which is not in `said`.
            most = float("inf") if key[0] == "tune" else said
            slack = max(TOLERANCE * said, min(2 * key[6], said / 2))
            is_good = not error and said - slack <= gain <= most + slack
            if not error and said < least:
                error = "not judged: too little on this copy"
            if is_good or error.startswith("not "):
                break
        is_good = is_good and not error
        is_bad = not is_good and not error.startswith("not ")
        nr_bad += is_bad
        how = " ".join(part for part in key[1:3] if part) or key[0]
        rows.append({"scene": scene.name, "remedy": how, "size": key[6], "said": said, "gain": gain,
                     "good": is_good, "tries": nr_tries, "error": error})
        print(f"{'NO ' if is_bad else 'ok ' if is_good else '-- '} {scene.name:36} said {said / M:7.1f} gained {gain / M:7.1f} MiB "
              f"in {key[6] >> 10}K  {how}{' (second try)' if nr_tries > 1 else ''}"
              f"{'  ' + error if error else ''}", flush=True)
    if not any(row["scene"] == scene.name for row in rows):
        print(f"    {scene.name:36} nothing to gain was said", flush=True)
        rows.append({"scene": scene.name, "remedy": "", "said": None, "gain": 0, "good": True, "error": ""})
    return nr_bad


if __name__ == "__main__":
    sys.exit(main())
