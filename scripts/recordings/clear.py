#!/usr/bin/env python3
"""Records in which order kernels with kernel/clear zero new folios (recordings/README.md, "Clearing").

    scripts/recordings/clear.py 6.12-largefolio-preempt --variant amd64

Each form of the setting is recorded for each folio size, and under each preemption model of a
kernel that can choose it at boot. Has the same requirements as record.py.
"""

import argparse
import pathlib
import subprocess
import sys

import built
import cow
import guest
import packages
import record

FORMS = {"off": "converging", "posted": "posted", "merged": "merged"}
GIGANTIC_KB = 1 << 20
FAULTS = 20     # random ones for each size up to this one
FAULTS_KB = 2048


class ClearGuest(cow.CowGuest):
    """A machine with room for a gigantic page."""

    memory_mb = 4096

    def command(self, initramfs, disks):
        words = super().command(initramfs, disks)
        return [word.replace("qemu64,", "qemu64,+pdpe1gb,") for word in words]


def sizes_kb(page):
    """Folio sizes that faults on anonymous memory can have."""
    pmd_kb = page * (page // 8) >> 10
    return [page >> 10 << order for order in range(2, 14) if page >> 10 << order <= pmd_kb]


def commands(page, model, is_gigantic, forms):
    """The init's list for one boot."""
    lines = [f"mkdir {record.INSTANCE}", "result /dev/@1", f"set {guest.THP}/enabled never",
             *guest.KHUGEPAGED_ASLEEP]
    for form in forms:
        words = f"trace={record.INSTANCE} edits=clear={FORMS[form]}+preemption={model}"
        lines.append(f"require {built.SETTINGS}/clear {form}")
        for kb in sizes_kb(page):
            enabled = f"{guest.THP}/hugepages-{kb}kB/enabled"
            lines += [f"set {enabled} always",
                      f"run {form}_{model}_{kb} kib={kb} seed={kb} {words}"
                      f" faults={FAULTS if kb <= FAULTS_KB else 0}",
                      f"set {enabled} never"]
        if is_gigantic:
            lines.append(f"run {form}_{model}_{GIGANTIC_KB} kib={GIGANTIC_KB} huge edges=1 {words}")
    return lines


def record_clears(work, name, variant, out):
    tree = built.tree_of(work, name, variant)
    page = guest.page_of(variant)
    is_dynamic = "PREEMPT_DYNAMIC" in built.KERNELS[name]["options"]
    results = {}
    for model in ("none", "voluntary", "full") if is_dynamic else ("none",):
        machine = ClearGuest(work, tree, variant)
        machine.modules = {}
        machine.probe = work / "probe" / guest.arch_of(variant) / "clear"
        is_gigantic = variant == "amd64"
        built.equip(machine, name)
        machine.options += f" preempt={model}" if is_dynamic else ""
        machine.options += " hugepagesz=1G hugepages=1" if is_gigantic else ""
        # Without CONFIG_PREEMPTION, the posted form changes nothing.
        forms = [form for form in FORMS if is_dynamic or form != "posted"]
        results |= machine.run(machine.probe.parent, commands(page, model, is_gigantic, forms), 3000)
    cow.save(work, built.archive_name(name, variant), results, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="+", help=" ".join(built.KERNELS))
    parser.add_argument("--variant", action="append")
    parser.add_argument("--work", type=pathlib.Path, default=guest.ROOT / "target" / "recordings")
    parser.add_argument("--out", type=pathlib.Path, default=guest.ROOT / "recordings" / "clear")
    args = parser.parse_args()
    jobs = [(name, variant) for name in args.kernels
            for variant in args.variant or built.variants(name)]
    guest.require({variant for _, variant in jobs})
    work = args.work.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    record.make_probe(work)
    is_complete = True
    for name, variant in jobs:
        try:
            record_clears(work, name, variant, args.out)
        except (packages.Missing, RuntimeError, subprocess.SubprocessError) as error:
            print(f"  {name} {variant}: {error}", file=sys.stderr, flush=True)
            is_complete = False
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
