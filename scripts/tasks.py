#!/usr/bin/env python3
"""Eight questions of a new user, each answered with documented commands.

A task is a list of commands and their expected output. Every command and option in them must be in
README or docs/guide, so that a reader of only those could have typed them. Needs root for changes
to the system, and undoes them.

Exit status: 0 every task is answered, 1 one is not.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import ROOT

# Keeps 64 MiB that could use 2M folios, until it is killed.
HOLDER = """
import mmap, time
memory = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.write(bytes(64 << 20))
print("ready", flush=True)
time.sleep(600)
"""
C = """
#include <stdlib.h>
#include <string.h>
int main(void) { char *p = malloc(64 << 20); memset(p, 1, 64 << 20); return p[12345] - 1; }
"""

TASKS = [
    ("Which kernel is best for my program, and which rules make it so?",
     ["folio predict cc1.folio --kernel 6.12,6.18 --machine altra --warm"],
     [r"is best for time: a run takes .* than with", r"What makes the difference to .*since 6\.1"]),
    ("Which rule causes it, for every result?",
     ["folio predict cc1.folio --kernel 6.12,6.18 --machine altra --why"],
     [r"fault\.exec \(since 6\.17\)", r"in order"]),
    ("Which settings of this system are best for my program?",
     ["folio advise cc1.folio"],
     [r"Best for time: |Keep the settings as they are", r"run time +memory"]),
    ("My process runs: what would give it larger folios?",
     ["folio advise {pid}"],
     [r"folio collapse {pid}|thp\.enabled=always", r"gains 6[0-9](\.\d)? MiB"]),
    ("Does a large heap help my program?",
     ["folio verify --env GLIBC_TUNABLES=glibc.malloc.hugetlb=1 --runs 10 -- ./alloc"],
     # Times vary; the faults are counted.
     [r"confirmed|inconclusive|not proved", r"minor faults \d+ \[.*\] \d+ \[.*\] 0\.0\d+ \["]),
    ("Change a setting and take it back.",
     ["folio tune --set khugepaged.max_ptes_none=500 --yes", "folio tune --undo"],
     [r"khugepaged\.max_ptes_none.*changed", r"put back"]),
    ("What changed on this host since I looked?",
     ["folio maps {pid} --json > before.json", "folio collapse {pid}", "folio maps {pid} --diff before.json"],
     [r"\+64 MiB in 2M folios"]),
    ("Folio sizes for my dashboards.",
     ["folio maps --name {name} --openmetrics folio.prom", "cat folio.prom"],
     [r"# TYPE \S+ gauge", r"size="]),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folio", default=ROOT / "target/release/folio", type=Path)
    folio = parser.parse_args().folio.resolve()
    if os.geteuid() != 0:
        print("tasks.py: SKIPPED: needs root", file=sys.stderr)
        return 0
    known = "\n".join(path.read_text() for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/guide/*.md"))])
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        shutil.copy(ROOT / "traces/demo.folio", place / "cc1.folio")
        (place / "folio").symlink_to(folio)
        (place / "alloc.c").write_text(C)
        subprocess.run(["gcc", "-O1", "-fno-builtin", "-o", "alloc", "alloc.c"], cwd=place, check=True)
        holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True)
        try:
            holder.stdout.readline()
            names = {"pid": holder.pid, "name": Path(f"/proc/{holder.pid}/comm").read_text().strip()}
            for question, commands, expected in TASKS:
                failed += not answered(place, question, commands, expected, names, known)
        finally:
            holder.kill()
            holder.wait()
    print(f"tasks.py: {len(TASKS) - failed} of {len(TASKS)} tasks answered")
    return 1 if failed else 0


def answered(place, question, commands, expected, names, known):
    """Whether the commands are documented and print the expected output."""
    environment = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}", "XDG_STATE_HOME": str(place / "state")}
    said, missing = "", []
    for command in commands:
        command = command.format(**names)
        own = command.split(" -- ")[0]
        missing += [word for word in shlex.split(own) if word.startswith("--") and word not in known]
        done = subprocess.run(command, shell=True, cwd=place, env=environment, capture_output=True,
                              text=True, timeout=300, check=False)
        said += done.stdout + done.stderr
        if done.returncode not in (0, 1):
            missing.append(f"{command}: exit {done.returncode}")
    text = re.sub(r"\s+", " ", said)
    missing += [pattern for pattern in (one.replace("{pid}", str(names["pid"])) for one in expected)
                if not re.search(pattern, text)]
    count = f"{len(commands)} command{'s' if len(commands) > 1 else ''}"
    print(f"{'ok    ' if not missing else 'FAILED'} {question} ({count})")
    for what in missing:
        print(f"       missing: {what}")
    if missing:
        print("       " + "\n       ".join(said.splitlines()[:30]))
    return not missing


if __name__ == "__main__":
    sys.exit(main())
