"""Programs in situations for which `folio maps` has a remedy; `remedies.py` starts them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from promised.printed import as_printed

M = 1 << 20
# Java's heap relative to other programs' memory.
HEAP = 6

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
# 1.25 MiB of text, all of it called: in a program, or in a library with `-DLIBRARY`.
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
NUMPY = """
import os, sys, time, numpy as np
data = np.load(sys.argv[1], mmap_mode="r")
work = np.ones(int(sys.argv[2]) << 17)
for _ in range(2):
    if os.fork() == 0:
        data.sum() + work[: len(work) // 2].sum(); time.sleep(1000)
data.sum(); print("ready", flush=True); time.sleep(1000)
"""
PANDAS = """
import time, sys, numpy as np, pandas as pd
rows = int(sys.argv[1]) * 8000
frame = pd.DataFrame({"key": np.arange(rows) % 1000, "value": np.random.default_rng(1).random(rows)})
frame["name"] = frame["key"].astype(str); kept = frame.groupby("name")["value"].sum()
print("ready", flush=True); time.sleep(1000)
"""
RUBY = "kept = Array.new(Integer(ARGV[0]) * 8000) { |i| \"value #{i}\" * 3 }; puts 'ready'; STDOUT.flush; sleep 1000; p kept.size"
PHP = """$kept = []; for ($i = 0; $i < $argv[1] * 8000; $i++) $kept[] = str_repeat("v$i", 12);
echo "ready\n"; sleep(1000); echo count($kept);"""
# Stores values of 1,000 bytes until memcached uses the given number of MiB.
MEMCACHED = r"""
import socket, sys
to = socket.socket(socket.AF_UNIX); to.connect(sys.argv[1])
for i in range(int(sys.argv[2]) * 900):
    to.sendall(b"set k%d 0 0 1000 noreply\r\n%s\r\n" % (i, b"x" * 1000))
to.sendall(b"version\r\n"); assert to.recv(100).startswith(b"VERSION")
"""
CXX = """#include <map>
#include <string>
#include <cstdio>
#include <unistd.h>
int main() { std::map<int, std::string> m; for (int i = 0; i < 700000; i++) m[i] = std::string(40, 'x');
puts("ready"); fflush(stdout); sleep(1000); return (int)m.size(); }"""


class Scene:
    """A program in a situation: how it is started, and under which settings."""

    def __init__(self, name, command, settings=None, environment=None, before=None, fill=None, beside=None,
                 ready="ready", wrapper=(), is_least=False):
        self.name, self.command, self.ready = name, [str(word) for word in command], ready.encode()
        # Starts with a remedy vary more than those without: judge promises for a new start as
        # minimums.
        self.is_least = is_least
        # Runs before exec of the program, as `setpriv` does: no remedy applies to it.
        self.wrapper = [str(word) for word in wrapper]
        self.beside = Scene(f"next to {name}", beside) if beside else None
        self.settings, self.environment = settings or {}, environment or {}
        self.before, self.fill = before, fill

    def words(self, start):
        """The command and its variables, as a remedy requires them."""
        words, environment = as_printed(start, self.command, dict(os.environ, **self.environment))
        return self.wrapper + words, environment


def nr_blocks(size):
    """Blocks of 2M that a start needs: the largest heap, twice."""
    return 2 * HEAP * size // 2


NEVER, MADVISE, ALWAYS = ({"enabled": word} for word in ("never", "madvise", "always"))


class Place:
    """A folder to prepare scenes in; the scenes found, and those missing because a program is not
    installed.
    """

    def __init__(self, folio, folder, size, only=""):
        self.folio, self.folder, self.size, self.only = folio, folder, size, only
        self.found, self.missing = [], []

    def add(self, name, needs, *rest, **more):
        if not name.startswith(self.only):
            return
        lost = [one for one in needs if not (shutil.which(str(one)) or Path(one).exists())]
        if lost:
            self.missing.append(f"{name}: {lost[0]}")
        else:
            self.found.append(Scene(name, *rest, **more))


def scenes(folio, folder, size, only=""):
    """Returns the scenes with names that begin with `only`, and why the others cannot start here."""
    place = Place(folio, folder, size, only)
    for names, prepare in PROGRAMS:
        if any(name.startswith(only) or only.startswith(name) for name in names):
            prepare(place)
    return place.found, place.missing


def python(place):
    size = place.size

    def mapped(kind, mib=size, step=4096, *more):
        return [sys.executable, "-c", PY_MAP, kind, mib, step, *more]
    place.add("python, private map", [], mapped("anon"), MADVISE)
    place.add("python, private map, thp never", [], mapped("anon"), NEVER)
    place.add("python, sparse map", [], mapped("anon", size, 3 * M), MADVISE)
    place.add("python, sparse map, 64K", [], mapped("anon", size, 40960), MADVISE)
    place.add("python, map that forbids", [], mapped("forbidden"), MADVISE)
    place.add("python, shared map", [], mapped("shared"), {"shmem_enabled": "never"})
    place.add("python, shared map, advise", [], mapped("shared"), {"shmem_enabled": "advise"})
    place.add("python, memfd", [], mapped("memfd"), {"shmem_enabled": "never"})
    place.add("python, file on tmpfs", [], mapped("tmpfs"), {})
    place.add("python, objects", [], [sys.executable, "-c", PY_LISTS], MADVISE)
    data = place.folder / "data"
    data.write_bytes(os.urandom(size * M))

    def cold():
        with data.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            file.read()
    file = mapped("file", size, 4096, data)
    place.add("python, file on disk", [], file, before=cold)
    place.add("python, file that others map", [], file, before=cold, beside=file)


def in_pieces(file):
    """Reads the file into the cache page by page, so that its folios are small."""
    def read():
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_RANDOM)
            for at in range(0, file.stat().st_size, 4096):
                os.pread(opened.fileno(), 4096, at)
    return read


def short_text(place):
    folder = place.folder
    if shutil.which("gcc"):
        for name in ("fixed", "random"):
            kind = ["-no-pie"] if name == "fixed" else ["-pie", "-fPIE"]
            compiled(["gcc", "-O1", "-fPIC", "-x", "c", "-", *kind, "-o", folder / name], SHORT)
        for name, pages in (("lib64k.so", 65536), ("lib4k.so", 4096)):
            compiled(["gcc", "-O1", "-fPIC", "-shared", "-DLIBRARY", f"-Wl,-z,max-page-size={pages}", "-x", "c", "-",
                      "-o", folder / name], SHORT)
            compiled(["gcc", "-O1", "-DUSER", "-x", "c", "-", "-o", folder / f"uses-{name}", f"-Wl,-rpath,{folder}",
                      f"-L{folder}", f"-l:{name}"], SHORT)
    for name, program, file in [
            ("C, short program, fixed", "fixed", "fixed"), ("C, short program, any address", "random", "random"),
            ("C, short library, 64K", "uses-lib64k.so", "lib64k.so"), ("C, short library, 4K", "uses-lib4k.so", "lib4k.so")]:
        place.add(name, [folder / program], [folder / program], MADVISE, before=in_pieces(folder / file))
    place.add("C, short library, 64K, others map", [folder / "uses-lib64k.so"], [folder / "uses-lib64k.so"], MADVISE,
              before=in_pieces(folder / "lib64k.so"), beside=[folder / "uses-lib64k.so"])


def own_text(place):
    watch = [place.folio, "maps", os.getpid(), "--watch=1000", "--json"]
    place.add("folio, text at any address", [], watch, ready="schema_version")


def mallocs(place):
    size, c, cxx = place.size, place.folder / "c", place.folder / "cxx"
    if shutil.which("gcc"):
        compiled(["gcc", "-O1", "-pthread", "-x", "c", "-", "-o", c], C)
    if shutil.which("g++"):
        compiled(["g++", "-O1", "-x", "c++", "-", "-o", cxx], CXX)
    place.add("C, small mallocs", [c], [c, "small", size], MADVISE)
    place.add("C, small mallocs, thp never", [c], [c, "small", size], NEVER)
    place.add("C, large mallocs", [c], [c, "large", size], MADVISE)
    place.add("C, mallocs of threads", [c], [c, "threads", size], MADVISE)
    place.add("C, System V memory", [c], [c, "sysv", size], {"shmem_enabled": "never"})
    place.add("C++, std::map", [cxx], [cxx], MADVISE)
    for name in ("jemalloc", "tcmalloc_minimal", "mimalloc"):
        library = next(iter(sorted(Path("/usr/lib").glob(f"*/lib{name}.so*"))), f"lib{name}.so")
        place.add(f"C with {name}", [c, library], [c, "small", size], MADVISE,
                  environment={"LD_PRELOAD": str(library)})


def java(place):
    size, folder = place.size, place.folder
    if shutil.which("javac"):
        (folder / "Fill.java").write_text(JAVA)
        subprocess.run(["javac", folder / "Fill.java"], check=True)
    heap = [f"-Xms{HEAP * size}m", f"-Xmx{HEAP * size}m", "-cp", folder, "Fill", HEAP * size // 2]
    # G1 adds regions depending on its pause times: three starts with a 384 MiB heap in 2M folios
    # used 22, 24 and 42 MiB more than those without, which differed by less than 1 MiB.
    for name, option in [("G1", "-XX:+UseG1GC"), ("Parallel", "-XX:+UseParallelGC"),
                         ("pretouched", "-XX:+AlwaysPreTouch")]:
        place.add(f"java, {name}", ["java", folder / "Fill.class"], ["java", option, *heap], MADVISE,
                  is_least=name == "G1")


def go(place):
    program = place.folder / "gofill"
    if shutil.which("go"):
        (place.folder / "fill.go").write_text(GO)
        subprocess.run(["go", "build", "-o", program, place.folder / "fill.go"], check=False)
    place.add("go", [program], [program], MADVISE)


def node(place):
    place.add("node", ["node"], ["node", "-e", NODE], MADVISE)


def redis(place):
    """Includes a Redis with its own jemalloc, if there is one: Debian's uses the system's."""
    socket = place.folder / "redis.sock"
    own = os.environ.get("REMEDIES_REDIS") or "a server that REMEDIES_REDIS names"
    options = ["--port", "0", "--save", "", "--unixsocket", socket]
    server = ["redis-server", *options, "--enable-debug-command", "yes"]
    fill = ["redis-cli", "-e", "-s", socket, "debug", "populate", str(place.size * 12000), "key", "100"]
    for name, settings in [("redis", MADVISE), ("redis, thp always", ALWAYS)]:
        place.add(name, ["redis-server", "redis-cli"], server, settings, fill=fill)
        place.add(name.replace("redis", "redis, own jemalloc"), [own, "redis-cli"], [own, *options], settings, fill=fill)


def postgres(place):
    program, initdb = (next(iter(sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))), None)
                       for name in ("postgres", "initdb"))
    if not (program and initdb):
        place.missing.append("postgres")
        return
    base, size = place.folder / "db", place.size
    base.mkdir()
    shutil.chown(base, "postgres")
    as_postgres = ["setpriv", "--reuid=postgres", "--clear-groups"]
    subprocess.run([*as_postgres, initdb, "-D", base], check=True, stdout=subprocess.DEVNULL)
    command = [program, "-D", base, "-k", base, "-c", f"shared_buffers={size}MB", "-c", "listen_addresses=",
               "-c", "logging_collector=off", "-c", "log_destination=stderr"]
    fill = ["psql", "-U", "postgres", "-h", base, "-v", "ON_ERROR_STOP=1", "-qc",
            "drop table if exists t; create table t (s text); insert into t select "
            f"repeat('x', 900) from generate_series(1, {size * 1000})", "postgres"]
    place.add("postgres", ["psql"], command, {"shmem_enabled": "never"}, fill=fill, wrapper=as_postgres)


def numpy(place):
    program = os.environ.get("REMEDIES_NUMPY") or "a Python with numpy and pandas that REMEDIES_NUMPY names"
    size, array = place.size, place.folder / "array.npy"
    with array.open("wb") as file:
        text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({size << 17},), }}"
        file.write(b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + text.ljust(117).encode() + b"\n")
        file.write(os.urandom(size * M))
    place.add("numpy, mapped array, two forks", [program], [program, "-c", NUMPY, array, size], MADVISE)
    place.add("pandas", [program], [program, "-c", PANDAS, size], MADVISE)


def ruby(place):
    place.add("ruby", ["ruby"], ["ruby", "-e", RUBY, place.size], MADVISE)


def php(place):
    place.add("php", ["php"], ["php", "-d", "memory_limit=-1", "-r", PHP, place.size], MADVISE)


def memcached(place):
    socket, size = place.folder / "memcached.sock", place.size
    place.add("memcached", ["memcached"], ["memcached", "-u", "root", "-m", 2 * size, "-s", socket], MADVISE,
              fill=[sys.executable, "-c", MEMCACHED, socket, str(size)])


def nginx(place):
    folder, settings = place.folder, place.folder / "nginx.conf"
    settings.write_text(f"""daemon off; worker_processes 2; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
events {{}}
http {{ access_log off; proxy_cache_path {folder}/cache keys_zone=zone:{place.size}m;
server {{ listen unix:{folder}/nginx.sock; location / {{ return 200; }} }} }}
""")
    place.add("nginx", ["nginx"], ["nginx", "-e", folder / "nginx.log", "-c", settings], MADVISE,
              fill=["test", "-S", folder / "nginx.sock"])


def haproxy(place):
    folder, proxy = place.folder, place.folder / "haproxy.cfg"
    proxy.write_text(f"global\n maxconn 1000\n nbthread 2\ndefaults\n mode http\n timeout connect 1s\n timeout client 1s\n"
                     f" timeout server 1s\ncache c\n total-max-size {place.size}\nfrontend f\n bind unix@{folder}/haproxy.sock\n"
                     " http-request return status 200\n")
    place.add("haproxy", ["haproxy"], ["haproxy", "-W", "-f", proxy], MADVISE, fill=["test", "-S", folder / "haproxy.sock"])


def mariadb(place):
    data, size = place.folder / "mariadb", place.size
    if shutil.which("mariadb-install-db") and shutil.which("mariadbd"):
        data.mkdir()
        subprocess.run(["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = f"create or replace table test.t as select repeat(seq, 100) a from seq_1_to_{size * 2000}"
    place.add("mariadb", ["mariadbd", "mariadb", data],
              ["mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", f"--socket={data}/s", "--skip-networking",
               f"--innodb-buffer-pool-size={2 * size}M"], MADVISE,
              fill=["mariadb", "--no-defaults", f"--socket={data}/s", "-e",
                    f"create database if not exists test; use test; {rows}"])


def compiler(place):
    program = subprocess.run(["g++", "-print-prog-name=cc1plus"], capture_output=True, text=True, check=False).stdout.strip() \
        if shutil.which("g++") else "cc1plus"
    source = place.folder / "source.fifo"
    writers = []

    def writer():
        """Puts the compiler in small folios, and keeps the pipe open so that it waits for input."""
        in_pieces(Path(program))()
        source.unlink(missing_ok=True)
        os.mkfifo(source)
        opened = os.open(source, os.O_RDWR)
        os.write(opened, b"int f(int a) { return a + 1; }\n" * 1000)
        writers.append(opened)
    place.add("cc1plus", [program], [program, "-quiet", source, "-o", "/dev/null"], MADVISE, before=writer, fill=["true"])


PROGRAMS = [
    (["python"], python), (["C, short"], short_text), (["folio"], own_text), (["C, ", "C++", "C with"], mallocs),
    (["java"], java), (["go"], go), (["node"], node), (["redis"], redis), (["postgres"], postgres),
    (["numpy", "pandas"], numpy), (["ruby"], ruby), (["php"], php), (["memcached"], memcached), (["nginx"], nginx),
    (["haproxy"], haproxy), (["mariadb"], mariadb), (["cc1plus"], compiler),
]


def compiled(command, text):
    subprocess.run([str(word) for word in command], input=text, text=True, check=True)
