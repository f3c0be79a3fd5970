#!/usr/bin/env python3
"""Writes the licences of third-party software in folio: THIRD-PARTY.txt of packages and wheels.

    third_party.py FILE        or standard output

The texts are those in the crates, including their C code, and those in Rust's distribution for its
standard library. A text shared by several crates is printed once. The same crates produce the same
bytes.
"""

import html.parser
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import built_in  # noqa: E402
from built_in import said  # noqa: E402

NAMES = re.compile(r"(un)?licen[cs]e|copying|notice|copyright", re.IGNORECASE)
# Source files such as licence.rs are not licences.
CODE = {".rs", ".py", ".c", ".h", ".sh", ".toml", ".json"}
LINE = "=" * 100
HEAD = """Software of others in largefolio

largefolio is licensed MIT OR Apache-2.0: LICENSE-MIT and LICENSE-APACHE. Its programs, libraries and Python
module are built from the {crates} crates below and from Rust's standard library, which is named with all that it is
made of on any system. Their licences follow: each text once, with those whose text it is. If there is a choice of
licences, all of them are here.
"""
WITHOUT = "no text of its own"


class Component:
    """A crate: its name here, its licence as an SPDX expression, and its texts by file name."""

    def __init__(self, name, licence, texts):
        self.name, self.licence, self.texts = name, licence, texts


def tidied(text):
    """Normalizes texts for comparison: line ends, trailing blanks, surrounding empty lines."""
    return "\n".join(line.rstrip() for line in text.replace("\r\n", "\n").split("\n")).strip("\n")


def is_text(path):
    return path.is_file() and path.suffix.lower() not in CODE and \
        bool(NAMES.match(path.name) or path.parent.name.upper() == "LICENSES")


def texts_of(folder, declared=None):
    """{name: text} of the licences and notices below a crate's directory."""
    found = {path for path in folder.rglob("*") if is_text(path)}
    if declared:
        found.add(folder / declared)
    texts = {path.relative_to(folder).as_posix(): tidied(path.read_text(errors="replace")) for path in found}
    return dict(sorted(texts.items()))


def crates(packages):
    """The third-party components."""
    for one in packages:
        if not built_in.is_own(one):
            folder = pathlib.Path(one["manifest_path"]).parent
            licence = (one["license"] or "see its text").replace("/", " OR ")
            yield Component(f"{one['name']} {one['version']}", licence, texts_of(folder, one["license_file"]))


class Notices(html.parser.HTMLParser):
    """COPYRIGHT-library.html of Rust: a heading for each crate, then its licence and texts in <pre>."""

    READ = ("h3", "p", "summary", "pre")

    def __init__(self):
        super().__init__()
        self.components, self.words, self.file = [], None, ""

    def handle_starttag(self, tag, attributes):
        if tag in self.READ:
            self.words = []

    def handle_data(self, data):
        if self.words is not None:
            self.words.append(data)

    def handle_endtag(self, tag):
        if tag not in self.READ:
            return
        text, self.words = "".join(self.words or []), None
        if tag == "h3":
            name, version = re.fullmatch(r"\W*(.+?)-(\d.*)", text.strip()).groups()
            self.components.append(Component(f"{name} {version} (Rust's standard library)", "", {}))
        elif self.components and tag == "p" and text.strip().startswith("License:"):
            self.components[-1].licence = text.partition(":")[2].strip()
        elif tag == "summary":
            self.file = text.strip()
        elif self.components and tag == "pre":
            self.components[-1].texts[self.file] = tidied(text)


def standard_library(folder):
    """Components of Rust's standard library; `folder` has their notices."""
    texts = {}
    for name in ("Apache-2.0.txt", "MIT.txt", "Unicode-3.0.txt"):
        path = folder / "licenses" / name
        if path.exists():
            texts[name] = tidied(path.read_text())
    yield Component(f"Rust's standard library {said('rustc', '--version').split()[1]}",
                    "(MIT OR Apache-2.0) AND Unicode-3.0", texts)
    notices = folder / "COPYRIGHT-library.html"
    if notices.exists():
        parser = Notices()
        parser.feed(notices.read_text())
        yield from parser.components


def written(of_crates, of_library=()):
    """The list of all components, then each text with its components."""
    whose = {}
    of_crates = list(of_crates)
    components = sorted([*of_crates, *of_library], key=lambda one: one.name)
    for one in components:
        for name, text in one.texts.items():
            whose.setdefault(text, []).append(f"{one.name}: {name}")
    width = max(len(one.name) for one in components)
    parts = [HEAD.format(crates=len(of_crates))]
    parts += [f"    {one.name:{width}}  {one.licence}{'' if one.texts else f' ({WITHOUT})'}" for one in components]
    for text, names in sorted(whose.items(), key=lambda item: item[1]):
        parts += ["", LINE, *names, LINE, "", text]
    return "\n".join(parts) + "\n"


def third_party():
    """All of THIRD-PARTY.txt."""
    documents = pathlib.Path(said("rustc", "--print", "sysroot")) / "share/doc/rust"
    return written(crates(built_in.BuiltIn().crates), standard_library(documents))


def main():
    text = third_party()
    if len(sys.argv) < 2:
        sys.stdout.write(text)
        return
    target = pathlib.Path(sys.argv[1])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    os.chmod(target, 0o644)


if __name__ == "__main__":
    main()
