#!/usr/bin/env python3
"""Records MADV_COLLAPSE on packaged kernels (recordings/README.md, "Collapse").

    scripts/recordings/collapse.py --programs DIR 6.1 7.1 7.2

DIR holds files `NAME.txt` made by `folio crosscheck collapse --programs N --seed S --sizes .. --print`
for 4K pages; the programs about files on a disk are those of collapse_files.py, on ext4 and on XFS.
Needs what record.py needs.
"""

import subprocess
import sys

import built
import collapse_files
import cow

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


def commands(files, name):
    """The init's list: the random programs with a tmpfs, those about files once a filesystem."""
    lines = cow.commands(files, PAGE, name)
    lines = [f"{line} dir=/own" if line.startswith("run ") else line for line in lines]
    mounts = ["mount none tmpfs /own", "mount /dev/@2 ext4 /ext4", "mount /dev/@3 xfs /xfs"]
    own = f" variant={name}" if name.startswith("built_") else ""
    runs = [f"run files_{disk} /files.txt disk=/{disk}{own}" for disk in ("ext4", "xfs")]
    return mounts + lines + runs


def record(work, version, variant, programs, out):
    """Boots one kernel; its recordings as an archive."""
    name = built.archive_name(version, variant)
    tree = built.tree_of(work, version, variant)
    machine = CollapseGuest(work, tree, variant)
    files = sorted(programs.glob("*.txt"))
    machine.files = {"programs": None, "files.txt": collapse_files.programs().encode(),
                     **{f"programs/{p.name}": p.read_bytes() for p in files}}
    machine.probe = work / "probe" / variant / "cow"
    results = machine.run(work / "probe" / variant, commands(files, name), 1500)
    cow.save(work, name, results, out)


def main():
    args = cow.arguments(__doc__, "collapse").parse_args()
    return cow.record_all(args, ["amd64"], record)


if __name__ == "__main__":
    sys.exit(main())
