#!/usr/bin/env python3
"""Builds everything of a release twice, in two directories, and compares the bytes.

    release.py                          crates, sdist, wheels and Debian packages, for amd64 and arm64
    release.py crates sdist             some of it
    release.py deb --arch amd64 --profile lab

Builds the checked-out commit, and refuses to run with uncommitted changes. Each build has its own
clone, target directory and path. Into target/published:

    *.crate *.whl *.tar.gz *.deb *.ddeb     what both builds made, byte for byte the same
    SHA256SUMS                              sha256sum -c reads it
    sbom.cdx.json                           what is in it: a CycloneDX list of components
    provenance.txt                          from what, with what, and how to build it again
"""

import argparse
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.parse
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import built_in  # noqa: E402
import fuzz  # noqa: E402
import package  # noqa: E402
from package import said  # noqa: E402

OUTPUT = ROOT / "target" / "published"
PARTS = {"crates": "package/*.crate", "sdist": "wheels/*.tar.gz", "wheel": "wheels/*.whl", "deb": "debian/*.*deb"}
# Debian 12, the oldest supported system.
GLIBC = "manylinux_2_36"


class Different(Exception):
    """Two builds of one commit differ."""


class Changed(Exception):
    """The checkout differs from the commit to build."""


def git(*words):
    return said("git", *words)


def check_unchanged(commit_id):
    """Raises unless the checkout is this commit: the lists of components and tools come from its
    files.
    """
    # `crates/*` are workspace members, whether git tracks them or not.
    unknown = git("ls-files", "--others", "--exclude-standard", "crates").splitlines()
    changed = [*git("diff", "--name-status", commit_id).splitlines(), *(f"?\t{path}" for path in unknown)]
    if changed:
        raise Changed(
            f"the commit {commit_id[:12]} is built, but the checkout has changes that are not in it:\n    "
            + "\n    ".join(changed)
            + "\ncommit them, stash them (git stash --include-untracked), or build in a clone of this repository")


class Commit:
    """The commit to build."""

    def __init__(self):
        self.id = git("rev-parse", "HEAD")
        self.seconds = int(git("log", "-1", "--format=%ct"))
        self.day = git("log", "-1", "--format=%cs")
        self.built_in = built_in.BuiltIn()
        self.version = next(one["version"] for one in self.built_in.crates if one["name"] == "largefolio-cli")


class Build:
    """One of the two builds: a clone with its own target directory."""

    def __init__(self, folder, commit, args):
        self.folder, self.args = folder, args
        self.source, self.target = folder / "source", folder / "target"
        subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, self.source], check=True)
        subprocess.run(["git", "-C", self.source, "checkout", "--quiet", "--detach", commit.id], check=True)
        cargo = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
        # The programs must not contain build paths.
        paths = {self.source: "/largefolio", self.target: "/target", cargo: "/cargo"}
        remap = " ".join(f"--remap-path-prefix={path}={name}" for path, name in paths.items())
        self.environment = {
            **os.environ, "SOURCE_DATE_EPOCH": str(commit.seconds), "CARGO_TARGET_DIR": str(self.target),
            "CARGO_INCREMENTAL": "0", "RUSTFLAGS": remap, "CFLAGS": f"-ffile-prefix-map={cargo}=/cargo",
            "LC_ALL": "C.UTF-8", "TZ": "UTC", "ZERO_AR_DATE": "1",
            "LARGEFOLIO_COMPATIBILITY": GLIBC,
        }

    def run(self, *words):
        subprocess.run(words, cwd=self.source, env=self.environment, check=True, umask=0o022)

    def made(self):
        """{name: path} of everything requested."""
        tools = self.source / "target" / "tools"
        tools.parent.mkdir(exist_ok=True)
        tools.symlink_to(package.TOOLS)
        archs = [f"--arch={arch}" for arch in self.args.arch]
        self.run("scripts/package.py", *self.args.parts, f"--profile={self.args.profile}", *archs)
        found = [path for part in self.args.parts for path in self.target.glob(PARTS[part])]
        return {path.name: path for path in found}


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def compared(first, second):
    """{name: digest} if both builds are equal."""
    if first.keys() != second.keys():
        raise Different(f"only one build made {sorted(first.keys() ^ second.keys())}")
    digests = {name: digest(path) for name, path in sorted(first.items())}
    differ = [name for name in digests if digest(second[name]) != digests[name]]
    if differ:
        paths = "\n".join(f"    diffoscope {first[name]} {second[name]}" for name in differ)
        raise Different(f"{len(differ)} of {len(digests)} differ:\n{paths}")
    return digests


def checksums():
    """{(name, version): SHA-256} of Cargo.lock."""
    packages = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    return {(one["name"], one["version"]): one.get("checksum") for one in packages}


def reference(package):
    """The crate as a package URL."""
    return f"pkg:cargo/{package['name']}@{urllib.parse.quote(package['version'], safe='')}"


