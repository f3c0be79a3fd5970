#!/usr/bin/env python3
"""Counts the instructions of memory operations in kernels (recordings/README.md, "Instructions").

    scripts/recordings/instructions.py 6.12-largefolio 7.3-counted --variant amd64
    scripts/recordings/instructions.py 6.18 --variant arm64 --boots 1 --out DIR

QEMU's clock advances by one nanosecond per instruction, so `probe/count.c` reads the clock around
each operation. A kernel that is built here is counted with its settings off, and with each of
SETTINGS. One file per kernel is written, and the table is printed. Needs qemu-system, gcc, an apt
that reaches a Debian mirror, xfsprogs, and what building a kernel needs.
"""

import argparse
import collections
import fnmatch
import pathlib
import re
import statistics
import subprocess
import sys

import built
import guest
import packages
import record

ROOT = guest.ROOT
SIZES_KB = [4, 16, 64, 256, 1024, 2048]
REGION_MB = 4
# A region has few folios of these sizes, so it is made more often.
LARGE_KB, LARGE_TIMES = 1024, 3
GIGANTIC_KB = 1 << 20
FILE_BYTES = 8 << 20
OFF = "off"
# Settings in /sys/kernel/mm/largefolio: their value at boot, and what is counted with another one.
SETTINGS = {
    "clear": ("off", ["fault", "huge", "gigantic"]),
    "copy": ("pages", ["huge"]),
    "exec_order": ("off", ["file"]),
    "owners_max": ("0", ["memory"]),
    "pmd_counts": ("one", ["memory"]),
}
# What is counted besides the values at boot, by the kernel that is built.
FORMS = {
    "6.12-largefolio": ["clear=merged", "exec_order=window"],
    "7.3-counted": ["copy=extents", "owners_max=40", "pmd_counts=pages"],
}
# Sizes of the runs that only show how folios are zeroed.
CLEARED_KB = [64, 2048]
GIGANTIC_ROUNDS = 2
BOOT_SECONDS = 3000

Key = collections.namedtuple("Key", "settings operation kib")
Sample = collections.namedtuple("Sample", "folios pages values")


class CountGuest(guest.Guest):
    """A machine whose clock counts instructions, with an XFS disk and one for the results. For a
    kernel without disks, the results leave by the second serial port.
    """

    memory_mb = 4096
    result_disk = 1
    has_disks = True

    def kinds(self):
        return [kind for kind in super().kinds()
                if self.has_disks and kind[0] in ("xfs", "result")]

    def result(self, disks):
        return super().result(disks) if self.has_disks else self.work / "result.serial"

    def command(self, initramfs, disks):
        words = super().command(initramfs, disks)
        if not self.has_disks:
            words += ["-serial", f"file:{self.result(disks)}"]
        cpu = words.index("-cpu") + 1
        words[cpu] = words[cpu].replace("qemu64,", "qemu64,+pdpe1gb,")
        words[cpu] = words[cpu].replace("max,", f"max,cntfrq={10**9},")
        return [*words, "-icount", "shift=0", "-rtc", "clock=vm,base=2026-01-01"]


def parts_of(form):
    """What is counted under a setting: all of it with the values at boot."""
    if form != OFF:
        return SETTINGS[form.partition("=")[0]][1]
    return ["memory", "huge", "gigantic", "file"]


def commands(forms, rounds, has_disks=True, only="*"):
    """The init's list for one boot, with the parts whose names match `only`."""
    lines = [f"result /dev/{'@2' if has_disks else 'ttyS1'}", f"set {guest.THP}/enabled never",
             *guest.KHUGEPAGED_ASLEEP]
    if has_disks:
        lines += ["mount /dev/@1 xfs /xfs", f"make /xfs/data {FILE_BYTES}"]
    lines.append("run calibrate calibrate")
    for form in forms:
        key, _, value = form.partition("=")
        if form != OFF:
            lines.append(f"require {built.SETTINGS}/{key} {value}")
        lines += [line for part in parts_of(form)
                  if (has_disks or part != "file") and fnmatch.fnmatch(part, only)
                  for line in runs(form, part, rounds)]
        if form != OFF:
            lines.append(f"require {built.SETTINGS}/{key} {SETTINGS[key][0]}")
    return lines


