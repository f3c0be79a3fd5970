"""A printed start as it is typed: the program's words and variables."""

import shlex
from pathlib import Path


def as_printed(start, typed, environment):
    """The words and variables of a printed start. `typed` is the process's own command line, which
    begins with the program and perhaps its loader. Raises ValueError if the print names another
    program, or drops options that a variable already has.
    """
    words = shlex.split(start)
    environment, prefix = dict(environment), []
    if "--" in words:
        at = words.index("--")
        prefix, words = [*words[:at], "--quiet", "--"] if words[:2] == ["folio", "run"] else words[:at + 1], words[at + 1:]
    while words and "=" in words[0] and "/" not in words[0].split("=")[0]:
        name, value = words.pop(0).split("=", 1)
        lost = set(environment.get(name, "").split(":")) - set(value.split(":")) - {""}
        lost = {one for one in lost if one.split("=")[0] not in value}
        if lost:
            raise ValueError(f"it drops {', '.join(sorted(lost))} of {name}")
        environment[name] = value
    if not words:
        return prefix + typed, environment
    names = [Path(word).name for word in typed[:2]]
    nr = 0
    while nr < len(words) and Path(words[nr]).name in names:
        nr += 1
    if not nr:
        raise ValueError(f"it names {words[0]!r}, not {typed[0]!r}")
    # Starting it without the loader is equivalent.
    program = typed[:2] if nr == 2 else [one for one in typed[:2] if Path(one).name == Path(words[0]).name]
    rest = typed[typed.index(program[-1]) + 1:]
    # Its existing arguments replace `..`.
    at = words.index("..") if ".." in words else len(words)
    return prefix + program + words[nr:at] + rest + words[at + 1:], environment
