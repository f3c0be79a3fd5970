#!/usr/bin/env python3
"""Workloads of several programs, recorded whole and predicted.

Each runs plain and recorded, and must have the same output and exit status both times. The trace
must have the programs that ran. The prediction must assign every reference and fault to one of
them, and every referenced page must be mapped in the trace. Services (postgres, nginx, redis) run
as a separate user, under load, until they are stopped.

--smoke: only those that need no more than building does. Without it, a workload whose programs are
not installed is reported as skipped.

Exit status: 0 every workload that ran is correct, 1 one is not.
"""

import argparse
import collections.abc
import concurrent.futures
import dataclasses
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from bench import ROOT

LIMIT = 600  # seconds for a recorded workload
# The recorder's warning about a machine that delays threads: not an error, and not judged here.
BUSY = "folio: warning: A thread did not pause within "
PYTHON = """
import multiprocessing, subprocess, sys
def square(x): return x * x
if __name__ == "__main__":
    said = subprocess.run(["sh", "-c", "ls / | wc -l"], capture_output=True, text=True, check=True).stdout
    child = subprocess.run([sys.executable, "-I", "-S", "-c", "print(6 * 7)"], capture_output=True, text=True)
    with multiprocessing.Pool(2) as pool:
        print(said.strip(), child.stdout.strip(), sum(pool.map(square, range(100))))
"""
NODE = """
const {execFileSync, fork, spawn} = require('child_process');
if (process.argv[2] === 'child') {
    process.on('message', n => { process.send(n * n); process.disconnect(); });
} else {
    console.log(execFileSync('sh', ['-c', 'echo from sh']).toString().trim());
    spawn('ls', ['/'], {stdio: 'ignore'}).on('close', code => {
        console.log('ls', code);
        const child = fork(__filename, ['child']);
        child.on('message', n => console.log('child', n));
        child.send(7);
    });
}
"""
GIT = """
git init -q repo && cd repo
git config user.name a
git config user.email a@example.org
echo one > file
git add file
git commit -q -m one
echo two >> file
git commit -q -a -m two
git gc -q
git log --oneline | wc -l
"""
MAKEFILE = "all: sum\n\t./sum\nsum: a.o b.o\n\t$(CC) -o $@ $^\n"
PAGE = "a page of a few lines\n" * 1000
NGINX = """
daemon off; worker_processes 3; pid nginx.pid; error_log error.log;
events { worker_connections 64; }
http {
    access_log access.log; client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    server { listen 127.0.0.1:5498; root .; }
}
"""
SOURCES = {"a.c": "int other(void);\nint main(void) { return other() - 42; }\n",
           "b.c": "int other(void) { return 42; }\n"}


@dataclasses.dataclass
class Workload:
    """The command, its requirements, and the programs (last part of the path) that its trace must
    have.
    """

    name: str
    command: list
    programs: list
    files: dict = dataclasses.field(default_factory=dict)
    is_smoke: bool = False
    load: collections.abc.Callable | None = None
    # The oldest QEMU that runs it, and the reason.
    qemu: tuple = (0, "")

    def missing(self):
        """Why it cannot run here."""
        for word in [self.command[0], *self.programs]:
            if not shutil.which(word):
                return f"{word} is not installed"
        oldest, why = self.qemu
        return f"{why}. LARGEFOLIO_QEMU names another QEMU" if qemu_version() < oldest else None


def qemu_version():
    """QEMU's major version; 0 without one."""
    def said_by(*words):
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()

    found = said_by(ROOT / "scripts/qemu.sh", "find")
    said = said_by(found, "--version") if found else ""
    number = re.search(r"version (\d+)", said)
    return int(number[1]) if number else 0


def wait_for(server, is_there):
    """Waits until a server has responded."""
    deadline = time.monotonic() + LIMIT
    while not is_there():
        if server.poll() is not None:
            raise TimeoutError(f"the server ended with exit status {server.returncode}")
        if time.monotonic() > deadline:
            raise TimeoutError(f"the server did not answer in {LIMIT} s")
        time.sleep(0.2)


def quietly(*words, **options):
    return subprocess.run(words, capture_output=True, check=False, **options).returncode


def postgres_tool(name):
    """Finds the tool itself: Debian's wrapper in PATH expects a server created by its own tools."""
    return Path(shutil.which("postgres")).resolve().with_name(name)