def runs(form, part, rounds):
    """The list's lines for one part; a result's name is FORM:PART:KIB."""
    if part == "file":
        return [f"run {form}:file:0 file=/xfs/data rounds={rounds}"]
    if part == "huge":
        times = rounds * LARGE_TIMES
        return [f"run {form}:huge:2048 huge kib=2048 mib={REGION_MB} rounds={times}"]
    if part == "gigantic":
        return [f"run {form}:huge:{GIGANTIC_KB} huge kib={GIGANTIC_KB} mib={GIGANTIC_KB >> 10} "
                f"rounds={GIGANTIC_ROUNDS}"]
    lines = []
    for kb in SIZES_KB if part == "memory" else CLEARED_KB:
        enabled = f"{guest.THP}/hugepages-{kb}kB/enabled"
        times = rounds * LARGE_TIMES if kb >= LARGE_KB else rounds
        run = [f"run {form}:memory:{kb} kib={kb} mib={REGION_MB} rounds={times}"]
        lines += [f"set {enabled} always", *run, f"set {enabled} never"] if kb > 4 else run
    return lines


def parsed(text):
    """A result's samples by operation, its known code, and its file's folios and pages."""
    samples, known, file = {}, {}, None
    lines = text.splitlines()
    if not lines or lines[-1] != "end":
        raise ValueError("a result has no end")
    for line in lines[1:-1]:
        kind, *words = line.split()
        if kind == "k":
            known[words[0]] = int(words[1]), int(words[2])
        elif kind == "f":
            file = int(words[0]), int(words[1])
        else:
            values = []
            for word in words[3:]:
                values += [values[-1]] * (int(word[1:]) - 1) if word[0] == "x" else [int(word)]
            samples[words[0]] = Sample(int(words[1]), int(words[2]), values)
    return samples, known, file


def collected(results):
    """The samples of one boot by Key; the known code; the folios of the file by form."""
    by_key, known, files = {}, {}, {}
    for name, (status, text) in results.items():
        if status:
            raise RuntimeError(f"{name}: {text.strip()[-200:]}")
        samples, of_run, file = parsed(text)
        known |= of_run
        if name == "calibrate":
            continue
        form, part, kib = name.split(":")
        if file:
            files[form] = file
        for operation, sample in samples.items():
            prefix = "hugetlb_" if part == "huge" else ""
            by_key[Key(form, prefix + operation, int(kib))] = sample
    return by_key, known, files


def merged(boots):
    """One row per Key: all boots' samples together, and each boot's median."""
    rows = []
    for key in boots[0]:
        each = [boot[key] for boot in boots]
        values = sorted(value for sample in each for value in sample.values)
        rows.append({
            **key._asdict(), "folios": each[0].folios, "pages": each[0].pages, "n": len(values),
            "median": statistics.median_low(values), "min": values[0], "max": values[-1],
            "boots": [statistics.median_low(sample.values) for sample in each],
        })
    return rows


def toml(head, known, files, rows):
    """The file of one kernel."""
    def value(each):
        if isinstance(each, list):
            return f"[{', '.join(map(value, each))}]"
        return f'"{each}"' if isinstance(each, str) else str(each)

    def inline(row):
        return "{ " + ", ".join(f"{key} = {value(each)}" for key, each in row.items()) + " }"

    lines = [
        "# Written by scripts/recordings/instructions.py.",
        *(f"{key} = {value(each)}" for key, each in head.items()), "",
        "# `boots`: each boot's median. The other values are of all boots together.",
        "rows = [", *(f"    {inline(row)}," for row in rows), "]", "",
        "# Code of known length: units, instructions.", "[known]",
        *(f"{name} = [{units}, {nr}]" for name, (units, nr) in known.items()), "",
        "# The mapped file's folios and pages, by settings.", "[files]",
        *(f'"{form}" = [{folios}, {pages}]' for form, (folios, pages) in files.items()),
    ]
    return "\n".join(lines) + "\n"


