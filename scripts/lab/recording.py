"""Recordings of a program with known stores: under QEMU, and at full speed."""

import json
import shutil

from check import THP, Skipped, check, expect, settings, size_name

PAGES, TIMES, STEP, THREADS = 10, 20, 65536, 2      # of programs/counted.c


def recorded(run, name, *words):
    """The output of the program under a recorder, and the rows of its trace."""
    counted, trace = run.bundle / "tests" / "counted", run.folder / f"{name}.folio"
    if not counted.exists():
        raise Skipped("the bundle was made without a C compiler")
    said = run.folio("record", *words, "-o", trace, "--", counted, counted, wanted=(14,))
    rows = [json.loads(line) for line in run.folio("trace", "cat", trace, "--json").splitlines()]
    return [int(line, 16) for line in said.split()], rows


def stores(rows, base):
    """Stores to each page from a base."""
    counts = dict.fromkeys(range(base, base + PAGES * STEP, STEP), 0)
    for row in rows:
        if row["op"] == "write" and row["addr"] in counts:
            counts[row["addr"]] += row["len"]
    return counts


@check
def record(run):
    """Under QEMU, every store of two processes with two threads each is counted."""
    if not shutil.which("qemu-aarch64"):
        raise Skipped("there is no qemu-aarch64; Debian 12's qemu-user has one with plugins")
    bases, rows = recorded(run, "qemu")
    expect(len(bases) == 2, f"the program printed {len(bases)} addresses")
    wanted = THREADS * TIMES * bases.count(bases[0])
    for base in bases:
        counts = stores(rows, base)
        expect(set(counts.values()) == {wanted}, f"not {wanted} stores to each page: {counts}")
    total = sum(row["len"] for row in rows if row["op"] in ("exec", "read", "write"))
    return f"{total} references, {wanted} stores to each of {PAGES} pages"


@check
def record_live(run):
    """At full speed, there is one fault for each of the program's pages."""
    sizes = {f"thp.{size_name(path.parent)}": "never" for path in THP.glob("hugepages-*/enabled")}
    with settings(run, {**sizes, "thp.enabled": "never"}):
        bases, rows = recorded(run, "live", "--live")
    for base in bases:
        counts = stores(rows, base)
        wanted = bases.count(base)
        expect(set(counts.values()) == {wanted}, f"not {wanted} faults for each page: {counts}")
    return f"{len(rows)} rows, a fault for each of {PAGES} pages of {len(bases)} processes"
