#!/usr/bin/env python3
"""Runs programs of a few processes on packaged kernels (recordings/README.md, "Copy-on-write").

    scripts/recordings/cow.py --programs DIR 6.12 6.16 7.2 --variant amd64

DIR holds files `NAME.txt` made by `folio-lab crosscheck cow --programs N --seed S --sizes .. --print`;
NAME becomes the recording's name. `--statistics` adds the numbers of smaps, kpagecount and meminfo.
Has the same requirements as record.py.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import built
import guest
import packages

ROOT = guest.ROOT
THP = guest.THP
POOLS = "/sys/kernel/mm/hugepages"


def sizes_of(path):
    """The folio sizes in KiB that a file's programs use."""
    first = path.read_text().partition("\n")[0]
    sizes = first.rpartition("sizes=")[2].split()[0]
    return [] if sizes == "-" else sizes.split(",")


def pool_of(path):
    """The pool of huge pages that a file's programs need: their size in KiB and their number, or None.
    """
    text = path.read_text()
    pools = set(re.findall(r"^program .* huge=(\d+):(\d+)", text, re.M))
    if len(pools) > 1:
        raise packages.Missing(f"{path.name}: its programs need {len(pools)} pools of huge pages, not "
                               "one (the pool is that of 25 neighbouring seeds)")
    return pools.pop() if pools else None


class CowGuest(guest.Guest):
    """A machine with the programs in its initramfs and one disk for the results."""

    result_disk = 0

    def disks(self):
        result = self.work / "result.img"
        with result.open("wb") as image:
            image.truncate(guest.RESULT_BYTES)
        return [result]

    def run_programs(self, probes, files, commands, seconds=1500):
        """Boots with these files of programs and the probe that runs them; returns the results by
        name.
        """
        self.files |= {"programs": None, **{f"programs/{p.name}": p.read_bytes() for p in files}}
        self.probe = self.probe or probes / "cow"
        return self.run(probes, commands, seconds)


def commands(files, page, words=""):
    """The init's list: khugepaged asleep, then the sizes and the programs of each file."""
    pmd_kb = page * (page // 8) >> 10
    known = [page >> 10 << order for order in range(2, 14) if page >> 10 << order <= pmd_kb]
    lines = ["result /dev/@1", f"set {THP}/enabled madvise", *guest.KHUGEPAGED_ASLEEP,
             "set /proc/sys/vm/compaction_proactiveness 0"]
    for path in files:
        wanted = sizes_of(path)
        for kb in known:
            value = "madvise" if str(kb) in wanted else "never"
            lines.append(f"set {THP}/hugepages-{kb}kB/enabled {value}")
        if pool := pool_of(path):
            kib, number = pool
            lines.append(f"set {POOLS}/hugepages-{kib}kB/nr_hugepages {number}")
        lines.append(f"run {path.stem} /programs/{path.name}{words}")
    return lines


def save(work, name, results, out):
    """Writes a kernel's recordings as an archive; a failed program is an error."""
    failed = [f"{name} {each}: {text.strip()[-200:]}"
              for each, (status, text) in results.items() if status]
    if failed:
        raise RuntimeError("\n".join(failed))
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        folder = pathlib.Path(scratch) / name
        folder.mkdir()
        for each, (_, text) in results.items():
            (folder / f"{each}.txt").write_text(text)
        archive = out / f"{name}.tar.xz"
        subprocess.run(["tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0",
                        "--numeric-owner", "-C", scratch, "-I", "xz -9e", "-cf", archive, name],
                       check=True)
    print(f"{name}: {len(results)} files, {archive.stat().st_size >> 10} KiB", flush=True)


def arguments(description, kind, makes_programs=False):
    """The options shared by all recorders of programs; `kind` is the folder of their archives."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("versions", nargs="+", help=" ".join(packages.VERSIONS))
    if not makes_programs:
        parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target" / "recordings")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "recordings" / kind)
    return parser


def record_all(args, variants, record_one):
    """Builds the probe and records each version; a failure does not end the others."""
    guest.require(variants)
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    subprocess.run(["make", "-s", "-C", ROOT / "probe", f"OUT={work / 'probe'}"], check=True)
    is_complete = True
    for variant in variants:
        for version in args.versions:
            try:
                record_one(work, version, variant, args.programs.resolve(), args.out)
            except (packages.Missing, RuntimeError, subprocess.SubprocessError) as error:
                print(f"  {version} {variant}: {error}", file=sys.stderr, flush=True)
                is_complete = False
    return 0 if is_complete else 1


def record(work, version, variant, programs, out, words=""):
    """Boots one kernel; returns its recordings as an archive. `words` are for the probe."""
    tree = built.tree_of(work, version, variant)
    probes = work / "probe" / guest.arch_of(variant)
    page = guest.page_of(variant)
    machine = CowGuest(work, tree, variant)
    built.equip(machine, version)
    machine.modules = guest.Modules(tree).closure(["nvme"])
    files = sorted((programs / f"{page >> 10}K").glob("*.txt"))
    listed = commands(files, page, built.own_words(version, variant) + words)
    if policy := built.policy(version):
        listed = machine.under_policy(policy, probes / "cow", listed)
    results = machine.run_programs(probes, files, built.settings(version) + listed)
    save(work, built.archive_name(version, variant), results, out)


def main():
    parser = arguments(__doc__, "cow")
    parser.add_argument("--variant", action="append", required=True)
    parser.add_argument("--statistics", action="store_true")
    args = parser.parse_args()
    words = " machine" if args.statistics else ""
    return record_all(args, args.variant, lambda *of: record(*of, words))


if __name__ == "__main__":
    sys.exit(main())
