"""docs/commands.toml: the documents' requirements, and the commands that cannot run unchanged."""

import dataclasses
import fnmatch
import os
import pathlib
import re
import shutil

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib


class Stale(Exception):
    """An exception or substitution that applies to nothing, or is not understood."""


@dataclasses.dataclass
class Rule:
    """One `[[command]]`: the commands it applies to, and their differences."""

    document: str
    match: str
    why: str
    skip: bool = False
    replace: dict = dataclasses.field(default_factory=dict)
    exit: list = dataclasses.field(default_factory=lambda: [0])
    optional: list = dataclasses.field(default_factory=list)
    needs: list = dataclasses.field(default_factory=list)
    is_any_order: bool = False
    seconds: int = 60
    is_alone: bool = False

    def concerns(self, command):
        return fnmatch.fnmatch(command.document, self.document) and self.match in command.text + "$"

    def apply(self, text):
        """The text to run instead of a command's."""
        for old, new in self.replace.items():
            text = text.replace(old, new)
        return text

    def complaint(self, commands):
        """Why this rule is stale for documents with these commands, or None."""
        name = f"docs/commands.toml: {self.document}: {self.match!r}"
        concerned = [command for command in commands if self.concerns(command)]
        if not concerned:
            return f"{name} matches no command"
        typed = "\n".join(command.text for command in concerned)
        shown = "\n".join(line for command in concerned for line in command.shown)
        unused = [old for old in self.replace if old not in typed] + [part for part in self.optional if part not in shown]
        return f"{name}: nothing has {unused}" if unused else None


@dataclasses.dataclass
class Varying:
    """One `[[varying]]`: commands with numbers that depend on the machine or the time."""

    match: str
    why: str
    document: str = "*"

    def concerns(self, command):
        return fnmatch.fnmatch(command.document, self.document) and re.search(self.match, command.text) is not None


class Exceptions:
    """The parsed file, which describes `files`, `pids`, `tools` and `options`."""

    def __init__(self, path):
        data = tomllib.loads(pathlib.Path(path).read_text())
        self.files = data.pop("files", {})
        self.pids = data.pop("pids", {})
        self.tools = data.pop("tools", {})
        self.options = data.pop("options", {})
        self.rules = [Rule(**rule) for rule in data.pop("command", [])]
        self.varying = [Varying(**each) for each in data.pop("varying", [])]
        if data:
            raise Stale(f"{path}: not understood: {', '.join(data)}")

    def rule(self, command):
        """The rule for a command; two would hide each other, so there is at most one."""
        found = [rule for rule in self.rules if rule.concerns(command)]
        if len(found) > 1:
            raise Stale(f"{command.document}:{command.line}: more than one rule: {[r.match for r in found]}")
        return found[0] if found else Rule(command.document, command.text, "")

    def is_varying(self, command):
        """Whether only its output's shape is constant."""
        return any(each.concerns(command) for each in self.varying)

    def missing(self, text, rule, path):
        """A requirement of a command that this machine lacks, with the remedy; None if nothing."""
        for tool, remedy in self.tools.items():
            if re.search(rf"(^|[\s|(;])(sudo )?{re.escape(tool)}(?=[\s)]|$)", text) and not shutil.which(tool, path=path):
                return f"no {tool}. Run: {remedy}"
        for need in rule.needs:
            is_there = os.path.exists(need) if need.startswith("/") else shutil.which(need, path=path)
            if not is_there:
                return f"this machine has no {need}"
        return None

    def named(self, table, text):
        """The names in `files` or `pids` that the text contains as a word."""
        for name, value in table.items():
            if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)", text):
                yield name, value

    def complaints(self, commands):
        """The file's stale parts for documents with these commands."""
        typed = "\n".join(command.text for command in commands)
        tables = {**self.files, **self.pids}
        unused = tables.keys() - dict(self.named(tables, typed))
        return [f"docs/commands.toml: no command has {name}" for name in sorted(unused)] + [
            line for rule in self.rules if (line := rule.complaint(commands))
        ] + [
            f"docs/commands.toml: [[varying]] {each.match!r} matches no command that shows output"
            for each in self.varying
            if not any(each.concerns(command) for command in commands if any(command.shown))
        ]
