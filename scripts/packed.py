#!/usr/bin/env python3
"""Checks what has been packed: what a Debian package depends on, licences, links of the documents.

    packed.py deb FILE.deb
    packed.py wheel FILE.whl
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

LIBRARIES = {
    "libc.so.6": "libc6", "libm.so.6": "libc6", "ld-linux-x86-64.so.2": "libc6", "ld-linux-aarch64.so.1": "libc6",
    "libgcc_s.so.1": "libgcc-s1",
}
LICENCES = ["LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY.txt"]
OF_DEBIAN = ["copyright", "changelog.gz", "changelog.Debian.gz"]
DOCUMENTS = "usr/share/doc/largefolio"


class Wrong(Exception):
    """A faulty package."""


def said(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout


def version(text):
    return tuple(int(part) for part in text.split("."))


def depended(line):
    """{package: oldest version or None} of a `Depends`."""
    found = re.findall(r"([a-z0-9.+-]+)(?::\w+)?(?: *\(>= *([0-9.]+)\))?(?:, *|$)", line)
    return {name: oldest or None for name, oldest in found}


def needs(program):
    """Libraries that a program needs, and its newest glibc symbol version, or None."""
    told = said("readelf", "--dynamic", "--version-info", "--wide", str(program))
    symbols = set(re.findall(r"Name: GLIBC_([0-9.]+)", told))
    # Packed relocations have a symbol version without a number.
    symbols |= {"2.36"} if "GLIBC_ABI_DT_RELR" in told else set()
    return re.findall(r"\(NEEDED\).*\[(.+)\]", told), max(symbols, key=version, default=None)


def check_depends(depends, program, libraries, glibc):
    """Checks that `depends` provides everything a program needs."""
    for library in libraries:
        if library not in LIBRARIES:
            raise Wrong(f"{program} needs {library}: which package has it? See LIBRARIES in scripts/packed.py")
        if LIBRARIES[library] not in depends:
            raise Wrong(f"{program} needs {library}, but the package does not depend on {LIBRARIES[library]}")
    if glibc and version(glibc) > version(depends.get("libc6") or "0"):
        raise Wrong(f"{program} has symbols of glibc {glibc}, but the package depends on {depends.get('libc6')}")


def prose(path):
    """A document's text without code; a notebook's text between its code."""
    text = path.read_text()
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^(?: {4}|\t).*$|`[^`\n]*`", "", text, flags=re.MULTILINE)


def dead_links(folder):
    """Missing targets of links in documents below a folder: `document: link`."""
    for path in sorted([*folder.rglob("*.md"), *folder.rglob("*.ipynb")]):
        for link in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
            target = link.partition("#")[0]
            if target and not re.match(r"[a-z]+:", target) and not (path.parent / target).exists():
                yield f"{path.relative_to(folder)}: {link}"


def missing(names, there):
    absent = sorted(set(names) - set(there))
    if absent:
        raise Wrong(f"without {', '.join(absent)}")


def check_tree(tree, depends):
    """Checks an unpacked Debian package."""
    documents = tree / DOCUMENTS
    missing([*LICENCES, *OF_DEBIAN], (path.name for path in documents.iterdir()))
    dead = list(dead_links(documents))
    if dead:
        raise Wrong(f"{len(dead)} document links are dead: {'; '.join(dead)}")
    for program in [tree / "usr/bin/folio", *sorted((tree / "usr/lib/largefolio").glob("*.so"))]:
        check_depends(depended(depends), program.relative_to(tree), *needs(program))


def check_deb(package):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
        check_tree(pathlib.Path(folder), said("dpkg-deb", "--field", package, "Depends").strip())


def check_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = [pathlib.PurePath(name) for name in archive.namelist()]
    missing(LICENCES, (name.name for name in names if name.parent.match("*.dist-info/licenses")))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=["deb", "wheel"])
    parser.add_argument("file", type=pathlib.Path)
    args = parser.parse_args()
    try:
        {"deb": check_deb, "wheel": check_wheel}[args.kind](args.file)
    except Wrong as why:
        print(f"packed.py: {args.file.name}: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
