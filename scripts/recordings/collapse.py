#!/usr/bin/env python3
"""Records MADV_COLLAPSE on packaged kernels (recordings/README.md, "Collapse").

    scripts/recordings/collapse.py --programs DIR 6.1 7.1 7.2

DIR holds files `NAME.txt` made by `folio-lab crosscheck collapse --programs N --seed S --sizes .. --print`
for 4K pages. Those called `disk*.txt` (made with `--disk`) run on each filesystem of DISKS, like the
programs of collapse_files.py. Needs what record.py needs.
"""

import subprocess
import sys

import built
import collapse_files
import cow

PAGE = 4096
DISK_BYTES = 320 << 20
EXT4 = ["mkfs.ext4", "-q", "-F", "-b", "4096"]
# None of the last one's files has large folios.
DISKS = {"ext4": EXT4,
         "xfs": ["mkfs.xfs", "-q", "-f", "-m", "rmapbt=0,bigtime=0", "-i", "nrext64=0"],
         "ext4-encrypt": [*EXT4, "-O", "encrypt"]}


class CollapseGuest(cow.CowGuest):
    """A machine with the results on its first disk and the filesystems of DISKS on the others."""

    def disks(self):
        made = super().disks()
        for name, make in DISKS.items():
            path = self.work / f"collapse_{name}.img"
            path.unlink(missing_ok=True)
            with path.open("wb") as image:
                image.truncate(DISK_BYTES)
            subprocess.run([*make, path], check=True, capture_output=True)
            made.append(path)
        return made


def commands(files, words="", own="", disks=tuple(DISKS)):
    """The init's list: the programs with a tmpfs, those about files once per filesystem of `disks`.
    """
    on_disk = [path for path in files if path.stem.startswith("disk")]
    lines = cow.commands([path for path in files if path not in on_disk], PAGE, own)
    lines = [f"{line} dir=/own{words}" if line.startswith("run ") else line for line in lines]
    mounts = ["mount none tmpfs /own"]
    mounts += [f"mount /dev/@{nr} {disk.partition('-')[0]} /{disk}"
               for nr, disk in enumerate(DISKS, 2) if disk in disks]
    if on_disk:
        # Keep pages dirty until the program writes them back.
        lines.append("set /proc/sys/vm/dirty_writeback_centisecs 0")
        lines.append(f"set {cow.THP}/hugepages-2048kB/enabled madvise")
    runs = [f"run {path.stem}_{disk} /programs/{path.name} disk=/{disk} statistics{own}{words}"
            for path in on_disk for disk in disks]
    return mounts + lines + runs


def file_commands(own, disks):
    """The programs of collapse_files.py."""
    own += " statistics" if own else ""
    return [f"run files_{disk} /files.txt disk=/{disk}{own}" for disk in disks]


def record(work, version, variant, programs, out):
    """Boots one kernel; returns its recordings as an archive."""
    name = built.archive_name(version, variant)
    tree = built.tree_of(work, version, variant)
    machine = CollapseGuest(work, tree, variant)
    built.equip(machine, version)
    disks = [disk for disk in DISKS if not built.lacks(version, disk)]
    files = sorted(programs.glob("*.txt"))
    machine.files = {"files.txt": collapse_files.programs().encode()}
    own = built.own_words(version, variant)
    listed = commands(files, own=own, disks=disks) + file_commands(own, disks)
    results = machine.run_programs(work / "probe" / variant, files,
                                   built.settings(version) + listed)
    cow.save(work, name, results, out)


def main():
    args = cow.arguments(__doc__, "collapse").parse_args()
    return cow.record_all(args, ["amd64"], record)


if __name__ == "__main__":
    sys.exit(main())
