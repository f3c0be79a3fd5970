"""Compares the folio sizes of `folio maps` with smaps and with /proc/kpageflags."""

import os
import pathlib
import re
import shutil
import sys

import pagemap
from check import THP, Skipped, check, expect, idle, settings, size_name, standing

MTHP_KB_MAX = 2 << 10           # larger folios are PMD-sized and may be unavailable
MTHP_LEAST = 8 << 20            # bytes of the 16 MiB that must have the requested size
LINKED_FOR = 64 << 10           # page size that Debian links arm64 programs for


@check
def maps(run):
    """For a stopped process, the sizes add up to the numbers in smaps."""
    with idle() as pid:
        found = run.folio_json("maps", pid)
        smaps = pathlib.Path(f"/proc/{pid}/smaps").read_text()
        zero = {area.start: pagemap.zero_bytes(pid, area) for area in pagemap.areas(pid)}
    page = os.sysconf("SC_PAGE_SIZE")
    expect(found["page_bytes"] == page, f"pages of {found['page_bytes']}, not {page}")
    pmd = int((THP / "hpage_pmd_size").read_text())
    expect(found["pmd_bytes"] == pmd, f"PMD size {found['pmd_bytes']}, not {pmd}")
    expect(found["access"] == "full", f"access is {found['access']}")
    wrong = []
    for start, rss in rss_of(smaps).items():
        mapping = [each for each in found["processes"][0]["mappings"] if each["start"] == start]
        shown = sum(folio["mapped_bytes"] for each in mapping for folio in each["folios"])
        if shown != rss + zero[start]:
            wrong.append(f"{start:x}: {shown} mapped, Rss {rss}, zero pages {zero[start]}")
    expect(not wrong, f"{len(wrong)} mappings differ from smaps: {'; '.join(wrong[:3])}")
    sizes = sorted({total["folio_bytes"] >> 10 for total in found["totals"]})
    return f"{sum(rss_of(smaps).values()) >> 10} KiB, folios of {sizes} KiB"


def rss_of(smaps):
    """Resident bytes by the mapping's start."""
    found = re.findall(r"^([0-9a-f]+)-[0-9a-f]+ .*?^Rss: +(\d+) kB", smaps, re.M | re.S)
    return {int(start, 16): int(kb) << 10 for start, kb in found if int(kb)}


@check
def maps_text(run):
    """The text output, and the ELF output."""
    with idle() as pid:
        said = run.folio("maps", pid)
    page = os.sysconf("SC_PAGE_SIZE") >> 10
    expect(f"{page}K pages" in said, f"does not report {page}K pages")
    run.folio("maps", "--elf", os.path.realpath(sys.executable))


@check
def maps_mthp(run):
    """Private memory in each of the kernel's folio sizes, page by page."""
    names = sorted(THP.glob("hugepages-*kB/enabled"), key=kb_of)
    if not names:
        raise Skipped("this kernel has no per-size settings; Linux 6.8 introduced them")
    told = []
    for path in names:
        if kb_of(path) > MTHP_KB_MAX:
            continue
        off = {f"thp.{size_name(other.parent)}": "never" for other in names}
        with settings(run, {**off, f"thp.{size_name(path.parent)}": "always"}), idle() as pid:
            found = compared(run, pid, lambda area: not area.path and "w" in area.permissions)
        large = found.get(kb_of(path) << 10, 0)
        expect(large >= MTHP_LEAST, f"{large} bytes in folios of {kb_of(path)} KiB")
        told.append(f"{size_name(path.parent)} {large >> 20}M")
    return f"equal to kpageflags: {', '.join(told)}"


def kb_of(path):
    return int(path.parent.name[10:-2])


def compared(run, pid, is_meant):
    """Compares `folio maps` with kpageflags; returns mapped bytes by folio size of the selected
    areas.
    """
    found = run.folio_json("maps", pid)
    mappings = {each["start"]: each for each in found["processes"][0]["mappings"]}
    total = {}
    for area in filter(is_meant, pagemap.areas(pid)):
        by_size, contpte = pagemap.sizes(pid, area)
        cells = mappings[area.start]["folios"] if area.start in mappings else []
        said = {}
        for cell in cells:
            size = cell["folio_bytes"]
            said[size] = said.get(size, 0) + cell["mapped_bytes"]
        where = f"{area.start:x} {area.path}"
        expect(said == by_size, f"{where}: folio says {said}, kpageflags {by_size}")
        blocks = sum(cell["contpte_bytes"] for cell in cells)
        expect(blocks == contpte, f"{where}: {blocks} in contpte blocks, kpageflags {contpte}")
        for size, mapped_bytes in by_size.items():
            total[size] = total.get(size, 0) + mapped_bytes
        total["contpte"] = total.get("contpte", 0) + contpte
    return total


@check
def maps_text_blocks(run):
    """A program with text in contpte blocks, after `warm` and under `folio run`."""
    block = pagemap.CONTPTE_PAGES * pagemap.PAGE
    told = []
    for how in ("cold", "run", "warm"):
        program = large_python(run, how, block)
        words = [run.folio_path, "run", "--text", "large", "--"] if how == "run" else []
        if how == "warm":
            run.folio("warm", program)
        with standing([*words, program]) as (pid, _):
            found = compared(run, pid, lambda area: area.path == str(program))
        told.append(f"{how} {found['contpte'] >> 10}K")
        expect(found["contpte"] or how == "cold", f"{how}: no text in contpte blocks: {found}")
    return f"contpte blocks of {block >> 10}K: {', '.join(told)}"


def large_python(run, name, block):
    """A fresh copy of python, in the folios of a new copy, at an address where blocks can map its
    text.
    """
    python, program = os.path.realpath(sys.executable), run.folder / name / "python3"
    program.parent.mkdir()
    # A program at fixed addresses keeps its alignment, so `align` returns an error.
    if block > LINKED_FOR:
        run.folio("align", python, "-o", program, wanted=(0, 2))
    if not program.exists():
        shutil.copy(python, program)
    os.sync()
    return program
