#!/usr/bin/env python3
"""Records khugepaged on packaged kernels (recordings/README.md, "khugepaged").

    scripts/recordings/khugepaged.py --programs DIR 6.18 7.2

DIR holds files `NAME.txt` made by `folio-lab crosscheck collapse --khugepaged --programs N --seed S
--sizes .. --print` for 4K pages; with `--disk` NAME begins with `disk`. Needs what record.py needs.
"""

import sys

import built
import collapse
import cow


def commands(files, own):
    """The init's list: the programs with a tmpfs and the machine's trace."""
    return ["mount none tracefs /trace", *collapse.commands(files, " trace=/trace", own)]


def record(work, version, variant, programs, out):
    """Boots one kernel; returns its recordings as an archive."""
    name = built.archive_name(version, variant)
    machine = collapse.CollapseGuest(work, built.tree_of(work, version, variant), variant)
    files = sorted(programs.glob("*.txt"))
    listed = built.settings(version) + commands(files, built.own_words(version, variant))
    results = machine.run_programs(work / "probe" / variant, files, listed)
    cow.save(work, name, results, out)


def main():
    args = cow.arguments(__doc__, "khugepaged").parse_args()
    return cow.record_all(args, ["amd64"], record)


if __name__ == "__main__":
    sys.exit(main())
