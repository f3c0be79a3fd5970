#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Adds the features of this folder to a copy of a kernel's source tree.

    kernel/attach.py SOURCE COPY VERSION [FEATURE ..]

COPY shares the unchanged files of SOURCE by hard links. A feature is a folder with a file
VERSION.toml, which lists its hooks: lines to add, and calls to redirect, placed by the name of a
function or structure (README.md). A hook whose place is missing, or is there more than once, is an
error: the source is then of a version that the feature does not know. A second run updates COPY and
leaves the times of unchanged files alone.
"""

import argparse
import os
import pathlib
import re
import shutil
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
BASE = "settings"                       # the folder that every feature needs
PLACE = "mm/largefolio"
HEADERS = "include/linux/largefolio"
LIST = ".largefolio"                    # the files of COPY that differ from SOURCE
KINDS = ["entry", "before", "call", "word", "rename", "above", "field", "include"]


class Misplaced(Exception):
    """A hook that does not fit the source."""


def masked(text):
    """`text` with comments and literals blanked, at the same positions."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match[0])
    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", blank, text,
                  flags=re.S)


def closing(code, start):
    """The position of the bracket that closes the one at `start`."""
    pairs = {"(": ")", "{": "}"}
    open_, close = code[start], pairs[code[start]]
    depth = 0
    for at in range(start, len(code)):
        depth += (code[at] == open_) - (code[at] == close)
        if depth == 0:
            return at
    raise Misplaced("unbalanced brackets")


def only(found, what):
    if len(found) != 1:
        raise Misplaced(f"{what}: found {len(found)} times, not once")
    return found[0]


def definition(code, name, which=None):
    """A function's definition: where it starts, and the positions of its braces. `which` is its
    number if the file has several, for different options."""
    found = []
    for match in re.finditer(rf"^[A-Za-z_][^;{{}}()#]*\b{name}\s*\(", code, re.M):
        opened = re.match(r"[\s\w]*\{", code[(end := closing(code, match.end() - 1) + 1):])
        if opened:
            body = end + opened.end() - 1
            found.append((match.start(), body, closing(code, body)))
    if which is not None:
        found = found[which:which + 1]
    return only(found, f"the function {name}")


def mentions(code, name, start, end, suffix=""):
    pattern = re.compile(rf"(?<![\w.>])\b{name}\b{suffix}")
    return [match.start() for match in pattern.finditer(code, start, end)]


def statement(code, at, start):
    """The start of the line on which the statement around position `at` begins; preprocessor lines
    are not part of it.
    """
    while at > start and code[at - 1] not in ";{}":
        at -= 1
    at = re.compile(r"(?:\s|#(?:\\\n|[^\n])*\n)*").match(code, at).end()
    return code.rindex("\n", 0, at) + 1


def edited(text, hook):
    """`text` with one hook in place."""
    code = masked(text)
    if "field" in hook:
        match = only(list(re.finditer(rf"^struct {hook['struct']}\s*\{{", code, re.M)),
                     f"struct {hook['struct']}")
        end = closing(code, match.end() - 1)
        return text[:end] + f"\t{hook['field']}\n" + text[end:]
    if "include" in hook:
        last = list(re.finditer(r"^#include[^\n]*\n", text, re.M))
        at = last[-1].end() if last else 0
        return text[:at] + f"#include <{hook['include']}>\n" + text[at:]
    top, start, end = definition(code, hook["function"], hook.get("which"))
    if "rename" in hook:
        at = mentions(code, hook["function"], top, start)[0]
        return text[:at] + hook["rename"] + text[at + len(hook["function"]):]
    if "above" in hook:
        return text[:top] + hook["above"] + "\n" + text[top:]
    if "entry" in hook:
        return text[:start + 1] + f"\n\t{hook['entry']}" + text[start + 1:]
    if "call" in hook:
        found = mentions(code, hook["call"], start, end, r"(?=\s*\()")
        if len(found) != hook.get("times", 1):
            raise Misplaced(f"{hook['function']} calls {hook['call']} {len(found)} times")
        for at in reversed(found):
            text = text[:at] + hook["to"] + text[at + len(hook["call"]):]
        return text
    name = hook.get("word") or hook["before"]
    found = mentions(code, name, start + 1, end)
    if len(found) <= (nth := hook.get("nth", 0)):
        raise Misplaced(f"{hook['function']} mentions {name} {len(found)} times")
    if "word" in hook:
        return text[:found[nth]] + hook["to"] + text[found[nth] + len(name):]
    at = statement(code, found[nth], start + 1)
    return text[:at] + f"\t{hook['line']}\n" + text[at:]


