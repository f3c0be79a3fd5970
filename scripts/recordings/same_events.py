#!/usr/bin/env python3
"""Compares the events of the workloads that two archives of recordings share.

    scripts/recordings/same_events.py recordings/f_612_4k_exec.tar.xz NEW.tar.xz

A workload may have more touches in one archive: what both did is compared. Compared are the touches
and reads, the passes of the fault handler, fault-around's runs, and the folios inserted. A workload
whose touches differ from the start is not the same, and is only counted.
"""

import pathlib
import sys
import tarfile


def steps(text):
    """A list of steps: the program's action and the kernel's events, with indexes written out."""
    found, last = [], None
    for line in text.splitlines():
        kind, *words = line.split()
        if kind in "TB" and words:
            found.append(([kind, *words], []))
            last = words[0]
        elif kind == "E":
            break
        elif kind in "FAWG" and found:
            words = [last if word == "." else word for word in words]
            if kind == "A" and words[-1].startswith("x"):
                first, order, times = int(words[0]), int(words[1]), int(words[2][1:])
                found[-1][1].extend(("A", str(first + (at << order)), str(order))
                                    for at in range(times))
            else:
                found[-1][1].append((kind, *words))
    return found


def members(path):
    with tarfile.open(path) as files:
        return {pathlib.PurePath(one.name).name: files.extractfile(one).read().decode()
                for one in files if one.isfile()}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    one, other = (members(path) for path in sys.argv[1:])
    equal, different, strange = 0, [], 0
    for name in sorted(set(one) & set(other)):
        pairs = list(zip(steps(one[name]), steps(other[name])))
        first = next((at for at, (a, b) in enumerate(pairs) if a != b), None)
        if first is None:
            equal += 1
        elif pairs[first][0][0] != pairs[first][1][0]:
            strange += 1
        else:
            different.append(name)
            print(f"{name}: step {first}\n  {pairs[first][0]}\n  {pairs[first][1]}")
    print(f"{equal} equal, {len(different)} differ, {strange} touch other pages")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