def each_folio(row, rows):
    """Instructions per folio of the row's operation, without what it takes for no folio."""
    nothing = 0
    for other in rows:
        if other["operation"] == f"{row['operation']}_none" and \
                all(other[key] == row[key] for key in ("settings", "kib")):
            nothing = other["median"]
    return (row["median"] - nothing) / row["folios"] if row["folios"] else row["median"]


def table(rows):
    """The rows as text for people."""
    lines = ["| settings | operation | KiB | n | median | min | max | boots | per folio "
             "| per page |", "|---" * 10 + "|"]
    for row in rows:
        folio = each_folio(row, rows)
        page = folio * row["folios"] / row["pages"] if row["folios"] and row["pages"] else 0
        varies = "the same" if len(set(row["boots"])) == 1 else \
            f"{min(row['boots']):,} .. {max(row['boots']):,}"
        lines.append(f"| {row['settings']} | {row['operation']} | {row['kib'] or '-'} "
                     f"| {row['n']} | {row['median']:,} | {row['min']:,} "
                     f"| {row['max']:,} | {varies} | {folio:,.1f} | {page:,.1f} |")
    return "\n".join(lines)


def release_of(results):
    return re.search(r" release=(\S+)", results["calibrate"][1])[1]


def count(work, name, variant, args):
    """Boots a kernel several times; writes its file and prints its table."""
    tree = built.tree_of(work, name, variant)
    has_disks = "config" not in built.KERNELS.get(name, {})
    forms = [OFF, *FORMS.get(name, [])]
    boots, known, files = [], None, {}
    for boot in range(args.boots):
        machine = CountGuest(work, tree, variant)
        machine.has_disks = has_disks
        machine.modules = guest.Modules(tree).closure(["nvme", "xfs"])
        machine.probe = work / "probe" / guest.arch_of(variant) / "count"
        # Packaged kernels zero new pages once more. Without ACPI, calibrating the APIC's timer takes
        # minutes here.
        machine.options = ("init_on_alloc=0 hugepagesz=2M hugepages=8 hugepagesz=1G hugepages=1"
                           + ("" if has_disks else " nolapic_timer"))
        results = machine.run(machine.probe.parent, commands(forms, args.rounds, has_disks, args.only),
                              BOOT_SECONDS)
        by_key, code, folios = collected(results)
        if known not in (None, code):
            raise RuntimeError(f"known code counts {code}, and before {known}")
        known = code
        files |= folios
        boots.append(by_key)
        print(f"{name} {variant}: boot {boot + 1} of {args.boots}", file=sys.stderr, flush=True)
    rows = merged(boots)
    head = {"kernel": built.archive_name(name, variant), "release": release_of(results),
            "qemu": version_of(variant), "boots": args.boots, "rounds": args.rounds}
    out = args.out / f"{head['kernel']}.toml"
    out.write_text(toml(head, known, files, rows))
    print(f"{out}\n{table(rows)}", flush=True)


def version_of(variant):
    program, _ = guest.MACHINES[guest.arch_of(variant)]
    shown = subprocess.run([program, "--version"], check=True, capture_output=True, text=True)
    return re.search(r"version (\S+)", shown.stdout)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="+", help=" ".join([*packages.VERSIONS, *built.KERNELS]))
    parser.add_argument("--variant", action="append")
    parser.add_argument("--boots", type=int, default=3, help="boots per kernel [default: 3]")
    parser.add_argument("--rounds", type=int, default=2,
                        help="times that a boot does everything [default: 2]")
    parser.add_argument("--only", metavar="PATTERN", default="*",
                        help="only matching parts of: memory, huge, gigantic, file")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target" / "recordings")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "recordings" / "instructions")
    args = parser.parse_args()
    jobs = [(name, variant) for name in args.kernels
            for variant in args.variant or record.variants_of(name)]
    guest.require({variant for _, variant in jobs})
    work = args.work.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    record.make_probe(work)
    is_complete = True
    for name, variant in jobs:
        try:
            count(work, name, variant, args)
        except (packages.Missing, RuntimeError, ValueError, subprocess.SubprocessError) as error:
            print(f"  {name} {variant}: {error}", file=sys.stderr, flush=True)
            is_complete = False
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
