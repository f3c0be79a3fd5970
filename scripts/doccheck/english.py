"""Checks prose for unidiomatic phrases, listed in `english.toml`."""

import pathlib
import re

from .exceptions import tomllib
from .markdown import blocks

LIST = pathlib.Path(__file__).with_name("english.toml")
CODE = re.compile(r"`[^`\n]*`|\]\([^)]*\)")


def phrases(text=None):
    """[(pattern, replacement)] of the list, or of `text` instead."""
    listed = tomllib.loads(LIST.read_text() if text is None else text)["phrase"]
    found = []
    for phrase in listed:
        pattern = phrase["find"].replace(" ", r"\s+")
        found.append((re.compile(rf"\b(?:{pattern})(?!\w)", re.I | re.M), phrase["say"]))
    return found


def prose(text):
    """A document without its code, which becomes blank lines."""
    lines = text.splitlines()
    for block in blocks(text):
        for number in range(block.line, block.line + len(block.lines)):
            lines[number - 1] = ""
    return CODE.sub(lambda code: re.sub(r"[^\n]", "", code[0]) or " ", "\n".join(lines))


def check(texts, listed):
    """Complaints about {name: text}."""
    found = []
    for name, text in texts.items():
        for pattern, say in listed:
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                said = " ".join(match[0].split())
                found.append(f'{name}:{line}: "{said}": say: {say} (scripts/doccheck/english.toml)')
    return found
