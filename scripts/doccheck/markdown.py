"""Finds a Markdown document's commands: code blocks, fenced or indented, and code in prose.

Decides what counts as a command and which lines are its output. Does not run or judge anything.
"""

import dataclasses
import re
import shlex

SHELL_FENCES = {"", "console", "sh", "bash", "shell"}
# In a block without prompts, a line with this beginning is a command. Two blanks after the word
# make it a drawing: `folio      process`.
COMMAND = re.compile(
    r"(sudo )?([A-Za-z_]+=\S* )*"
    r"(for \w+ in |folio(-lab)? (?=[a-z-])|(make|gcc|cc|python3?|pip|perf|duckdb|jq|cargo|mdbook|git|curl|tar"
    r"|cd|cp|mv|rm|mkdir|ln|cat|echo|printf|export|source|awk|sed|grep|ssh|scp|scripts/\S+)(?= \S|$))"
    r"|[A-Za-z_]+=\S*$|export [A-Za-z_]+="
)
ELISION = re.compile(r"^\s*\.\.\.?\s*$")


@dataclasses.dataclass
class Command:
    """One command: its text, its output in the document, and whether Python runs it."""

    document: str
    line: int
    text: str
    shown: list = dataclasses.field(default_factory=list)
    is_python: bool = False

    @property
    def title(self):
        """The text on one line, shortened if it is long."""
        flat = re.sub(r"\s*\\?\n\s*", " ", self.text.strip())
        return flat if len(flat) <= 100 else flat[:97] + "..."


@dataclasses.dataclass
class Block:
    """A code block: the line of its first line, its language (none if indented) and its lines."""

    line: int
    language: str
    lines: list = dataclasses.field(default_factory=list)
    is_fenced: bool = False


def blocks(text):
    """All code blocks of a document, in order."""
    found, current, fence, indent, after_blank = [], None, None, 0, True
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if fence is not None:
            if stripped.startswith(fence) and set(stripped) == {fence[0]}:
                fence, current = None, None
            else:
                current.lines.append(line[indent:] if not line[:indent].strip() else line.lstrip())
            continue
        opening = re.match(r"( *)(```+|~~~+)\s*([\w-]*)", line)
        if opening:
            indent, fence = len(opening[1]), opening[2]
            current = Block(number + 1, opening[3], is_fenced=True)
            found.append(current)
        elif line.startswith("    ") and (current is not None or after_blank):
            if current is None:
                current = Block(number, "")
                found.append(current)
            current.lines.append(line[4:])
        elif not stripped and current is not None:
            current.lines.append("")
        else:
            current = None
        after_blank = not stripped
    return found


def is_open(text):
    """Whether a command continues in the next line: a backslash, a quote, a loop or a
    here-document.
    """
    if text.endswith("\\"):
        return True
    here = re.search(r"<<-?\s*['\"]?(\w+)", text)
    if here:
        return not re.search(rf"^\s*{here[1]}$", text, re.M)
    if len(re.findall(r"(?:^|;\s*)(?:for|while|if)\s", text)) > len(re.findall(r"(?:^|;|\n)\s*(?:done|fi)\b", text)):
        return True
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return True
    return False


def from_prompts(document, block):
    """Commands of a block with `$ ` prompts, each with the lines below it."""
    found = []
    for offset, line in enumerate(block.lines):
        if line.startswith("$ "):
            found.append(Command(document, block.line + offset, line[2:]))
        elif found and not found[-1].shown and is_open(found[-1].text):
            found[-1].text += "\n" + line
        elif found:
            found[-1].shown.append(line)
    return found


def from_script(document, block):
    """Commands of a block without prompts: every line that is not a comment."""
    found = []
    for offset, line in enumerate(block.lines):
        if found and is_open(found[-1].text):
            found[-1].text += "\n" + line
        elif line.strip() and not line.lstrip().startswith("#"):
            found.append(Command(document, block.line + offset, line.strip()))
    return found


def commands(document, text):
    """All commands of a document, in the order a reader types them."""
    found = []
    for block in blocks(text):
        first = next((line for line in block.lines if line.strip() and line[0] != "#"), "")
        if block.language == "python":
            code = "\n".join(block.lines)
            found.append(Command(document, block.line, code, is_python=True))
        elif block.language not in SHELL_FENCES:
            continue
        elif any(line.startswith("$ ") for line in block.lines):
            found.extend(from_prompts(document, block))
        elif COMMAND.match(first) or block.language:
            found.extend(from_script(document, block))
    return found


def renew(text, command, lines):
    """The document with `lines` in place of a command's output."""
    all_lines = text.split("\n")
    first = command.line + command.text.count("\n")
    for at, (old, new) in enumerate(zip(command.shown, lines), first):
        indent = all_lines[at][: len(all_lines[at]) - len(old)] if all_lines[at].endswith(old) else ""
        all_lines[at] = (indent + new).rstrip() if new.strip() else all_lines[at]
    return "\n".join(all_lines)


def doubtful(text):
    """Lines that look like folio commands in blocks without a command at the start."""
    for block in blocks(text):
        first = next((line for line in block.lines if line.strip() and line[0] != "#"), "")
        if block.language or COMMAND.match(first) or any(line.startswith("$ ") for line in block.lines):
            continue
        for offset, line in enumerate(block.lines):
            if re.match(r"\s*(sudo )?folio(-lab)? [a-z-]+ \S", line):
                yield block.line + offset, line.strip()


def spans(text):
    """Code in prose as (line, code): text in back-ticks outside code blocks."""
    lines = text.splitlines()
    for block in blocks(text):
        first = block.line - 1 - block.is_fenced
        for number in range(first, first + len(block.lines) + 2 * block.is_fenced):
            if number < len(lines):
                lines[number] = ""
    prose = "\n".join(lines)
    for match in re.finditer(r"(?<!`)`([^`]+)`(?!`)", prose):
        yield prose.count("\n", 0, match.start()) + 1, re.sub(r"\s+", " ", match[1])