def sbom(commit):
    """CycloneDX 1.5. Its serial number is derived from the commit, so it is always the same."""
    of, sums = commit.built_in, checksums()

    def component(one):
        checksum = sums.get(built_in.key(one))
        licence = (one["license"] or "").replace("/", " OR ")
        return {
            "type": "library", "bom-ref": reference(one), "name": one["name"], "version": one["version"],
            # Build scripts and macros run at compile time and are in no program.
            "scope": "required" if one["id"] in of.linked else "excluded", "purl": reference(one),
            **({"licenses": [{"expression": licence}]} if licence else {}),
            **({"hashes": [{"alg": "SHA-256", "content": checksum}]} if checksum else {}),
        }

    refs = {one["id"]: reference(one) for one in of.crates}
    depends = [{"ref": refs[one], "dependsOn": sorted(refs[two] for two in of.depends[one])} for one in refs]
    whole = {"type": "application", "bom-ref": "largefolio", "name": "largefolio", "version": commit.version,
             "licenses": [{"expression": "MIT OR Apache-2.0"}]}
    own = sorted(reference(one) for one in of.crates if built_in.is_own(one))
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, f"largefolio/{commit.id}").urn,
        "metadata": {"timestamp": f"{commit.day}T00:00:00Z", "component": whole},
        "components": [component(one) for one in of.crates],
        "dependencies": [{"ref": "largefolio", "dependsOn": own}, *depends],
    }


def first_line(*words):
    """The first line of a tool's output, which has its version."""
    path = f"{package.TOOLS / 'bin'}:{os.environ['PATH']}"
    found = shutil.which(words[0], path=path)
    return said(found, *words[1:]).splitlines()[0] if found else f"no {words[0]}"


def tools(args):
    """[(purpose, tool with its version)] of all tools other than rustc that produce bytes."""
    yield "cargo", first_line("cargo", "--version")
    for arch in args.arch if {"deb", "wheel"} & set(args.parts) else [package.own_arch()]:
        prefix = package.Build(arch, args.profile).tools
        yield f"compiler, linker for {arch}", first_line(f"{prefix}gcc" if prefix else "cc", "--version")
        yield f"ld, strip for {arch}", first_line(f"{prefix}ld", "--version")
    if {"wheel", "sdist"} & set(args.parts):
        yield "wheels", ", ".join(package.build_requires()).replace("==", " ")
        yield "build backend", first_line("python3", "--version")
    if "deb" in args.parts:
        yield "Debian packages", f"cargo-deb {first_line('cargo-deb', '--version').removeprefix('cargo-deb ')}"
        yield "", first_line("dpkg-deb", "--version")


def provenance(commit, args, digests):
    """The sources, the tools, and how to repeat the build."""
    made_with = list(tools(args))
    width = max(len(use) for use, _ in made_with)
    words = " ".join([*args.parts, *(f"--arch {arch}" for arch in args.arch), f"--profile {args.profile}"])
    compilers = [f"    {line}" for line in said("rustc", "-vV").splitlines()]
    system = pathlib.Path("/etc/os-release").read_text()
    system = next(line for line in system.splitlines() if line.startswith("PRETTY_NAME")).partition("=")[2]
    return "\n".join([
        f"largefolio {commit.version}", "",
        f"commit   {commit.id} of {commit.day}",
        f"system   {system.strip(chr(34))}, {said('ldd', '--version').splitlines()[0]}",
        f"fuzzed   {fuzz.told_hours()}",
        "tools", *(f"    {use:{width}}  {tool}" for use, tool in made_with),
        "rustc", *compilers, "",
        "Cargo.lock names every dependency with its checksum; sbom.cdx.json lists those that are built in.",
        f"Built twice, in different directories; these {len(digests)} files were the same:", "",
        *(f"    {value}  {name}" for name, value in digests.items()), "",
        "To build them again, on the same system with the same compiler:", "",
        f"    git checkout {commit.id}", f"    SOURCE_DATE_EPOCH={commit.seconds} scripts/release.py {words}", ""])


def release(args):
    check_unchanged(git("rev-parse", "HEAD"))
    commit = Commit()
    # Both builds use the tools installed there, and provenance names them. A fresh clone lacks
    # them.
    package.TOOLS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=OUTPUT.parent, prefix="release-") as folder:
        builds = []
        # Paths of different lengths reveal a dependency on a path or its length.
        for name in ("a", "another"):
            (pathlib.Path(folder) / name).mkdir()
            builds.append(Build(pathlib.Path(folder) / name, commit, args).made())
        digests = compared(*builds)
        # The builds took long, and the lists use the current state.
        check_unchanged(commit.id)
        shutil.rmtree(OUTPUT, ignore_errors=True)
        OUTPUT.mkdir(parents=True)
        for name, path in builds[0].items():
            shutil.copy(path, OUTPUT / name)
    files = {"sbom.cdx.json": json.dumps(sbom(commit), indent=1) + "\n",
             "provenance.txt": provenance(commit, args, digests)}
    for name, text in files.items():
        (OUTPUT / name).write_text(text)
        digests[name] = digest(OUTPUT / name)
    sums = "".join(f"{value}  {name}\n" for name, value in sorted(digests.items()))
    (OUTPUT / "SHA256SUMS").write_text(sums)
    print(sums, end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}; else all")
    parser.add_argument("--arch", action="append", choices=list(package.MACHINES), help="else both")
    parser.add_argument("--profile", default="release")
    args = parser.parse_args()
    args.parts = args.parts or list(PARTS)
    args.arch = args.arch or list(package.MACHINES)
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    try:
        release(args)
    except (Changed, Different, subprocess.CalledProcessError) as why:
        print(f"release.py: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
