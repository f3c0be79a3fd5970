#!/usr/bin/env python3
"""Judges predictions for traces with memory policies: random programs on a kernel with two nodes.

    scripts/recordings/traced_nodes.py 6.18 7.3 --programs 40

Records each program (`probe/policies.c`), predicts its trace for the kernel on a machine with two
nodes, and runs it on that kernel under QEMU with two nodes. The memory on node 1 at the end must be
equal. Exit status 1: it differs for a program. Has the same requirements as record.py, and needs a
`folio` (FOLIO names the folio-lab beside it) and a QEMU for programs.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import cow
import guest
import nodes
import packages

PAGE = 4096
SETTINGS = {"2048": "anon-2M=madvise", "64": "anon-64K=madvise+anon-2M=never"}
MACHINE = """name = "two-nodes"
description = "two nodes"
based-on = "zen4"
[[nodes]]
share = 1
distances = [10, 20]
source = "QEMU"
[[nodes]]
share = 1
distances = [20, 10]
source = "QEMU"
"""


def folio():
    return pathlib.Path(guest.folio()).with_name("folio")


def predicted(folder, program, kernels, seed):
    """Bytes on node 1 at the program's end, for each kernel."""
    trace, machine = folder / f"{seed}.folio", folder / "two-nodes.toml"
    machine.write_text(MACHINE)
    subprocess.run([folio(), "record", "--quiet", "-o", trace, "--", program, str(seed)],
                   check=True, capture_output=True)
    found = subprocess.run([folio(), "predict", trace, "--kernel", ",".join(kernels), "--machine",
                            machine, "--numa", "node=0", "--memory", "2G", "--json"], check=True,
                           capture_output=True, text=True).stdout
    return [row["nodes"]["mapped_other_bytes"] for row in json.loads(found)["rows"]]


def measured(numa_maps):
    """Bytes of the areas on node 1 that a program lists at its end. Its own pages are on the node
    where the machine unpacked them, and its stack begins anywhere.
    """
    of_area = r"^40000\w+ .* anon=.* N1=(\d+)"
    return sum(int(nr) * PAGE for nr in re.findall(of_area, numa_maps, re.M))


def run(work, version, program, seeds):
    """Runs all programs on a kernel with each of SETTINGS; returns bytes on node 1 by name."""
    machine = nodes.NodesGuest(work, packages.unpack(work, version, "amd64"), "amd64")
    machine.modules = guest.Modules(packages.unpack(work, version, "amd64")).closure(["nvme"])
    machine.probe = program
    first, *_ = cow.commands([], PAGE)
    lines = [first, f"set {cow.THP}/enabled madvise", *guest.KHUGEPAGED_ASLEEP,
             nodes.BALANCING[0]]
    for size in SETTINGS:
        for kb in (64, 2048):
            value = "madvise" if str(kb) == size else "never"
            lines.append(f"set {cow.THP}/hugepages-{kb}kB/enabled {value}")
        lines += [f"run {size}-{seed} {seed}" for seed in seeds]
    found = machine.run_programs(work / "probe/amd64", [], lines)
    return {name: measured(text) for name, (_, text) in found.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="+", help=" ".join(packages.VERSIONS))
    parser.add_argument("--programs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=pathlib.Path, default=guest.ROOT / "target" / "recordings")
    args = parser.parse_args()
    guest.require(["amd64"], folio())
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    subprocess.run(["make", "-s", "-C", guest.ROOT / "probe", f"OUT={work / 'probe'}"], check=True)
    program, seeds = work / "probe/amd64/policies", range(args.seed, args.seed + args.programs)
    ran = {version: run(work, version, program, seeds) for version in args.versions}
    pairs = [(version, size) for version in args.versions for size in SETTINGS]
    kernels = [f"{version}+{SETTINGS[size]}" for version, size in pairs]
    nr_different = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in seeds:
            bytes_of = predicted(pathlib.Path(folder), program, kernels, seed)
            for (version, size), is_predicted in zip(pairs, bytes_of):
                is_measured = ran[version][f"{size}-{seed}"]
                if is_measured != is_predicted:
                    nr_different += 1
                    print(f"{version} {size}K seed {seed}: {is_measured >> 12} pages on node 1, "
                          f"predicted {is_predicted >> 12}")
    print(f"{len(pairs) * args.programs} runs, {nr_different} differ")
    return 1 if nr_different else 0


if __name__ == "__main__":
    sys.exit(main())
