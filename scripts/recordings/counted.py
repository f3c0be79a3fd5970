#!/usr/bin/env python3
"""Writes the tables of recordings/instructions and recordings/cold in documents.

    scripts/recordings/counted.py            rewrites the tables
    scripts/recordings/counted.py --check    names the documents that would change

A table stands between a comment and `<!-- end -->`. `<!-- counted: COLUMN .. | OPERATION .. -->`: the
first column is what the others are compared with. A COLUMN is KERNEL or KERNEL:SETTINGS, and KERNEL a
file of recordings/instructions. `<!-- cold: FILE -->` names one of recordings/cold.
"""

import argparse
import pathlib
import re
import sys
import tomllib

import cold
import instructions

ROOT = instructions.ROOT
FOLDER = ROOT / "recordings" / "instructions"
COLD = ROOT / "recordings" / "cold"
DOCUMENTS = ROOT / "docs"
COLD_MARK = re.compile(r"(<!-- cold: (\S+) -->\n).*?(<!-- end -->)", re.S)
MARK = re.compile(r"(<!-- counted: ([^|]*)\| ([^>]*) -->\n).*?(<!-- end -->)", re.S)
NAMES = {
    "fault": "fault", "munmap": "munmap", "fork": "fork",
    "copy_first": "store while a child shares, a folio's first page",
    "copy_rest": "store while a child shares, other page",
    "keep_first": "store after the child ended, a folio's first page",
    "keep_rest": "store after the child ended, other page",
    "hugetlb_fault": "fault, hugetlb", "hugetlb_munmap": "munmap, hugetlb",
    "hugetlb_fork": "fork, hugetlb", "hugetlb_copy_first": "store while a child shares, hugetlb",
    "hugetlb_keep_first": "store after the child ended, hugetlb",
    "file_fault": "fault on a cached file", "file_munmap": "munmap of a file",
}
# Fault-around maps several pages: these numbers are per page.
PER_PAGE = ("file_fault", "file_munmap")
# On amd64, `rep stosq` zeroes eight bytes per step.
STEPS, STEPS_PER_KIB = "-steps", 128
SIZES = {2048: "2M", 1024: "1M", 1 << 20: "1G", 0: "-"}


class Counts:
    """The files of a folder, read once."""

    def __init__(self, folder=FOLDER):
        self.files = {path.stem: tomllib.loads(path.read_text())
                      for path in sorted(folder.glob("*.toml"))}

    def rows(self, column):
        """A column's rows by operation and size."""
        kernel, _, settings = column.partition(":")
        if kernel not in self.files:
            raise ValueError(f"recordings/instructions has no {kernel}.toml")
        found = {(row["operation"], row["kib"]): row for row in self.files[kernel]["rows"]
                 if row["settings"] == (settings or instructions.OFF)}
        if not found:
            raise ValueError(f"{kernel}.toml has no rows {column}")
        return found

    def value(self, column, operation, kib):
        """Instructions per folio (per page of a file), or None if they were not counted. After a
        name with `-steps`, the steps of the string instructions that zero it do not count.
        """
        rows = self.rows(column)
        if operation.endswith(STEPS):
            whole = self.value(column, operation.removesuffix(STEPS), kib)
            return None if whole is None else whole - kib * STEPS_PER_KIB
        row = rows.get((operation, kib))
        if not row:
            return None
        folio = instructions.each_folio(row, rows.values())
        if operation not in PER_PAGE:
            return folio
        return row["median"] / row["pages"]

    def selected(self, text):
        """The value of `KERNEL:SETTINGS:OPERATION:KIB`."""
        column, operation, kib = text.rsplit(":", 2)
        value = self.value(column, operation, int(kib))
        if value is None:
            raise ValueError(f"{text} was not counted")
        return value


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def change(before, after):
    return f"{(after / before - 1) * 100:+.1f}%" if before else "-"


def title(column):
    kernel, _, settings = column.partition(":")
    name = kernel.partition("_")[2].replace("_", " ")
    return name + (f", `{settings}`" if settings not in ("", instructions.OFF) else "")


def table(counts, columns, operations):
    """The rows of the columns; neighbouring sizes with equal numbers share one."""
    lines = [f"| operation | folio | {' | '.join(map(title, columns))} |",
             "|---" * (2 + len(columns)) + "|"]
    for operation in operations:
        shown = []
        sizes = sorted({kib for column in columns for name, kib in counts.rows(column)
                        if name == operation.removesuffix(STEPS)})
        for kib in sizes:
            first, *others = [counts.value(column, operation, kib) for column in columns]
            if first is None or None in others:
                continue
            cells = [number(first),
                     *(f"{number(other)} ({change(first, other)})" for other in others)]
            size = SIZES.get(kib, f"{kib}K")
            if shown and shown[-1][1] == cells:
                shown[-1] = (f"{shown[-1][0].partition(' ')[0]} to {size}", cells)
            else:
                shown.append((size, cells))
        name = NAMES[operation.removesuffix(STEPS)]
        name += ", without string steps" if operation.endswith(STEPS) else ""
        lines += [f"| {name} | {size} | {' | '.join(cells)} |" for size, cells in shown]
    if len(lines) == 2:
        raise ValueError(f"nothing was counted for {' '.join(columns)}")
    return "\n".join(lines) + "\n"


def cold_table(name):
    """A run's table; boots that count the same share a line."""
    rows = []
    for row in tomllib.loads((COLD / f"{name}.toml").read_text())["runs"]:
        row["folios"] = {int(kb): nr for kb, nr in row["folios"].items()}
        last = rows[-1] if rows else {}
        if row["by"].startswith("boot") and {**row, "by": ""} == {**last, "by": ""}:
            last["by"] += row["by"].replace("boot", ",")
        else:
            rows.append(row)
    return cold.table(rows) + "\n"


def written(counts, text):
    """A document with its tables."""
    def replaced(match):
        columns, operations = match[2].split(), match[3].split()
        return f"{match[1]}\n{table(counts, columns, operations)}\n{match[4]}"

    text = COLD_MARK.sub(lambda match: f"{match[1]}\n{cold_table(match[2])}\n{match[3]}", text)
    return MARK.sub(replaced, text)


def changed(counts, folder=DOCUMENTS):
    """The documents whose tables differ from the data, with their new text."""
    texts = {path: path.read_text() for path in sorted(folder.glob("**/*.md"))}
    news = {path: written(counts, text) for path, text in texts.items() if "<!-- end -->" in text}
    return {path: new for path, new in news.items() if new != texts[path]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; status 1 if it would")
    args = parser.parse_args()
    news = changed(Counts())
    for path, new in news.items():
        print(path.relative_to(ROOT))
        if not args.check:
            path.write_text(new)
    return int(args.check and bool(news))


if __name__ == "__main__":
    sys.exit(main())
