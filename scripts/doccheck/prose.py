"""Checks names in prose: commands and options against `--help`, targets against the Makefile."""

import functools
import re
import subprocess

from .markdown import doubtful, spans

OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


class Words:
    """The words of `folio`, `folio-lab` and the Makefile; each help text is read once."""

    def __init__(self, folio, root, foreign):
        self.root, self.foreign = root, foreign
        lab = folio.with_name("folio-lab")
        self.programs = {path.name: path for path in (folio, lab) if path.exists()}
        self.used_foreign = set()
        rules = re.findall(r"^([a-z][\w -]*):", (root / "Makefile").read_text(), re.M)
        self.targets = {target for rule in rules for target in rule.split()}

    @functools.cache
    def help(self, program, *verbs):
        """Returns a command's help text, or None if the command does not exist."""
        shown = subprocess.run([self.programs[program], *verbs, "--help"], capture_output=True, text=True, check=False)
        return shown.stdout if shown.returncode == 0 else None

    @functools.cache
    def verbs(self, *parents):
        """The verbs below a program or a verb."""
        section = (self.help(*parents) or "").partition("Commands:\n")[2].partition("\n\n")[0]
        return set(re.findall(r"^  ([a-z][\w-]*)(?:  |$)", section, re.M)) - {"help"}

    @functools.cache
    def all_help(self):
        """{command: help text} of the programs and of all verbs."""
        found, todo = {}, [(program,) for program in self.programs]
        while todo:
            parents = todo.pop()
            found[" ".join((*parents, "--help"))] = self.help(*parents) or ""
            todo.extend((*parents, verb) for verb in self.verbs(*parents))
        return found

    @functools.cache
    def all_options(self):
        """Options of all verbs."""
        return {option for text in self.all_help().values() for option in OPTION.findall(text)}

    def folio_complaint(self, words):
        """Describes the error in `folio WORDS` or `folio-lab WORDS`, or None."""
        parents = (words[0],)
        while len(words) > len(parents) and words[len(parents)] in self.verbs(*parents):
            parents += (words[len(parents)],)
        if len(parents) == 1 and len(words) > 1 and re.fullmatch(r"[a-z]+", words[1]):
            return f"{words[0]} has no verb {words[1]}"
        own = words[: words.index("--")] if "--" in words else words
        known = set(OPTION.findall(self.help(*parents) or "")) | {"--help", "--version"}
        unknown = [option for option in OPTION.findall(" ".join(own)) if option not in known]
        return f"{' '.join(parents)} has no {', '.join(unknown)}" if unknown else None

    def complaint(self, code):
        """Describes the error in a piece of code in prose, or None."""
        words = code.removeprefix("sudo ").split()
        if words and words[0] in self.programs:
            return self.folio_complaint(words)
        if words[:1] == ["make"] and len(words) > 1:
            return None if words[1] in self.targets else f"the Makefile has no target {words[1]}"
        if code.startswith("scripts/"):
            return None if (self.root / words[0]).exists() else f"there is no {words[0]}"
        for program in self.programs:  # `verify --tune` is short for `folio verify --tune`
            if words and words[0] in self.verbs(program):
                return self.folio_complaint([program, *words])
        return self.option_complaint(code) if code.startswith("--") else None

    def option_complaint(self, code):
        option = OPTION.match(code)
        if option is None or option[0] in self.all_options():
            return None
        if option[0] in self.foreign:
            self.used_foreign.add(option[0])
            return None
        return f"no verb has {option[0]}; list another program's options in docs/commands.toml"


def check(documents, words):
    """Complaints about the code in prose of {name: text}."""
    found = []
    for name, text in documents.items():
        for line, code in doubtful(text):
            found.append(f"{name}:{line}: `{code}` is in a block that does not begin with a command")
        for line, code in spans(text):
            if complaint := words.complaint(code):
                found.append(f"{name}:{line}: `{code}`: {complaint}")
    stale = set(words.foreign) - words.used_foreign
    return found + [f"docs/commands.toml: options: no document has {option}" for option in sorted(stale)]
