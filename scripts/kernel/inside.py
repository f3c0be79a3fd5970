#!/usr/bin/env python3
"""Runs in the machine of trial.py: programs with the settings off and on, and the model's check.

The plan is in plan.json next to this file. The results go to the second NVMe namespace, in the form
that guest.results_of reads.
"""

import json
import os
import pathlib
import re
import subprocess
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
SETTINGS = pathlib.Path("/sys/kernel/mm/largefolio")
EVENTS = pathlib.Path("/sys/kernel/tracing/events")
INSERTED = EVENTS / "filemap" / "mm_filemap_add_to_page_cache"
DATA = pathlib.Path("/var/tmp/trial")
NR_FILES = 3            # of the project, and one with main()
NODE = """const rows = [];
for (let i = 0; i < 20000; i++) rows.push(JSON.stringify({ i, half: i / 2, text: 'row ' + i }));
require('crypto').createHash('sha256').update(rows.join('')).digest('hex');
require('fs').writeFileSync(process.argv[1] || '/dev/null', String(rows.length));
console.log('ready'); setTimeout(() => {}, 1e6);
"""


def run(*words, **how):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **how)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {(done.stderr or done.stdout)[-400:]}")
    return done.stdout


def folio(*words):
    return json.loads(run(HERE / "folio", *words, "--json"))


def chosen(text):
    """The word in brackets of a setting, or the whole value."""
    match = re.search(r"\[(\S+)\]", text)
    return match[1] if match else text.strip()


def settings():
    return {path.name: chosen(path.read_text()) for path in sorted(SETTINGS.iterdir())}


def apply(values):
    for name, value in values.items():
        (SETTINGS / name).write_text(value)
        if (now := settings()[name]) != value:
            raise RuntimeError(f"{name} is {now} after {value} was written")


def disk(nr):
    """Finds a disk by its namespace."""
    [path] = [path.parent for path in pathlib.Path("/sys/block").glob("nvme*/nsid")
              if path.read_text().strip() == str(nr)]
    return path.name


def counters():
    pairs = [line.split() for line in open("/proc/vmstat", encoding="ascii")]
    found = {name: int(value) for name, value in pairs if name in ("pgfault", "pgmajfault")}
    sectors = int(pathlib.Path(f"/sys/block/{disk(1)}/stat").read_text().split()[2])
    return {"faults": found["pgfault"], "major_faults": found["pgmajfault"],
            "read_bytes": sectors * 512}


class Histogram:
    """Counts events by a field while it lasts."""

    def __init__(self, event, field):
        self.event, self.field = event, field

    def __enter__(self):
        self.can_count = (self.event / "hist").exists()     # CONFIG_HIST_TRIGGERS
        if self.can_count:
            (self.event / "trigger").write_text(f"hist:keys={self.field}")
        return self

    def counts(self):
        text = (self.event / "hist").read_text() if self.can_count else ""
        shape = rf"\{{ {self.field}:\s*(\d+) \}} hitcount:\s*(\d+)"
        return {key: int(count) for key, count in re.findall(shape, text)}

    def __exit__(self, *_):
        if self.can_count:
            (self.event / "trigger").write_text(f"!hist:keys={self.field}")


def by_size(folios):
    return {str(each["folio_bytes"]): each.get("mapped_bytes", each.get("cached_bytes"))
            for each in folios}


def text_of(*which):
    """Mapped text of processes by folio size."""
    return by_size(each for each in folio("maps", *which)["totals"] if each["kind"] == "text")


class Compile:
    """A project of several files."""

    def __init__(self):
        self.folder = DATA / "project"
        self.folder.mkdir(parents=True)
        for nr in range(NR_FILES):
            body = "".join(f"int f{nr}_{i}(int a) {{ for (int j = 0; j < a; j++) a ^= j * {i} % 7; "
                           "return a; }\n" for i in range(20))
            source = "#include <stdio.h>\n#include <stdlib.h>\n" + body
            (self.folder / f"part{nr}.c").write_text(source)
        calls = "".join(f"int f{nr}_1(int);\n" for nr in range(NR_FILES))
        sums = " + ".join(f"f{nr}_1({nr})" for nr in range(NR_FILES))
        (self.folder / "main.c").write_text(
            f"#include <stdio.h>\n{calls}int main(void) {{ printf(\"%d\\n\", {sums}); }}\n")
        self.program = pathlib.Path(run("gcc", "-print-prog-name=cc1").strip())

    def go(self):
        objects = []
        for source in sorted(self.folder.glob("*.c")):
            run("gcc", "-O2", "-c", source, "-o", source.with_suffix(".o"))
            objects.append(source.with_suffix(".o"))
        run("gcc", "-o", self.folder / "program", *objects)
        run(self.folder / "program")
        return None


