#!/usr/bin/env python3
"""Counts patterns of translated text in documents, comments and string literals.

    scripts/english.py                  hits per 1,000 words, and their limits
    scripts/english.py --show comment   every hit in comments (or: document, string)

Patterns and limits are in scripts/doccheck/english.toml. Exit status: 0 within the limits, 1 above
one, or far enough below one that it should be lowered.
"""

import argparse
import pathlib
import re
import subprocess
import sys

from doccheck.english import LIST
from doccheck.exceptions import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
MARKERS = {".rs": "//", ".c": "//", ".h": "//", ".py": "#", ".sh": "#", ".toml": "#"}
# Data of others, and the patterns themselves.
LEFT_OUT = ("recordings/", "fuzz/corpus/", "scripts/doccheck/english.toml")
LITERAL = re.compile(r'"((?:[^"\\]|\\.){12,})"')
# A limit further above the text than this must be lowered.
SLACK = 0.5


def tracked():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    names = listed.stdout.decode().split("\0")
    return [name for name in names if name and not name.startswith(LEFT_OUT)]


def texts(name, line):
    """(kind, text) of the prose in one line of a file."""
    suffix = pathlib.Path(name).suffix
    if suffix == ".md":
        return [("document", line)]
    if suffix not in MARKERS:
        return []
    # The first marker outside a literal begins the comment.
    marks = (mark.start() for mark in re.finditer(MARKERS[suffix], line))
    at = next((at for at in marks if line.count('"', 0, at) % 2 == 0), len(line))
    code, comment = line[:at], line[at:].removeprefix(MARKERS[suffix])
    found = [("comment", comment)] if comment else []
    return found + [("string", text) for text in LITERAL.findall(code) if " " in text]


def count(names):
    """({kind: words}, {kind: [place: text]}) of the files."""
    patterns = [re.compile(one["find"]) for one in tomllib.loads(LIST.read_text())["pattern"]]
    words, hits = {}, {}
    for name in names:
        if pathlib.Path(name).suffix not in (".md", *MARKERS):
            continue
        lines = (ROOT / name).read_text(errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            for kind, text in texts(name, line):
                words[kind] = words.get(kind, 0) + len(text.split())
                for pattern in patterns:
                    hits.setdefault(kind, []).extend(
                        f"{name}:{number}: [{match[0]}] {text.strip()}"
                        for match in pattern.finditer(text))
    return words, hits


def complaints(rates, limits):
    """Returns complaints about the rates or the limits."""
    for kind, limit in limits.items():
        if rates[kind] > limit:
            yield (f"{kind}: {rates[kind]:.2f} hits per 1,000 words, limit {limit}. "
                   f"See: scripts/english.py --show {kind}")
        elif rates[kind] < limit - SLACK:
            yield (f"{kind}: {rates[kind]:.2f} hits per 1,000 words. Lower the limit of {limit} "
                   f"in {LIST.relative_to(ROOT)} to {rates[kind] + 0.1:.1f}")


def measured():
    words, hits = count(tracked())
    return {kind: 1000 * len(hits.get(kind, [])) / max(words[kind], 1) for kind in words}, hits


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", choices=["document", "comment", "string"])
    args = parser.parse_args()
    limits = tomllib.loads(LIST.read_text())["limit"]
    rates, hits = measured()
    if args.show:
        print(*hits.get(args.show, []), sep="\n")
        return 0
    for kind, limit in limits.items():
        print(f"{kind:9} {rates[kind]:5.2f} hits per 1,000 words, limit {limit}")
    found = list(complaints(rates, limits))
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