def load_postgres(place, process):
    server = ["-h", str(place), "-p", "5499"]
    wait_for(process, lambda: quietly(postgres_tool("pg_isready"), *server) == 0)
    pgbench = postgres_tool("pgbench")
    subprocess.run([pgbench, *server, "-i", "-q", "-U", "postgres", "postgres"], check=True, capture_output=True)
    done = subprocess.run([pgbench, *server, "-U", "postgres", "-c", "4", "-t", "20", "postgres"], check=True,
                          capture_output=True, text=True)
    assert "80/80" in done.stdout, done.stdout


def load_redis(place, process):
    server = ["-s", str(place / "redis.socket")]
    wait_for(process, lambda: quietly("redis-cli", *server, "ping") == 0)
    subprocess.run(["redis-benchmark", *server, "-q", "-n", "2000", "-r", "1000", "-d", "500", "-t", "set,get"],
                   check=True, capture_output=True)
    subprocess.run(["redis-cli", *server, "bgsave"], check=True, capture_output=True)
    wait_for(process, (place / "dump.rdb").exists)


def load_nginx(_place, process):
    def fetch(_nr):
        with urllib.request.urlopen("http://127.0.0.1:5498/page", timeout=LIMIT) as answer:
            return len(answer.read())

    def answers():
        try:
            return fetch(0) > 0
        except OSError:
            return False

    wait_for(process, answers)
    with concurrent.futures.ThreadPoolExecutor(4) as clients:
        assert set(clients.map(fetch, range(200))) == {len(PAGE)}


WORKLOADS = [
    Workload("pipeline of a shell", ["sh", "-c", "ls / | sort -r | wc -l"], ["ls", "sort", "wc"], is_smoke=True),
    Workload("make -j2 of C", ["make", "-s", "-j2"], ["make", "as", "gcc"], {"Makefile": MAKEFILE, **SOURCES},
             is_smoke=True),
    Workload("git", ["sh", "-e", "git.sh"], ["git", "sh", "wc"], {"git.sh": GIT}, is_smoke=True),
    Workload("python: subprocess, multiprocessing", ["/usr/bin/python3", "-I", "-S", "p.py"], ["python3", "sh", "ls"],
             {"p.py": PYTHON}, is_smoke=True),
    Workload("node: exec, spawn, fork", ["node", "n.js"], ["node", "sh", "ls"], {"n.js": NODE}),
    Workload("npm run", ["npm", "run", "--silent", "--offline", "--no-update-notifier", "build"], ["node", "sh", "ls"],
             {"package.json": json.dumps({"name": "a", "scripts": {"build": "ls / && echo built"}})}),
    Workload("redis: load, snapshot", ["redis-server", "--port", "0", "--unixsocket", "redis.socket", "--save", "",
                                       "--logfile", "log"], ["redis-server"], load=load_redis),
    Workload("nginx: 3 workers, 4 clients", ["nginx", "-p", ".", "-c", "nginx.conf", "-e", "error.log"], ["nginx"],
             {"nginx.conf": NGINX, "page": PAGE}, load=load_nginx),
    Workload("postgres: pgbench, 4 clients",
             ["postgres", "-D", "data", "-k", "..", "-p", "5499", "-c", "listen_addresses=",
              "-c", "shared_buffers=16MB"], ["postgres"], load=load_postgres,
             qemu=(10, "QEMU 7.2 itself crashes if a program forks in a signal handler, as postgres 15 does")),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folio", default=ROOT / "target/release/folio", type=Path)
    parser.add_argument("--smoke", action="store_true", help="only workloads that need nothing beyond the build tools")
    parser.add_argument("--only", help="only workloads with this word in their name")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folio = options.folio.resolve()
    failed = ran = 0
    for workload in WORKLOADS:
        if (options.smoke and not workload.is_smoke) or (options.only and options.only not in workload.name):
            continue
        if missing := workload.missing():
            print(f"SKIPPED: {workload.name}: {missing}", file=sys.stderr)
            continue
        ran += 1
        try:
            print(f"ok      {workload.name}: {tried(folio, workload)}", flush=True)
        except (AssertionError, OSError, subprocess.SubprocessError, TimeoutError) as error:
            failed += 1
            print(f"FAILED  {workload.name}: {error}", flush=True)
    print(f"workloads.py: {ran - failed} of {ran} workloads recorded like they run")
    return 1 if failed or not ran else 0


def tried(folio, workload):
    """Runs it plain and recorded, and describes the trace."""
    with tempfile.TemporaryDirectory() as directory:
        top = Path(directory)
        trace = top / "trace.folio"
        # Do not run a server as root.
        user = pwd.getpwnam("nobody") if workload.load and os.geteuid() == 0 else None
        identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        if user:
            os.chown(top, user.pw_uid, user.pw_gid)
        said = {}
        record = [folio, "record", "--quiet", "--with", "qemu", "-o", trace, "--"]
        for way, before in (("plain", []), ("recorded", record)):
            place = top / way
            prepare(place, workload, user, identity)
            began = time.monotonic()
            said[way] = run([*before, *workload.command], place, workload, identity)
            said[f"{way} time"] = time.monotonic() - began
        recorded, is_busy = without_busy(said["recorded"])
        assert said["plain"] == recorded, f"said {recorded}, without recorder {said['plain']}"
        slower = said["recorded time"] / said["plain time"]
        busy = " (machine too busy for exact order between threads)" if is_busy else ""
        return f"{judged(folio, trace, workload)}, {said['recorded time']:.1f} s, {slower:.0f} times the plain run{busy}"


def without_busy(said):
    """The output without the recorder's warning of a busy machine, and whether there was one."""
    status, text = said
    lines = (text or "").splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(BUSY)]
    return (status, text and "".join(kept)), len(kept) < len(lines)


