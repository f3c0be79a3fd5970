#!/usr/bin/env python3
"""Compares the smallest memory limit that `folio predict --fit` finds with the real one.

For each command: records it, predicts its smallest limit under the running kernel, and finds the real
one by bisection with a memory cgroup, with a cold page cache in each run. A limit is enough if nothing
is killed and the run takes at most twice as long as without a limit. The programs and libraries are
copies, because the pages of shared libraries are charged to whoever read them first. Needs root.

    sudo scripts/limits.py [--folio PROGRAM] [COMMAND ...]
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GROUP_V1 = pathlib.Path("/sys/fs/cgroup/memory/folio-limits")
GROUP_V2 = pathlib.Path("/sys/fs/cgroup/folio-limits")
MIB = 1 << 20
# A run this many times as long as without a limit is thrashing.
SLOW = 2
# What starting a process may differ by, in seconds.
START = 0.03
# Programs of packages, with inputs made by this script, as in programs/bank.toml.
COMMANDS = [
    "sort numbers -o sorted",
    "gzip -k -c text",
    "xz -1 -c text",
    "zstd -q -3 -c text",
    "bzip2 -c text",
    "awk '{n[$1]++} END {for (k in n) s += n[k]; print s}' words",
    "grep -c e text",
    "sed s/a/b/ text",
    "python3 -c 'd = {i: str(i) for i in range(200000)}'",
    "python3 -c 'a = bytearray(30 << 20); a[::4096] = b\"x\" * len(a[::4096])'",
    "python3 -c 'import json, random; json.dumps([random.random() for _ in range(100000)])'",
    "perl -e 'my %h; $h{$_} = $_ for 1 .. 100000; print scalar keys %h'",
    "gcc -O2 -c program.c -o program.o",
    "sqlite3 :memory: 'create table t(a); with recursive c(x) as (select 1 union all select x+1 from c"
    " limit 200000) insert into t select x from c; select sum(a) from t'",
    "openssl dgst -sha256 text",
    "tar cf all.tar text words numbers",
    "diff text words",
    "uniq -c words",
    "wc text",
    "od -An -tx1 words",
]


def make_inputs():
    with open("numbers", "w") as file:
        value = 1
        for _ in range(300_000):
            value = value * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
            file.write(f"{value >> 33}\n")
    with open("words", "w") as file:
        file.writelines(f"w{number * 7919 % 50_021} {number}\n" for number in range(300_000))
    with open("text", "w") as file:
        file.writelines(f"line {number} of a text that is easy to compress\n" for number in range(200_000))
    with open("program.c", "w") as file:
        for number in range(400):
            file.write(f"int f{number}(int a) {{ for (int i = 0; i < a; i++) a ^= i * {number}; return a; }}\n")


class Group:
    """A memory cgroup of version 1 or 2."""

    def __init__(self):
        self.is_v1 = GROUP_V1.parent.is_dir()
        self.dir = GROUP_V1 if self.is_v1 else GROUP_V2
        self.dir.mkdir(exist_ok=True)

    def limit(self, nr_bytes):
        (self.dir / ("memory.limit_in_bytes" if self.is_v1 else "memory.max")).write_text(str(nr_bytes))
        if not self.is_v1:
            (self.dir / "memory.swap.max").write_text("0")

    def nr_killed(self):
        name = "memory.oom_control" if self.is_v1 else "memory.events"
        fields = dict(line.split() for line in (self.dir / name).read_text().splitlines())
        return int(fields["oom_kill"])

    def empty(self):
        """Gives up what earlier runs left charged."""
        try:
            if self.is_v1:
                (self.dir / "memory.force_empty").write_text("0")
            else:
                (self.dir / "memory.reclaim").write_text("1G")
        except OSError:
            pass

    def end_all(self):
        """Ends what a command has left behind, such as the compiler that a killed gcc had started."""
        while pids := (self.dir / "cgroup.procs").read_text().split():
            for pid in pids:
                try:
                    os.kill(int(pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(0.01)

    def remove(self):
        self.dir.rmdir()

    def run(self, command, nr_bytes, timeout=None):
        """Returns whether the command ended well, and its time."""
        self.empty()
        os.sync()
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        self.limit(nr_bytes)
        killed = self.nr_killed()
        procs = self.dir / "cgroup.procs"
        start = time.monotonic()
        child = subprocess.Popen(
            ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(procs), *shlex.split(command)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            status = child.wait(timeout)
        except subprocess.TimeoutExpired:
            status = None
        seconds = time.monotonic() - start
        self.end_all()
        child.wait()
        # diff and grep end with 1 if they found differences.
        ended = status == 0 or status == 1 and "/diff " in command
        return ended and self.nr_killed() == killed, seconds


def with_copies(command):
    """Returns the command with copies of the program and its libraries."""
    program, *arguments = shlex.split(command)
    path = shutil.which(program)
    listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    libraries = re.findall(r"(/\S+) \(0x", listed)
    loader = next((path for path in libraries if "/ld-" in path), None)
    copies = pathlib.Path("copies") / program
    copies.mkdir(parents=True, exist_ok=True)
    for file in [path, *libraries]:
        shutil.copy(file, copies / pathlib.Path(file).name)
    start = [f"./{copies}/{pathlib.Path(loader).name}", "--library-path", f"./{copies}", "--argv0", program]
    return shlex.join([*start, f"./{copies}/{pathlib.Path(path).name}", *arguments])


def real_limit(group, command):
    """Returns the smallest limit in bytes, to within half a percent or 64 KiB."""
    plain = [group.run(command, 1 << 40) for _ in range(3)]
    if not all(fits for fits, _ in plain):
        raise SystemExit(f"{command} does not run")
    longest = SLOW * max(seconds for _, seconds in plain) + START
    low, high = 0, 16 * MIB
    while not group.run(command, high, longest)[0]:
        low, high = high, high * 2
    while high - low > max(64 << 10, high // 200):
        middle = (low + high) // 2 & ~4095
        if group.run(command, middle, longest)[0]:
            high = middle
        else:
            low = middle
    return high


def predicted_limit(folio, command, trace):
    subprocess.run([folio, "record", "--quiet", "-o", trace, "--", *shlex.split(command)],
                   check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    run = subprocess.run([folio, "predict", trace, "--kernel", "this", "--fit", "--json"],
                         check=True, capture_output=True, text=True)
    return json.loads(run.stdout)["fit"][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folio", default=ROOT / "target/release/folio")
    parser.add_argument("commands", nargs="*")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("limits.py needs root: it makes a memory cgroup and drops the page cache")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folio = pathlib.Path(arguments.folio).resolve()
    group = Group()
    errors, within = [], 0
    commands = arguments.commands or COMMANDS
    try:
        with tempfile.TemporaryDirectory() as directory:
            os.chdir(directory)
            make_inputs()
            print(f"{'command':44} {'predicted':>10} {'real':>8} {'error':>7} {'MiB':>6}", flush=True)
            for command in commands:
                copied = with_copies(command)
                fit = predicted_limit(folio, copied, "program.folio")
                real = real_limit(group, copied)
                least = fit["least_bytes"]
                error = 100 * (least / real - 1)
                is_within = abs(error) <= 5 or abs(least - real) <= MIB
                errors.append(error)
                within += is_within
                print(f"{command[:44]:44} {least / MIB:>10.2f} {real / MIB:>8.2f} {error:>+6.1f}% "
                      f"{(least - real) / MIB:>+6.2f}{'' if is_within else '  outside'}", flush=True)
            os.chdir("/")
    finally:
        group.remove()
    print(f"{within} of {len(commands)} within 5% or 1 MiB; median error "
          f"{statistics.median(errors):+.1f}%, from {min(errors):+.1f}% to {max(errors):+.1f}%")


if __name__ == "__main__":
    main()
