#!/usr/bin/env python3
"""Runs random programs on kernels with NUMA balancing (recordings/README.md, "Balancing").

    scripts/recordings/balancing.py 6.12 7.3

Makes the programs itself, the same ones for every kernel. A program says when the kernel marks its
pages (`hint`), so the kernel's timing does not matter. Has the same requirements as record.py.
"""

import pathlib
import random
import sys
import tempfile

import cow
import nodes

NR_STEPS = 30
NR_PROCESSES = 3
SMALL_PAGES = 128
LARGE_PAGES = 1536
# Folio sizes in KiB, the first seed, and the number of programs.
SETS = [("64", 71100, 36), ("-", 71200, 12), ("16,64", 71300, 12), ("32,128", 71400, 12),
        ("2048", 71500, 24), ("16,64,2048", 71600, 12)]
# These were not examined while the rules were written.
KEPT_ASIDE = [("64", 72100, 10), ("2048", 72200, 8), ("16,64,2048", 72300, 8)]


class Program:
    """A program that grows; `areas` maps each living process to its mapped pages."""

    def __init__(self, seed, sizes):
        self.random = random.Random(seed)
        self.nr_pages = LARGE_PAGES if "2048" in sizes else SMALL_PAGES
        self.has_files = seed % 3 == 0
        self.lines = [f"program {seed} pages={self.nr_pages} sizes={sizes} nodes=2 balanced"]
        self.areas = {0: set()}

    def units(self):
        """Lengths of ranges: a page, and folio sizes."""
        return [1, 4, 16, 64] + ([512, 512] if self.nr_pages == LARGE_PAGES else [])

    def add(self, slot, *words):
        self.lines.append(" ".join(map(str, [slot, *words])))

    def some_range(self, slot):
        """A range of mapped pages, often a whole folio; None if nothing is mapped."""
        mapped = self.areas[slot]
        if not mapped:
            return None
        page, unit = self.random.choice(sorted(mapped)), self.random.choice(self.units())
        first = page // unit * unit
        end = page
        while end < min(first + unit, self.nr_pages) and end in mapped:
            end += 1
        while page > first and page - 1 in mapped:
            page -= 1
        first = page
        if end - first > 1 and self.random.random() < 0.3:
            first += self.random.randrange(end - first)
            end = first + 1 + self.random.randrange(end - first)
        return first, end - first

    def map_blocks(self):
        """An area that PMD entries can map."""
        nr_pages = LARGE_PAGES - 256
        self.add(0, "map", 0, nr_pages, "h")
        self.areas[0].update(range(nr_pages))

    def map(self, slot):
        mapped = self.areas[slot]
        free = [page for page in range(self.nr_pages) if page not in mapped]
        if not free:
            return
        first = self.random.choice(free)
        unit = self.random.choice([16, 64, 128] + ([512, 1024] if 512 in self.units() else []))
        while first - 1 not in mapped and first % min(unit, 512):
            first -= 1
        end = first
        while end < min(first + unit, self.nr_pages) and end not in mapped:
            end += 1
        kinds = ["", "", "", "", "s", "f"] if self.has_files else [""] * 8 + ["k"]
        kind = self.random.choice(kinds)
        end = min(end, first + 64) if kind == "f" else end
        advice = self.random.choice(["h"] * 7 + ["n", ""])
        self.add(slot, "map", first, end - first, kind + advice or "-")
        mapped.update(range(first, end))

    def fork(self, slot):
        if len(self.areas) < NR_PROCESSES:
            child = min(set(range(NR_PROCESSES)) - set(self.areas))
            self.add(slot, "fork", child)
            self.areas[child] = set(self.areas[slot])

    def exit(self, slot):
        if len(self.areas) > 1:
            self.add(slot, "exit")
            del self.areas[slot]

    def protect(self, slot, first, nr):
        self.add(slot, "protect", first, nr, self.random.choice(["r", "r", "-"]))
        if self.random.random() < 0.6:
            self.add(slot, "protect", first, nr, "rw")

    def write(self, slot, first, nr):
        self.add(slot, "write", first, min(nr, 24) if self.random.random() < 0.3 else 1)

    def unmap(self, slot, first, nr):
        self.add(slot, "unmap", first, nr)
        self.areas[slot].difference_update(range(first, first + nr))

    def bind(self, slot, first, nr):
        policy = self.random.choice(["d", "d", "b0", "b1", "p1", "l", "b01"])
        self.add(slot, "bind", first, nr, policy + self.random.choice(["", "M"]))

    def step(self):
        slot = self.random.choice(sorted(self.areas))
        found = self.some_range(slot)
        without = [(9, lambda: self.add(slot, "node", self.random.randrange(2))),
                   (13, lambda: self.add(slot, "hint")), (6, lambda: self.map(slot)),
                   (7, lambda: self.fork(slot)), (4, lambda: self.exit(slot)),
                   (1, lambda: self.add(slot, "unpin")),
                   (1, lambda: self.add(slot, "policy", self.random.choice(["d", "d", "b01"])))]
        first, nr = found or (0, 0)
        within = [(18, lambda: self.add(slot, "read", first, min(nr, 48))),
                  (20, lambda: self.write(slot, first, nr)),
                  (4, lambda: self.unmap(slot, first, nr)),
                  (3, lambda: self.add(slot, "drop", first, nr)),
                  (4, lambda: self.protect(slot, first, nr)),
                  (4, lambda: self.bind(slot, first, nr)),
                  (2, lambda: self.add(slot, "move", first, nr, f"t{self.random.randrange(2)}")),
                  (3, lambda: self.add(slot, "collapse", first, nr)),
                  (1, lambda: self.add(slot, "pin", first))]
        steps = without + (within if found else [])
        weights, actions = zip(*steps)
        self.random.choices(actions, weights)[0]()


def made(seed, sizes):
    """The text of one program."""
    program = Program(seed, sizes)
    if program.nr_pages == LARGE_PAGES:
        program.map_blocks()
    while len(program.lines) < NR_STEPS:
        program.step() if program.areas[min(program.areas)] else program.map(min(program.areas))
    return "\n".join(program.lines) + "\n"


def write_all(folder):
    """Writes the programs to files; returns the folder."""
    (folder / "4K").mkdir(parents=True)
    for sizes, first, nr in SETS + KEPT_ASIDE:
        text = "".join(made(seed, sizes) for seed in range(first, first + nr))
        (folder / "4K" / f"n{first}.txt").write_text(text)
    return folder


def main():
    parser = cow.arguments(__doc__, "balancing", makes_programs=True)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        args.programs = write_all(pathlib.Path(folder) / "programs")
        return cow.record_all(args, ["amd64"], nodes.record)


if __name__ == "__main__":
    sys.exit(main())
