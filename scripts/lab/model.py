"""Compares the model with the machine's kernel."""

import os
import sys

from check import check, expect, settings

PROGRAMS = 200                  # random programs per kind
# Steps per program about collapse with 16K and 64K pages (otherwise 40): many clear or copy 32 MiB
# or 512 MiB.
STEPS_OF_LARGE = 20


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


def programs(run, kind, *words):
    """Runs random programs of a kind; the model must agree with all."""
    with settings(run, {"thp.enabled": "madvise"}):
        found = run.folio_json("crosscheck", kind, "--programs", PROGRAMS, *words, "--keep",
                               run.log_folder / kind, seconds=1500)
    equal = found["nr_equal"] + len(found["repeated_equal"])
    expect(equal == PROGRAMS, f"{equal} of {PROGRAMS} equal, {found['nr_not_judged']} not judged")
    return f"{equal} programs, {found['nr_steps']} steps, {found['nr_pages']} pages"


@check
def crosscheck_cow(run):
    return programs(run, "cow")


@check
def crosscheck_collapse(run):
    """With 64K pages programs have one block of 512 MiB."""
    is_large = os.sysconf("SC_PAGE_SIZE") > 4 << 10
    return programs(run, "collapse", *(["--steps", STEPS_OF_LARGE] if is_large else []))


@check
def crosscheck_program(run):
    """Real programs on cold files: a loader, an interpreter, processes and pipes."""
    programs = {"true": ["/bin/true"], "python": [sys.executable, "-c", "import json"],
                "pipe": ["/bin/sh", "-c", "ls -l /usr/bin | sort -r | wc -l"]}
    told = []
    for name, words in programs.items():
        found = run.folio_json("crosscheck", "program", "--keep", run.log_folder / name, "--",
                               *words, seconds=900)
        rows = found["rows"]
        other = [f"{row['name']}: {row['outcome']} {row['reason'] or ''}" for row in rows
                 if row["outcome"] != "equal"]
        expect(not other, f"{len(other)} of {len(rows)}: {'; '.join(other[:3])}")
        insertions = sum(row["compared"]["insertions"] for row in rows)
        expect(insertions, f"nothing was compared of {name}")
        told.append(f"{name} {len(rows)} equal, {insertions} insertions")
    return "; ".join(told)
