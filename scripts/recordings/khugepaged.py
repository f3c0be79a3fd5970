#!/usr/bin/env python3
"""Records khugepaged on packaged kernels (recordings/README.md, "khugepaged").

    scripts/recordings/khugepaged.py --programs DIR 6.18 7.2

DIR holds files `NAME.txt` made by `folio crosscheck collapse --khugepaged --programs N --seed S
--sizes .. --print` for 4K pages. Needs what record.py needs.
"""

import sys

import cow
import packages

PAGE = 4096


def commands(files):
    """The init's list: the programs with a tmpfs and the machine's trace."""
    lines = [f"{line} dir=/own trace=/trace" if line.startswith("run ") else line
             for line in cow.commands(files, PAGE)]
    return ["mount none tmpfs /own", "mount none tracefs /trace", *lines]


def record(work, version, variant, programs, out):
    """Boots one kernel; its recordings as an archive."""
    name = f"deb_{version}_{variant}"
    machine = cow.CowGuest(work, packages.unpack(work, version, variant), variant)
    machine.modules = cow.guest.Modules(work / "kernels" / f"{version}_{variant}").closure(["nvme"])
    files = sorted(programs.glob("*.txt"))
    machine.files = {"programs": None, **{f"programs/{p.name}": p.read_bytes() for p in files}}
    machine.probe = work / "probe" / variant / "cow"
    results = machine.run(work / "probe" / variant, commands(files), 1500)
    cow.save(work, name, results, out)


def main():
    args = cow.arguments(__doc__, "khugepaged").parse_args()
    return cow.record_all(args, ["amd64"], record)


if __name__ == "__main__":
    sys.exit(main())