class Postgres:
    """A new cluster, a small database and some transactions."""

    def __init__(self):
        [self.bin] = pathlib.Path("/usr/lib/postgresql").glob("*/bin")
        self.program = self.bin / "postgres"
        self.folder = DATA / "cluster"

    def server(self, *words):
        return run("runuser", "-u", "postgres", "--", *words, cwd="/var/tmp",
                   env={"PATH": f"{self.bin}:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C",
                        "PGHOST": "/var/tmp"})

    def go(self):
        run("rm", "-rf", self.folder)
        run("install", "-d", "-o", "postgres", self.folder)
        self.server("initdb", "-D", self.folder, "--no-sync", "-A", "trust")
        self.server("pg_ctl", "-D", self.folder, "-w", "-t", "600", "-l", self.folder / "log",
                    "-o", "-c unix_socket_directories=/var/tmp -c listen_addresses=''", "start")
        try:
            self.server("pgbench", "-q", "-i", "-s", "1", "postgres")
            self.server("pgbench", "-n", "-t", "20", "postgres")
            return text_of("--name", "postgres")
        finally:
            self.server("pg_ctl", "-D", self.folder, "-w", "-t", "600", "-m", "fast", "stop")


class Node:
    """A script that stays until its text was read."""

    def __init__(self):
        self.node = run("sh", "-c", "readlink -f $(command -v node)").strip()
        library = re.search(r"/\S*/libnode\.so\S*", run("ldd", self.node))
        # Debian's program is small, and its text is in the library.
        self.program = pathlib.Path(library[0] if library else self.node).resolve()

    def go(self):
        with subprocess.Popen([self.node, "-e", NODE], stdout=subprocess.PIPE, text=True) as child:
            try:
                if child.stdout.readline() != "ready\n":
                    raise RuntimeError("node ended early")
                return text_of(child.pid)
            finally:
                child.kill()


def cold(program):
    """Drops the page cache; a program's file must be out of it."""
    run("sync")
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    pages = run("fincore", "--noheadings", "--output", "PAGES", program).strip()
    if pages != "0":
        raise RuntimeError(f"{program}: {pages} pages stay in the page cache")


def measured(workload):
    """One run with a cold page cache."""
    cold(workload.program)
    began, before = time.monotonic(), counters()
    with Histogram(INSERTED, "order") as inserted:
        text = workload.go()
        after = counters()
        folios = inserted.counts()
    [own] = folio("maps", "--file", workload.program)["files"]
    return {**{name: after[name] - before[name] for name in before},
            "folios_by_order": folios, "text": text,
            "program": str(workload.program), "program_cache": by_size(own["folios"]),
            "seconds": round(time.monotonic() - began, 1)}


def crosschecked(kernel, check):
    """Compares this kernel with the model under a kernel's rules."""
    command = [HERE / "folio-lab", "crosscheck", *check["verb"], "--fs", "xfs", "--window", "128K",
               "--kernel", kernel, "--keep", DATA / "kept", "--json", *check["words"]]
    began = time.monotonic()
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=False)
    return {"kernel": kernel, "status": done.returncode, "json": done.stdout,
            "errors": done.stderr[-1500:], "seconds": round(time.monotonic() - began, 1)}


def save(found):
    """Writes the results so far."""
    data = json.dumps(found).encode()
    with open(f"/dev/{disk(2)}", "r+b", buffering=0) as device:
        device.write(b"=== trial 0 %d\n" % len(data) + data + b"=== end 0 0\n")
        os.fsync(device.fileno())


def say(words):
    print(f"trial: {words}", flush=True)


def trial(plan, found):
    found["release"] = os.uname().release
    found["at_boot"] = settings()
    off = {name: found["at_boot"][name] for name in plan["settings"]}
    DATA.mkdir(parents=True, exist_ok=True)
    os.chmod(DATA, 0o755)
    workloads = {"node": Node(), "compile": Compile(), "postgres": Postgres()}
    for nr in range(plan["rounds"]):
        for name, workload in workloads.items():
            for state, values in (("off", off), ("on", plan["settings"])):
                apply(values)
                result = measured(workload)
                found["runs"].append({"workload": name, "settings": state, "round": nr, **result})
                save(found)
                say(f"{name} {state}, {result['seconds']} s")
    # The disks of crosscheck, which can be built in.
    subprocess.run(["modprobe", "-a", "zram", "loop"], check=False)
    for name, check in plan["checks"].items():
        # With the settings off, these rules must not fit.
        for state, values in (("on", plan["settings"]), ("off", off)):
            apply(values)
            result = crosschecked(plan["rules"], check)
            found["checks"].append({"check": name, "settings": state, **result})
            save(found)
            say(f"crosscheck {name} {state}: status {result['status']}, {result['seconds']} s")
    apply(off)
    found["at_end"] = settings()


def main():
    found = {"runs": [], "checks": [], "error": None}
    try:
        trial(json.loads((HERE / "plan.json").read_text()), found)
    except Exception:
        found["error"] = traceback.format_exc()
    save(found)
    say(found["error"] or "done")


if __name__ == "__main__":
    main()
