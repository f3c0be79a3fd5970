#!/usr/bin/env python3
"""Records the workload set on packaged kernels, one archive per kernel.

    scripts/recordings/record.py --all
    scripts/recordings/record.py 6.18 --variant arm64_16k
    scripts/recordings/record.py 7.2.13
    scripts/recordings/record.py --all --again '*_readmap_s0'
    scripts/recordings/record.py f_612_4k_exec --random 500 --seed 1 --out DIR

A version, like 7.2, names its newest release in a stable suite; an exact release may be in sid.

Needs qemu-system-x86, qemu-system-arm, gcc, aarch64-linux-gnu-gcc, e2fsprogs, xfsprogs,
btrfs-progs, an apt that reaches a Debian mirror, and folio (`make build`, or FOLIO=PATH), which has
the workloads. Only those that a kernel's archive lacks are recorded, and those named by `--again`; a
kernel that lacks none is not booted.
"""

import argparse
import fnmatch
import functools
import json
import pathlib
import subprocess
import sys
import tempfile

import built
import guest
import packages

ROOT = guest.ROOT
DEVICES = {"ext4": "@1", "xfs": "@2", "ext4-encrypt": "@4", "ext4-slow": "@5",
           "btrfs": "@6"}
THP = guest.THP
AROUND = "/sys/kernel/debug/fault_around_bytes"
INSTANCE = "/sys/kernel/tracing/instances/largefolio"
SECTORS_KB = 512     # request limit of the emulated NVMe controller
BTRFS = "/sys/class/bdi/btrfs-1"     # btrfs does not use its device's window
BTRFS_KB = 128                       # nor the device's request limit


@functools.cache
def workload_set(page, which=()):
    """By filesystem: its files, and its workloads as (name, read_ahead_kb, words, own bytes).

    The set is that of `folio-lab crosscheck`; FOLIO= names the program, and `which` has options.
    """
    command = [guest.folio(), "crosscheck", "workloads", "--json", "--page", f"{page >> 10}K",
               *which]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return {one["name"]: (one["files"], [(row["name"], row["window_kb"], row["words"],
                                          row["own_bytes"]) for row in one["workloads"]])
            for one in listed["filesystems"]}


def commands(workloads, missing, rules):
    """The init's list: mounts, files, every missing workload, with the window set before each.

    `rules` are the words of the header that name the kernel's rules.
    """
    preferred = built.KERNELS.get(rules["variant"], {}).get("advice")
    lines = [f"mkdir {INSTANCE}", "result /dev/@3",
             "show /sys/block/@1/queue/max_sectors_kb",
             f"set {THP}/enabled madvise", *guest.KHUGEPAGED_ASLEEP,
             # The first advice since boot wakes khugepaged once, whatever its sleep time. With this
             # setting it skips file ranges with a missing page.
             f"set {THP}/khugepaged/max_ptes_none 0",
             # With MGLRU, several accesses put a page into the working set (docs/differences.md,
             # "working set"); on the classic lists only a refault does.
             "set /sys/kernel/mm/lru_gen/enabled 0"]
    for filesystem, (files, rows) in workloads.items():
        device = DEVICES[filesystem]
        rows = [row for row in rows if row[0] in missing]
        if not rows:
            continue
        kind = filesystem.partition("-")[0]
        lines.append(f"mount /dev/{device} {kind} /{filesystem}")
        lines += [f"{'sparse' if file['is_sparse'] else 'make'} "
                  f"/{filesystem}/{file['name']} {file['bytes']}"
                  for file in files if not all(own for *_, own in rows)]
        lines.append(f"set /sys/block/{device}/queue/max_sectors_kb {SECTORS_KB}")
        is_btrfs = filesystem == "btrfs"
        sectors = BTRFS_KB if is_btrfs else SECTORS_KB
        for name, window, words, own in rows:
            queue = BTRFS if is_btrfs else f"/sys/block/{device}/queue"
            lines.append(f"set {queue}/read_ahead_kb {window}")
            words = {"fs": filesystem, "ra": window, "sectors": sectors, **rules,
                     "trace": INSTANCE, "around": 65536, **words}
            words["file"] = f"/{filesystem}/{words.get('file', 'data')}"
            if preferred and words.get("map") != "none" and words.get("advice", "plain") == "plain":
                words["advice"] = preferred
            if "cgroup" in words:
                lines += cgroup_for(words["cgroup"])
            text = " ".join(f"{key}={value}" for key, value in words.items())
            lines.append(f"set {AROUND} {words['around']}")
            run = [f"run {name} {text}"]
            if own:
                run = [f"make {words['file']} {own}", *run, f"remove {words['file']}"]
            lines += run
    return lines


