"""The crates in the published programs, libraries and the Python module, according to cargo.

Covers all of them for every architecture: cargo selects by target and feature, so this script reads
no `cfg`.
"""

import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
TARGETS = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]
# One `cargo build` shares features among its crates: folio with the module, the libraries alone.
COMPILED = [("largefolio-cli", "largefolio-python"),
            ("largefolio-recorder", "largefolio-preload", "largefolio-regions", "largefolio-c")]
# All compiled dependencies, and those linked into a program: no build scripts, no macros.
ALL = "normal,build"
LINKED = "normal,no-proc-macro"


def said(*words):
    """Returns the output of a command run in the repository."""
    return subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def tree(compiled, target, edges):
    """{(name, version)} of `cargo tree`'s output."""
    packages = [f"--package={name}" for name in compiled]
    lines = said("cargo", "tree", "--locked", *packages, f"--target={target}", f"--edges={edges}", "--prefix=none",
                 "--format={p}").splitlines()
    words = [line.split() for line in lines if line.strip()]
    return {(name, version.removeprefix("v")) for name, version, *_ in words}


def chosen(edges):
    return set().union(*(tree(compiled, target, edges) for compiled in COMPILED for target in TARGETS))


class BuiltIn:
    """`crates`: the packages of `cargo metadata`, sorted; `depends`: {id: ids}; `linked`: ids of those in a program."""

    def __init__(self):
        names, linked = chosen(ALL), chosen(LINKED)
        packages, self.depends = {}, {}
        for target in TARGETS:
            metadata = json.loads(said("cargo", "metadata", "--format-version=1", "--locked",
                                       f"--filter-platform={target}"))
            packages |= {one["id"]: one for one in metadata["packages"] if key(one) in names}
            for node in metadata["resolve"]["nodes"]:
                used = {two["pkg"] for two in node["deps"] if any(kind["kind"] != "dev" for kind in two["dep_kinds"])}
                self.depends.setdefault(node["id"], set()).update(used)
        self.crates = sorted(packages.values(), key=key)
        self.depends = {one: self.depends[one] & packages.keys() for one in packages}
        self.linked = {one for one, package in packages.items() if key(package) in linked}


def key(package):
    return package["name"], package["version"]


def is_own(package):
    """Whether it is a crate of this workspace."""
    return package["source"] is None
