"""Compares a document's output with a command's: exactly, or only the shape.

Blanks and rules are collapsed. `...` alone on a line matches any lines, `..` in a line any text.
Warnings that the document does not show are ignored as machine-specific. For the shape, numbers
with their units become `#`, as do cells in place of a number (`.`, `-`, `=`, `?`), and neighbouring
ones merge. A renamed column, a changed message or a new line in between still is a difference.
"""

import re

from .markdown import ELISION

UNIT = r"(?:%|pp|[KMGT]i?B|kB|[BKMGT]|ns|us|ms|s|min|h|GB/s)"
# A distribution's suffix of a version: 6.1.0-18-amd64.
RELEASE = re.compile(r"\b(\d+\.\d+\.\d+)-[\w.+-]+")
NUMBER = re.compile(rf"(?:0x[0-9a-f]+|[+-]?x?\d[\d,]*(?:\.\d+)*(?:\s?{UNIT}(?![\w]))?)")
IDENTIFIER = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{12,}\b")
RULE = re.compile(r"[-─=+|]{3,}")
CELL = re.compile(r"(?<=\s)[.=?-](?=\s|$)")


def exact(line):
    """The line with rules and blanks normalized."""
    return re.sub(r"\s+", " ", RULE.sub("---", line)).strip()


def shape(line):
    """The line with numbers and blanks normalized."""
    line = RULE.sub("---", line)
    line = RELEASE.sub(r"\1", line)
    line = IDENTIFIER.sub("#", line)
    line = NUMBER.sub("#", line)
    line = CELL.sub("#", line)
    line = re.sub(r"\s+", " ", line).strip()
    return re.sub(r"#(?: #)+", "#", line)


def pattern(line, form=shape):
    """A regular expression for a document's line; None for a line that matches any lines."""
    if ELISION.match(line):
        return None
    parts = re.split(r"(?<![.\w/])\.\.\.?(?![.\w/])", line)
    return re.compile(".*".join(re.escape(form(part)) for part in parts).replace(r"\ .*", ".*"))


def told(shown, printed):
    """The relevant printed lines: no blank ones, and warnings only if the document shows some."""
    with_warnings = any("warning:" in line for line in shown)
    return [line for line in printed if line.strip() and (with_warnings or "folio: warning:" not in line)]


def difference(shown, printed, optional=(), form=shape):
    """The lines of `shown` that `printed` lacks; None if they match.

    A shown line that contains one of `optional` may be missing.
    """
    shown = [line for line in shown if line.strip()]
    wanted = [(line, pattern(line, form)) for line in shown]
    actual = told(shown, printed)
    shapes = [form(line) for line in actual]
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
            return f"the document shows\n    {line.strip()}\nbut the command printed\n    {near.strip()}"
        places = after
    if shapes and len(shapes) not in places:
        return f"the document does not show (`...` stands for more lines)\n    {actual[min(places)].strip()}"
    return None


def missing(shown, printed, optional=(), form=shape):
    """The first shown line that was not printed, for output with machine-specific rows and order."""
    shapes = [form(line) for line in told(shown, printed)]
    for line in shown:
        regex = pattern(line, form)
        if line.strip() and regex and not any(part in line for part in optional):
            if not any(regex.fullmatch(each) for each in shapes):
                return f"the document shows\n    {line.strip()}\nwhich was not printed"
    return None


def renewed(shown, printed):
    """The shown lines with the numbers of `printed`, if they have the same shape; otherwise None."""
    if difference(shown, printed):
        return None
    actual, at, new = told(shown, printed), 0, []
    for line in shown:
        regex = pattern(line) if line.strip() else None
        while regex and at < len(actual) and not regex.fullmatch(shape(actual[at])):
            at += 1
        is_whole = regex and at < len(actual) and ".*" not in regex.pattern
        new.append(actual[at].rstrip() if is_whole else line)
        at += bool(regex)
    return new
