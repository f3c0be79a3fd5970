#!/usr/bin/env python3
"""Records MADV_COLLAPSE on packaged kernels (recordings/README.md, "Collapse").

    scripts/recordings/collapse.py --programs DIR 6.1 7.1 7.2

DIR holds files `NAME.txt` made by `folio crosscheck collapse --programs N --seed S --sizes .. --print`
for 4K pages; the programs about files on a disk are those of collapse_files.py, on ext4 and on XFS.
Needs what record.py needs.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import collapse_files
import cow
import packages

ROOT = cow.ROOT
PAGE = 4096
DISK_BYTES = 320 << 20


class CollapseGuest(cow.CowGuest):
    """A machine with the results on its first disk, ext4 on the second and XFS on the third."""

    def disks(self):
        made = super().disks()
        for name, make in (("ext4", ["mkfs.ext4", "-q", "-F", "-b", "4096"]),
                           ("xfs", ["mkfs.xfs", "-q", "-f", "-m", "rmapbt=0,bigtime=0",
                                    "-i", "nrext64=0"])):
            path = self.work / f"collapse_{name}.img"
            path.unlink(missing_ok=True)
            with path.open("wb") as image:
                image.truncate(DISK_BYTES)
            subprocess.run([*make, path], check=True, capture_output=True)
            made.append(path)
        return made


def commands(files):
    """The init's list: the random programs with a tmpfs, those about files once a filesystem."""
    lines = cow.commands(files, PAGE)
    lines = [f"{line} dir=/own" if line.startswith("run ") else line for line in lines]
    mounts = ["mount none tmpfs /own", "mount /dev/@2 ext4 /ext4", "mount /dev/@3 xfs /xfs"]
    runs = [f"run files_{name} /files.txt disk=/{name}" for name in ("ext4", "xfs")]
    return mounts + lines + runs


def record(work, version, programs, out):
    """Boots one kernel; its recordings as an archive."""
    name = f"deb_{version}_amd64"
    tree = packages.unpack(work, version, "amd64")
    machine = CollapseGuest(work, tree, "amd64")
    files = sorted(programs.glob("*.txt"))
    machine.files = {"programs": None, "files.txt": collapse_files.programs().encode(),
                     **{f"programs/{p.name}": p.read_bytes() for p in files}}
    machine.probe = work / "probe" / "amd64" / "cow"
    results = machine.run(work / "probe" / "amd64", commands(files), 1500)
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="+", help=" ".join(packages.VERSIONS))
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target" / "recordings")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "recordings" / "collapse")
    args = parser.parse_args()
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    args.out.mkdir(parents=True, exist_ok=True)
    subprocess.run(["make", "-s", "-C", ROOT / "probe", "amd64", f"OUT={work / 'probe'}"],
                   check=True)
    is_complete = True
    for version in args.versions:
        try:
            record(work, version, args.programs.resolve(), args.out)
        except (packages.Missing, RuntimeError, subprocess.SubprocessError) as error:
            print(f"  {version}: {error}", file=sys.stderr, flush=True)
            is_complete = False
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