def checked(hook, where):
    if len([kind for kind in KINDS if kind in hook]) != 1:
        raise Misplaced(f"{where}: a hook has one of {', '.join(KINDS)}")
    return hook


def features(version, names):
    """The folders to attach, the common one first."""
    have = sorted(path.parent for path in HERE.glob(f"*/{version}.toml")
                  if path.parent.name != BASE)
    if unknown := set(names) - {path.name for path in have}:
        sys.exit(f"no hooks for {version}: {', '.join(sorted(unknown))}; there are "
                 f"{', '.join(path.name for path in have) or 'none'}")
    return [HERE / BASE, *(path for path in have if path.name in names or not names)]


def added(source, folders, version):
    """Path to text of every file of the copy that differs from the source."""
    files = {}

    def text_of(path):
        return files[path] if path in files else (source / path).read_text()

    for folder in folders:
        for path in sorted(folder.iterdir()):
            if path.suffix in (".c", ".inc"):
                files[f"{PLACE}/{folder.name}/{path.name}"] = path.read_text()
            elif path.suffix == ".h":
                files[f"{HEADERS}/{path.name}"] = path.read_text()
        objects = " ".join(f"{path.stem}.o" for path in sorted(folder.glob("*.c")))
        option = "" if folder.name == BASE else f"_{folder.name.upper()}"
        files[f"{PLACE}/{folder.name}/Makefile"] = (
            f"# SPDX-License-Identifier: GPL-2.0-only\nobj-$(CONFIG_LARGEFOLIO{option}) += {objects}\n")
        files[f"{PLACE}/{folder.name}/Kconfig"] = (folder / "Kconfig").read_text()
        hooks = folder / f"{version}.toml"
        for hook in tomllib.loads(hooks.read_text())["hook"] if hooks.exists() else []:
            try:
                files[hook["file"]] = edited(text_of(hook["file"]), checked(hook, hooks))
            except (Misplaced, FileNotFoundError) as error:
                sys.exit(f"{hooks}: {hook['file']}: {error}")
    names = [folder.name for folder in folders]
    files[f"{PLACE}/Makefile"] = "".join(f"obj-y += {name}/\n" for name in names)
    files[f"{PLACE}/Kconfig"] = "".join(f'source "{PLACE}/{name}/Kconfig"\n' for name in names)
    files["mm/Makefile"] = text_of("mm/Makefile") + "\nobj-$(CONFIG_LARGEFOLIO) += largefolio/\n"
    kconfig, tail = text_of("mm/Kconfig").rsplit("endmenu", 1)
    files["mm/Kconfig"] = f'{kconfig}source "{PLACE}/Kconfig"\n\nendmenu{tail}'
    return files


def write(source, copy, files):
    """Brings the copy up to date."""
    if not (copy / LIST).exists():
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy, copy_function=os.link, symlinks=True)
        (copy / LIST).touch()
    before = set((copy / LIST).read_text().split())
    (copy / LIST).write_text("\n".join(sorted(before | set(files))) + "\n")
    for path in sorted(before - set(files)):
        (copy / path).unlink(missing_ok=True)
        if (source / path).exists():
            shutil.copyfile(source / path, copy / path)
    for path, text in files.items():
        target = copy / path
        if target.exists() and target.read_text() == text:
            continue
        target.unlink(missing_ok=True)          # else the source's file changes too
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    (copy / LIST).write_text("\n".join(sorted(files)) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("copy", type=pathlib.Path)
    parser.add_argument("version")
    parser.add_argument("feature", nargs="*", help="default: all that know the version")
    args = parser.parse_args()
    if not (args.source / "mm/Kconfig").exists():
        sys.exit(f"{args.source} is not a kernel's source tree")
    folders = features(args.version, args.feature)
    write(args.source, args.copy, added(args.source, folders, args.version))
    print(f"{args.copy}: {', '.join(folder.name for folder in folders[1:]) or 'no feature'}")


if __name__ == "__main__":
    main()
