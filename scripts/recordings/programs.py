#!/usr/bin/env python3
"""Records a set of random programs on kernels, packaged or built here.

    scripts/recordings/programs.py 7.2-no-page-mapcount
    scripts/recordings/programs.py 7.2 --kind cow --variant amd64 --out DIR

`folio` (FOLIO=, or target/release/folio) writes the programs of SETS; cow.py and collapse.py boot
the kernels. Has the same requirements as record.py.
"""

import argparse
import functools
import pathlib
import subprocess
import sys

import built
import collapse
import cow
import guest
import packages

# Per base page in KiB: name, folio sizes, number of programs, first seed.
SETS = {
    4: [("base", "none", 100, 40000), ("s64", "64K", 140, 40200),
        ("s16-128", "16K,32K,64K,128K", 100, 40400), ("s2048", "2M", 100, 40600),
        ("s64-2048", "64K,2M", 80, 40800)],
    16: [("base", "none", 100, 41000), ("s64", "64K", 140, 41200),
         ("s128-512", "128K,256K,512K", 100, 41400), ("s2048", "2M", 100, 41600),
         ("s64-32768", "64K,32M", 20, 41800)],
    64: [("base", "none", 140, 42000), ("s256", "256K", 140, 42200),
         ("s512-2048", "512K,1M,2M", 140, 42400), ("s2048", "2M", 140, 42600)],
}
COLLAPSE = [("none", "none", 60, 43000), ("pmd", "2M", 60, 43200), ("k64", "64K", 60, 43400),
            ("all", "16K,32K,64K,128K,256K,512K,1M,2M", 60, 43600)]


def write_programs(folder, verb, page_kb, sets):
    """Writes one file of programs for each of `sets`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, sizes, number, seed in sets:
        page = ["--page", f"{page_kb}K"] if verb == "cow" else []
        command = [guest.folio(), "crosscheck", verb, "--programs", str(number), "--seed",
                   str(seed), "--sizes", sizes, *page, "--print"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        (folder / f"{name}.txt").write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="+", help=" ".join([*packages.VERSIONS, *built.KERNELS]))
    parser.add_argument("--kind", choices=["cow", "collapse"], action="append")
    parser.add_argument("--variant", action="append", default=[])
    parser.add_argument("--work", type=pathlib.Path, default=guest.ROOT / "target" / "recordings")
    parser.add_argument("--out", type=pathlib.Path, default=guest.ROOT / "recordings")
    args = parser.parse_args()
    is_complete = True
    for kernel in args.kernels:
        has = built.variants(kernel) if built.is_built(kernel) else list(packages.FLAVOURS)
        variants = [each for each in has if each in (args.variant or has)]
        # Settings of the page cache do not change what processes do with memory.
        kinds = [] if built.settings(kernel) else ["cow", "collapse"]
        for kind in args.kind or kinds:
            programs = args.work.resolve() / "programs" / kind
            if kind == "cow":
                for page_kb, sets in SETS.items():
                    write_programs(programs / f"{page_kb}K", kind, page_kb, sets)
                # Nothing else runs in a guest, so the machine's counts are the programs'.
                recorder, wanted = functools.partial(cow.record, words=" machine"), variants
            else:
                write_programs(programs, kind, 4, COLLAPSE)
                recorder, wanted = collapse.record, [v for v in variants if v == "amd64"]
            job = argparse.Namespace(versions=[kernel], programs=programs, work=args.work,
                                     out=args.out / kind)
            is_complete &= cow.record_all(job, wanted, recorder) == 0
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