def cgroup_for(folder):
    """Moves the init, and with it every later probe, into a cgroup that supports reclaim requests."""
    root = pathlib.PurePosixPath(folder).parent
    return [f"mount none cgroup2 {root}", f"set {root}/cgroup.subtree_control +memory",
            f"mkdir {folder}", f"set {folder}/cgroup.procs 0"]


def missing_from(archive, workloads, args, version):
    """Names of the wanted workloads that an archive lacks, or that are recorded again.

    Kernels that are built here have neither btrfs nor cgroups, and some lack other filesystems.
    """
    is_built = built.is_built(version)
    rows = [row for filesystem in workloads for row in workloads[filesystem][1]
            if not is_built or (filesystem != "btrfs" and "cgroup" not in row[2]
                                and not built.lacks(version, filesystem))]
    names = set(fnmatch.filter((row[0] for row in rows), args.only))
    if not archive.exists():
        return names
    listed = subprocess.run(["tar", "-tJf", archive], check=True, capture_output=True, text=True)
    held = {pathlib.PurePath(line).stem for line in listed.stdout.splitlines()}
    return {name for name in names if name not in held or fnmatch.fnmatch(name, args.again)}


def extend(work, archive, name, texts):
    """Adds recordings to an archive, creating it if needed."""
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        folder = pathlib.Path(scratch) / name
        folder.mkdir()
        if archive.exists():
            subprocess.run(["tar", "-xJf", archive, "-C", scratch], check=True)
        for workload, text in texts.items():
            (folder / f"{workload}.txt").write_text(text)
        subprocess.run(["tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0",
                        "--numeric-owner",
                        "-C", scratch, "-I", "xz -9e", "-cf", archive, name], check=True)


def record(args, work, version, variant):
    """Boots one kernel for the workloads that its archive lacks, or that are recorded again.

    Returns the failures, which are not added.
    """
    name = built.archive_name(version, variant) + ("_random" if args.random else "")
    archive = args.out / f"{name}.tar.xz"
    which = () if args.random is None else \
        ("--random", str(args.random), "--seed", str(args.seed), "--fs", "ext4,xfs")
    workloads = workload_set(guest.page_of(variant), which)
    missing = missing_from(archive, workloads, args, version)
    if not missing:
        return []
    tree = built.tree_of(work, version, variant)
    arch = guest.arch_of(variant)
    machine = guest.Guest(work, tree, variant)
    built.equip(machine, version)
    lines = commands(workloads, missing, built.own_rules(version, variant))
    if policy := built.policy(version):
        lines = machine.under_policy(policy, work / "probe" / arch / "probe", lines)
    results = machine.run(work / "probe" / arch, built.settings(version) + lines, 1500)
    texts = {workload: text for workload, (status, text) in results.items() if status == 0}
    extend(work, archive, name, texts)
    print(f"{name}: {len(texts)} recorded, {archive.stat().st_size >> 10} KiB", flush=True)
    return [f"{workload}: {text.strip()}"
            for workload, (status, text) in results.items() if status]


def make_probe(work):
    subprocess.run(["make", "-s", "-C", ROOT / "probe", f"OUT={work / 'probe'}"], check=True)


def variants_of(version):
    """A kernel's packaged or built variants."""
    if built.is_built(version):
        return built.variants(version)
    return [each for each in packages.FLAVOURS if (version, each) not in packages.NOT_PACKAGED]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", help=" ".join([*packages.VERSIONS, *built.KERNELS]))
    parser.add_argument("--all", action="store_true", help="every version and variant")
    parser.add_argument("--variant", action="append")
    parser.add_argument("--again", metavar="PATTERN", default="",
                        help="record these workloads even if an archive has them")
    parser.add_argument("--only", metavar="PATTERN", default="*",
                        help="only workloads with matching names")
    parser.add_argument("--random", type=int, metavar="N",
                        help="record N random workloads instead of the set")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first random workload")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target" / "recordings")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "recordings" / "packaged")
    args = parser.parse_args()
    guest.require(args.variant or [*packages.FLAVOURS, "arm64_64k"], guest.folio())
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    make_probe(work)
    is_complete = True
    for variant in args.variant or [*packages.FLAVOURS, "arm64_64k"]:
        for version in packages.VERSIONS if args.all else args.versions:
            if variant not in variants_of(version):
                continue
            try:
                failed = record(args, work, version, variant)
            except (packages.Missing, RuntimeError, subprocess.SubprocessError) as error:
                failed = [f"{version} {variant}: {error}"]
            is_complete &= not failed
            for line in failed:
                print(f"  {line}", file=sys.stderr, flush=True)
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
