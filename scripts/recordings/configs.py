#!/usr/bin/env python3
"""Copies the packaged kernels' build options into the kernel files.

    scripts/recordings/configs.py --all
    scripts/recordings/configs.py 7.2 7.3 --show

Rewrites the end of `kernels/VERSION.toml`, from the line MARK: for each package, which of the
options below are built in and which are known and off. Needs an apt that reaches a Debian mirror.
"""

import argparse
import fnmatch
import pathlib
import re
import subprocess
import sys
import tarfile

import packages

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MARK = "# The packages' build options, written by scripts/recordings/configs.py."
# Options that decide a rule or interest a reader of a prediction. For CHOICES, the built-in member
# is enough; for OTHERS, off and absent differ.
CHOICES = ["ARM64_*K_PAGES", "PREEMPT", "PREEMPT_LAZY",
           "TRANSPARENT_HUGEPAGE_ALWAYS", "TRANSPARENT_HUGEPAGE_MADVISE",
           "TRANSPARENT_HUGEPAGE_NEVER", "TRANSPARENT_HUGEPAGE_SHMEM_HUGE_*"]
OTHERS = ["ARM64_CONTPTE", "LRU_GEN_ENABLED", "NO_PAGE_MAPCOUNT", "PAGE_MAPCOUNT", "PER_VMA_LOCK",
          "PREEMPT_DYNAMIC", "PREEMPT_NONE", "PREEMPT_RT", "PREEMPT_VOLUNTARY",
          "READ_ONLY_THP_FOR_FS"]
WIDTH = 96


def config_of(deb):
    """A package's configuration as text."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as unpack:
        with tarfile.open(fileobj=unpack.stdout, mode="r|") as files:
            for entry in files:
                if re.fullmatch(r"\./(boot/config-.*|usr/lib/modules/[^/]*/config)", entry.name):
                    text = files.extractfile(entry).read().decode()
                    unpack.kill()
                    return text
    raise packages.Missing(f"no configuration in {deb.name}")


def options_of(text):
    """A configuration's options: built in, and known but off."""
    def wanted(names, options):
        return sorted(name for name in names
                      if any(fnmatch.fnmatchcase(name, option) for option in options))
    built_in = re.findall(r"^CONFIG_(\w+)=y$", text, re.M)
    off = re.findall(r"^# CONFIG_(\w+) is not set$", text, re.M)
    return wanted(built_in, CHOICES + OTHERS), wanted(off, OTHERS)


def table(variant, deb, text):
    """One package as a table of a kernel file."""
    package, version, _ = deb.name.split("_")
    lines = [f"[packaged.{variant}]", f'package = "{package}"', f'version = "{version}"']
    for key, names in zip(("built-in", "off"), options_of(text)):
        lines += array(key, names)
    return "\n".join(lines) + "\n"


def array(key, names):
    """The lines of an array of strings, each at most WIDTH wide."""
    lines, line = [f"{key} = ["], ""
    for name in names:
        word = f'"{name}",'
        if line and len(line) + len(word) + 1 > WIDTH:
            lines.append(line)
            line = ""
        line += (" " if line else "    ") + word
    return [*lines, *([line] if line else []), "]"]


def tables(work, version):
    """The tables of all packages of one kernel."""
    debs = work / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    found = []
    for variant, flavour in packages.FLAVOURS.items():
        if (version, variant) in packages.NOT_PACKAGED:
            continue
        apt = packages.apt_for(work, version, variant)
        deb = packages.fetch_config(apt, version, flavour, debs)
        found.append(table(variant, deb, config_of(deb)))
    return "\n".join(found)


def write(path, text):
    """Replaces the tables at the end of a kernel file."""
    kept = path.read_text().partition(MARK)[0].rstrip("\n")
    path.write_text(f"{kept}\n\n{MARK}\n{text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="*", help=" ".join(packages.VERSIONS))
    parser.add_argument("--all", action="store_true", help="every version")
    parser.add_argument("--show", action="store_true", help="print the tables, write nothing")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target" / "recordings")
    args = parser.parse_args()
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    is_complete = True
    for version in packages.VERSIONS if args.all else args.versions:
        try:
            text = tables(work, version)
        except (packages.Missing, subprocess.SubprocessError) as error:
            print(f"  {version}: {error}", file=sys.stderr, flush=True)
            is_complete = False
            continue
        if args.show:
            print(text, flush=True)
        else:
            write(ROOT / "kernels" / f"{version}.toml", text)
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
