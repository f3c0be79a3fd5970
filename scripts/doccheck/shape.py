"""Compares what a document shows with what a command printed: the shape, not the numbers.

Numbers and their units become `#`, so do cells that stand for a number (`.`, `-`, `=`, `?`), and
neighbouring ones become one; rules and blanks count once. `...` alone on a line is any lines, `..`
in a line any text. Warnings that the document does not show are the machine's. A renamed column, a changed message or a new line in between is a difference.
"""

import re

from .markdown import ELISION

UNIT = r"(?:%|pp|[KMGT]i?B|kB|[BKMGT]|ns|us|ms|s|min|h|GB/s)"
# What a distribution appends to a version: 6.1.0-18-amd64.
RELEASE = re.compile(r"\b(\d+\.\d+\.\d+)-[\w.+-]+")
NUMBER = re.compile(rf"(?:0x[0-9a-f]+|[+-]?x?\d[\d,]*(?:\.\d+)*(?:\s?{UNIT}(?![\w]))?)")
IDENTIFIER = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b")
RULE = re.compile(r"[-─=+|]{3,}")
CELL = re.compile(r"(?<=\s)[.=?-](?=\s|$)")


def shape(line):
    """The line with numbers and blanks made equal."""
    line = RULE.sub("---", line)
    line = RELEASE.sub(r"\1", line)
    line = IDENTIFIER.sub("#", line)
    line = NUMBER.sub("#", line)
    line = CELL.sub("#", line)
    line = re.sub(r"\s+", " ", line).strip()
    return re.sub(r"#(?: #)+", "#", line)


def pattern(line):
    """A regular expression for a shown line; None for a line that stands for any lines."""
    if ELISION.match(line):
        return None
    parts = re.split(r"(?<![.\w/])\.\.\.?(?![.\w/])", line)
    return re.compile(".*".join(re.escape(shape(part)) for part in parts).replace(r"\ .*", ".*"))


def told(shown, printed):
    """The printed lines that matter: no blank ones, and warnings only where some are shown."""
    with_warnings = any("warning:" in line for line in shown)
    return [line for line in printed if line.strip() and (with_warnings or "folio: warning:" not in line)]


def difference(shown, printed, optional=()):
    """What of `shown` the lines of `printed` do not have; None if they match.

    A shown line that contains one of `optional` may be missing.
    """
    shown = [line for line in shown if line.strip()]
    wanted = [(line, pattern(line)) for line in shown]
    actual = told(shown, printed)
    shapes = [shape(line) for line in actual]
    places = {0}
    for line, regex in wanted:
        if regex is None:
            places = set(range(min(places), len(shapes) + 1))
            continue
        after = {at + 1 for at in places if at < len(shapes) and regex.fullmatch(shapes[at])}
        if any(part in line for part in optional):
            after |= places
        if not after:
            near = actual[min(places)] if min(places) < len(actual) else "(nothing more)"
            return f"the document shows\n    {line.strip()}\nprinted was\n    {near.strip()}"
        places = after
    if shapes and len(shapes) not in places:
        return f"the document does not show (`...` stands for more lines)\n    {actual[min(places)].strip()}"
    return None


def missing(shown, printed, optional=()):
    """The first shown line that was printed nowhere, for output whose rows and order are the machine's."""
    shapes = [shape(line) for line in told(shown, printed)]
    for line in shown:
        regex = pattern(line)
        if line.strip() and regex and not any(part in line for part in optional):
            if not any(regex.fullmatch(each) for each in shapes):
                return f"the document shows\n    {line.strip()}\nwhich was not printed"
    return None
