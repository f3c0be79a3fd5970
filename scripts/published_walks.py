#!/usr/bin/env python3
"""Holds the model's page walks against two published results, on the shipped traces.

Park et al., "Every Walk's a Hit" (ASPLOS 2022, abstract): with page-walk caches, a native walk reads
1.5 entries on average, and a nested walk 4.4. Manocha et al., "Architectural Support for Optimizing
Huge Page Selection Within the OS" (MICRO 2023, abstract): large pages for 4% of the footprint bring
more than 75% of the peak gain.

    scripts/published_walks.py [--folio PROGRAM] [TRACE ...]
"""

import argparse
import json
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
# All pages are base pages, as in both papers.
KERNEL = "6.12+thp=never"
MACHINE = "cascadelake"
# Fewer walks say nothing about an average.
WALKS_MIN = 1_000


def predicted(folio, trace, *options):
    command = [folio, "predict", trace, "--kernel", KERNEL, "--machine", MACHINE, "--warm"]
    run = subprocess.run([*command, *options, "--json"], capture_output=True, text=True, check=True)
    return json.loads(run.stdout)["rows"][0]


def entries_per_walk(row, is_nested):
    kinds = row["tlb"]["walk_kinds"].values()
    walks = sum(kind["walks"] for kind in kinds)
    lines = ["lines", "host_lines"] if is_nested else ["lines"]
    entries = sum(sum(kind[part].values()) for kind in kinds for part in lines)
    return walks, entries / walks if walks else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--folio", default=ROOT / "target/release/folio")
    parser.add_argument("traces", nargs="*", default=sorted((ROOT / "traces").glob("*.folio")))
    arguments = parser.parse_args()
    print(f"{KERNEL} on {MACHINE}, base pages, warm page cache")
    print(f"{'trace':16} {'walks':>10} {'entries a walk':>15} {'nested':>7} {'for 75% of walks':>22}")
    sums = [0, 0.0, 0.0]
    for trace in arguments.traces:
        row = predicted(arguments.folio, trace, "--where")
        walks, native = entries_per_walk(row, False)
        _, nested = entries_per_walk(row, True)
        regions = row["regions"]
        nr, of = regions["nr_for_three_quarters"], regions["nr_blocks"]
        print(
            f"{pathlib.Path(trace).stem:16} {walks:>10,} {native:>15.2f} {nested:>7.2f} "
            f"{nr:>6} of {of:>4} ({100 * nr / max(of, 1):3.0f}%)"
        )
        if walks >= WALKS_MIN:
            sums = [sums[0] + 1, sums[1] + native, sums[2] + nested]
    nr, native, nested = sums
    print(f"mean of the {nr} with {WALKS_MIN:,} walks: {native / nr:.2f} native, {nested / nr:.2f} nested")
    print("published: 1.5 native, 4.4 nested; 4% of the footprint for 75% of the gain")


if __name__ == "__main__":
    main()
