"""Random situations: a program's memory, how it was started, and the settings.

A case is drawn from a seed and a number, so one case can be repeated alone.
"""

import random
from dataclasses import dataclass, field

THP = "/sys/kernel/mm/transparent_hugepage"
# Per kind of memory: its frequency and parameter. A step of n means every n-th page.
KINDS = {
    "private": (4, lambda r: r.choice([1, 1, 1, 2, 7, 33, 200, 511, 700])),
    "head": (2, lambda r: r.randint(5, 95)),
    "holes": (2, lambda r: r.choice([2, 8, 33, 100, 400])),
    "guard": (3, lambda r: r.choice([512, 700, 1024, 5000])),
    "swapped": (4, lambda r: r.choice([10, 50, 100])),
    "merged": (2, lambda r: r.choice([2, 16, 600])),
    "pinned": (2, lambda r: 1),
    "locked": (2, lambda r: r.choice([1, 9])),
    "armed": (2, lambda r: r.choice([1, 3])),
    "tail": (2, lambda r: r.choice([2, 5])),
    "pieces": (2, lambda r: r.choice([1, 3, 200, 700])),
    "advised": (3, lambda r: r.choice([0, 1, 2])),
    "small": (3, lambda r: r.choice([40, 1000, 3000])),
    "large": (3, lambda r: r.choice([1, 4, 40])),
    "threads": (2, lambda r: r.choice([1, 4])),
    "views": (4, lambda r: r.choice([1, 2, 3, 12, 13])),
    "shared": (3, lambda r: r.choice([0, 1, 3])),
    "sparse_shared": (2, lambda r: r.choice([2, 33, 511])),
    "forked": (2, lambda r: r.choice([1, 2])),
    "tmpfs": (4, lambda r: r.randint(0, 7)),
    "hugetlb": (1, lambda r: r.choice([50, 100])),
    "odd": (2, lambda r: r.choice([1, 16, 255])),
}
STARTS = {
    "plain": 8, "tunables": 2, "hugetlb=1": 2, "loader": 2, "unlimited stack": 2, "script": 2, "disabled": 2,
    "except advised": 2, "deleted": 1, "named (deleted)": 1, "own malloc": 2,
}
# The first value is the most common default.
SETTINGS = {
    f"{THP}/enabled": ["madvise", "madvise", "madvise", "always", "never"],
    f"{THP}/shmem_enabled": ["never", "never", "advise", "always", "within_size"],
    f"{THP}/hugepages-64kB/enabled": ["never", "never", "never", "madvise", "always", "inherit"],
}
# This memory is slow to make, or each piece is a separate area.
SMALL_KINDS = {"threads": (2048, 12288), "pieces": (1024, 16384), "hugetlb": (4096, 8192), "merged": (4096, 24576)}


@dataclass
class Case:
    """One process to judge."""

    seed: int
    number: int
    areas: list[tuple[str, int, int]]
    start: str
    settings: dict[str, str] = field(default_factory=dict)

    def words(self):
        """The areas as arguments of memory.c: kind, KiB, parameter."""
        return [f"{kind}:{kib}:{parameter}" for kind, kib, parameter in self.areas]

    def is_advised_late(self):
        """Whether it touches memory before it advises it."""
        return any(kind == "advised" and parameter == 1 for kind, _, parameter in self.areas)

    def __str__(self):
        settings = ", ".join(f"{name.removeprefix(THP + '/')} {value}" for name, value in self.settings.items())
        return f"{self.number}: {' '.join(self.words())} | {self.start} | {settings}"


def drawn(random_of, weights):
    return random_of.choices(list(weights), list(weights.values()))[0]


def case(seed, number):
    """The case with this number, independent of all others."""
    r = random.Random(f"{seed}:{number}")
    areas = []
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        kind = drawn(r, {name: weight for name, (weight, _) in KINDS.items()})
        low, high = SMALL_KINDS.get(kind, (4096, 49152))
        kib = r.randint(low // 4, high // 4) * 4
        # Some sizes are round, as in real programs.
        if kind == "hugetlb" or r.random() < 0.5:
            kib = max(low, kib // 2048 * 2048)
        areas.append((kind, kib, KINDS[kind][1](r)))
    return Case(seed, number, areas, drawn(r, STARTS), {name: r.choice(values) for name, values in SETTINGS.items()})
