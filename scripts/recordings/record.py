#!/usr/bin/env python3
"""Records the workload set on packaged kernels, one archive per kernel.

    scripts/recordings/record.py --all
    scripts/recordings/record.py 6.18 --variant arm64_16k

Needs qemu-system-x86, qemu-system-arm, gcc, aarch64-linux-gnu-gcc, e2fsprogs, xfsprogs and an apt
that reaches a Debian mirror. A kernel whose archive exists is skipped.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import guest
import packages
import workloads

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DEVICES = {"ext4": "@1", "xfs": "@2", "ext4-encrypt": "@4"}
AROUND = "/sys/kernel/debug/fault_around_bytes"
INSTANCE = "/sys/kernel/tracing/instances/largefolio"
SECTORS_KB = 512     # the emulated NVMe controller moves at most 512 KiB a request


def commands(filesystems, page, variant):
    """The init's list: mounts, files, every workload, with the window set before each."""
    lines = [f"mkdir {INSTANCE}", "result /dev/@3",
             "show /sys/block/@1/queue/max_sectors_kb",
             "set /sys/kernel/mm/transparent_hugepage/enabled madvise"]
    for filesystem in filesystems:
        device = DEVICES[filesystem]
        kind = filesystem.partition("-")[0]
        lines.append(f"mount /dev/{device} {kind} /{filesystem}")
        sizes = workloads.files(page)
        lines += [f"make /{filesystem}/{name} {size}" for name, size in sizes.items()]
        holes = workloads.sparse_files(page)
        lines += [f"sparse /{filesystem}/{name} {size}" for name, size in holes.items()]
        lines.append(f"set /sys/block/{device}/queue/max_sectors_kb {SECTORS_KB}")
        for name, window, words in workloads.workloads(filesystem, page):
            lines.append(f"set /sys/block/{device}/queue/read_ahead_kb {window}")
            words = {"fs": filesystem, "ra": window, "sectors": SECTORS_KB, "variant": variant,
                     "trace": INSTANCE, "around": 65536, **words}
            words["file"] = f"/{filesystem}/{words.get('file', 'data')}"
            text = " ".join(f"{key}={value}" for key, value in words.items())
            lines += [f"set {AROUND} {words['around']}", f"run {name} {text}"]
    return lines


def record(work, version, variant, out):
    """Boots one kernel; its recordings as an archive. Failures; with any, no archive."""
    name = f"deb_{version}_{variant}"
    archive = out / f"{name}.tar.xz"
    if archive.exists():
        return []
    tree = packages.unpack(work, version, variant)
    arch = "amd64" if variant == "amd64" else "arm64"
    machine = guest.Guest(work, tree, variant)
    page = 16384 if variant.endswith("16k") else 4096
    results = machine.run(work / "probe" / arch,
                          commands(machine.filesystems(), page, name), 1500)
    failed = [f"{workload}: {text.strip()}"
              for workload, (status, text) in results.items() if status]
    if failed:
        return failed
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        folder = pathlib.Path(scratch) / name
        folder.mkdir()
        for workload, (_, text) in results.items():
            (folder / f"{workload}.txt").write_text(text)
        subprocess.run(["tar", "--sort=name", "--mtime=@0", "--owner=0", "--group=0",
                        "--numeric-owner",
                        "-C", scratch, "-I", "xz -9e", "-cf", archive, name], check=True)
    print(f"{name}: {len(results)} recorded, {archive.stat().st_size >> 10} KiB", flush=True)
    return []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", help=" ".join(packages.VERSIONS))
    parser.add_argument("--all", action="store_true", help="every version and variant")
    parser.add_argument("--variant", choices=packages.FLAVOURS, action="append")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target" / "recordings")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "recordings" / "packaged")
    args = parser.parse_args()
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    subprocess.run(["make", "-s", "-C", ROOT / "probe", f"OUT={work / 'probe'}"], check=True)
    is_complete = True
    for variant in args.variant or packages.FLAVOURS:
        for version in packages.VERSIONS if args.all else args.versions:
            try:
                failed = record(work, version, variant, args.out)
            except (packages.Missing, RuntimeError, subprocess.SubprocessError) as error:
                failed = [f"{version} {variant}: {error}"]
            is_complete &= not failed
            for line in failed:
                print(f"  {line}", file=sys.stderr, flush=True)
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