def prepare(place, workload, user, identity):
    place.mkdir()
    for name, text in workload.files.items():
        (place / name).write_text(text)
    if user:
        os.chown(place, user.pw_uid, user.pw_gid)
    if workload.command[0] == "postgres":
        initdb = [postgres_tool("initdb"), "-D", place / "data", "-U", "postgres", "-A", "trust", "-N"]
        subprocess.run(initdb, cwd=place, check=True, capture_output=True, **identity)


def run(command, place, workload, identity):
    """Exit status and output. A server is loaded and then stopped; its output depends on the time."""
    home = {**os.environ, "HOME": str(place), "LC_ALL": "C"}
    with (place / "said").open("w+") as said:
        process = subprocess.Popen(command, cwd=place, env=home, stdin=subprocess.DEVNULL, stdout=said,
                                   stderr=subprocess.STDOUT, start_new_session=True, **identity)
        try:
            if workload.load:
                workload.load(place, process)
                # Like Ctrl-C, which folio leaves to the program.
                process.send_signal(signal.SIGINT)
            status = process.wait(LIMIT)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        said.seek(0)
        text = said.read()
    assert status == 0, f"{command[0]}: exit status {status}: {text[-2000:]}"
    return (status, None if workload.load else text)


def judged(folio, trace, workload):
    """Fails unless the trace has the programs, and the prediction adds up."""
    def answer(*words):
        done = subprocess.run([folio, *words, "--json"], check=False, capture_output=True, text=True, timeout=LIMIT)
        assert done.returncode == 0, f"folio {words[0]}: {done.stderr}"
        return json.loads(done.stdout)

    info = answer("trace", "info", trace)
    names = {Path(path).name for path in info["programs"]}
    missing = [word for word in workload.programs
               if not {word, Path(shutil.which(word)).resolve().name} & names]
    assert not missing, f"not in the trace: {missing}; in it: {sorted(names)}"
    (row,) = answer("predict", trace, "--kernel", "6.18", "--machine", "altra")["rows"]
    assert row["strays"]["unmapped"] == 0, f"references to unmapped memory: {row['strays']}"
    if info["nr_processes"] > 1:
        programs = row["processes"]["programs"]
        for what, whole in (("faults", row["faults"]["total"]),
                            ("references", row["tlb"]["instruction"]["references"] + row["tlb"]["data"]["references"])):
            parts = sum(program[what] for program in programs)
            assert parts == whole, f"{what} of the programs {parts}, of the machine {whole}"
    references = sum(op["nr_references"] for op in info["ops"].values())
    return (f"{info['nr_processes']} processes, {len(names)} programs, {references / 1e6:.1f} M references, "
            f"{info['file_bytes'] / (1 << 20):.1f} MiB")


if __name__ == "__main__":
    sys.exit(main())
