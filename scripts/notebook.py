#!/usr/bin/env python3
"""Runs docs/notebook/*.ipynb completely and compares their numbers with the command line.

Each runs in a fresh directory with `traces/` in it. Afterwards `lf.report` repeats the notebook's
predictions, which must equal the JSON of `folio predict` exactly, as must each cell of its table.
The committed file has no outputs. Needs the environment of scripts/python.sh.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import nbclient
import nbformat

ROOT = pathlib.Path(__file__).resolve().parent.parent
SECONDS_A_CELL = 300
# Files that the notebook writes for the comparison. `mine` is its policy: a kernel file for the
# command.
LEAVE = """
import json
(work / "mine.toml").write_text(mine.to_toml())
reports = {name: lf.report(trace, kernels, machines, filesystem="xfs", progress=False) for name, trace in programs.items()}
json.dump({
    "traces": {name: trace.path for name, trace in programs.items()},
    "kernels": [kernel if isinstance(kernel, str) else kernel.name for kernel in kernels],
    "machines": machines,
    "mine": str(work / "mine.toml"),
    "cells": cells.to_dict("records"),
    "chosen": [list(index) for index in chosen.index],
    "reports": reports,
}, open("left.json", "w"))
"""


def execute(path, directory, folio):
    """Runs the notebook and one more cell; returns the values left by that cell."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    outputs = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.outputs]
    if outputs:
        sys.exit(f"{path}: has outputs; commit it without")
    notebook.cells.append(nbformat.v4.new_code_cell(LEAVE))
    (directory / "traces").symlink_to(ROOT / "traces")
    os.environ["PATH"] = f"{folio.parent}:{os.environ['PATH']}"
    os.environ["TMPDIR"] = str(directory)
    nbclient.NotebookClient(
        notebook, timeout=SECONDS_A_CELL, kernel_name="python3",
        resources={"metadata": {"path": str(directory)}}, extra_arguments=["--IPKernelApp.log_level=40"],
    ).execute()
    pictures = sum(
        "image/png" in output.get("data", {}) for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
    )
    if not pictures:
        sys.exit(f"{path}: drew no picture")
    return json.loads((directory / "left.json").read_text())


def command_line(folio, left, trace, directory):
    """The output of `folio predict --json` for the same trace, kernels and machines."""
    kernels = [left["mine"] if name == "mine" else name for name in left["kernels"]]
    words = [folio, "predict", trace, "--kernel", ",".join(kernels), "--machine", ",".join(left["machines"]),
             "--fs", "xfs", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=directory)
    said = json.loads(done.stdout)
    return replaced(said, left["mine"], "mine")


def replaced(value, old, new):
    """`value` with every text `old` replaced by `new`: a kernel file's name is its path."""
    if isinstance(value, dict):
        return {key: replaced(inner, old, new) for key, inner in value.items()}
    if isinstance(value, list):
        return [replaced(inner, old, new) for inner in value]
    return new if value == old else value


def differences(ours, said, at=""):
    """Places where two JSON values differ."""
    if isinstance(ours, dict) and isinstance(said, dict) and ours.keys() == said.keys():
        return [line for key in ours for line in differences(ours[key], said[key], f"{at}/{key}")]
    if isinstance(ours, list) and isinstance(said, list) and len(ours) == len(said):
        return [line for nr, (a, b) in enumerate(zip(ours, said)) for line in differences(a, b, f"{at}/{nr}")]
    return [] if ours == said else [f"{at}: notebook {ours!r:.80}, command line {said!r:.80}"]


def table_differences(left, program, rows):
    """Compares the notebook's table with the rows of the command line."""
    found = []
    cells = [cell for cell in left["cells"] if cell["program"] == program]
    for cell, row in zip(cells, rows, strict=True):
        tlb = row["tlb"]
        said = {
            "program": program, "kernel": row["kernel"], "machine": row["machine"],
            "faults_major": row["faults"]["major"], "reads_bytes": row["reads"]["bytes"],
            "walks": tlb["walks_pte"] + tlb["walks_contpte"] + tlb["walks_pmd"],
            "estimate_ms": row["estimate"]["total_ns"] / 1e6,
        }
        found += differences(cell, said, f"{program}, {row['kernel']}, {row['machine']}")
    return found


def check(path, folio):
    """Lines about differences, and the number of compared cells."""
    with tempfile.TemporaryDirectory(prefix="folio-notebook-") as name:
        directory = pathlib.Path(name)
        left = execute(path, directory, folio)
        found, nr_cells = [], 0
        for program, trace in left["traces"].items():
            said = command_line(folio, left, trace, directory)
            ours = left["reports"][program]
            for result in (said, ours):
                result.pop("command_line")
            found += differences(ours, said, program)
            found += table_differences(left, program, said["rows"])
            nr_cells += len(said["rows"])
        machines = sorted(machine for machine, _ in left["chosen"])
        if machines != sorted(left["machines"]):
            found.append(f"decided for {machines}, not for every machine")
    return found, nr_cells


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folio", type=pathlib.Path, default=ROOT / "target/release/folio")
    args = parser.parse_args()
    status = 0
    for path in sorted((ROOT / "docs/notebook").glob("*.ipynb")):
        found, nr_cells = check(path, args.folio.absolute())
        for line in found[:20]:
            print(f"DIFFERS: {line}")
        status |= bool(found)
        print(f"{path.relative_to(ROOT)}: ran, {nr_cells} cells compared with folio predict --json, {len(found)} differences")
    return status


if __name__ == "__main__":
    sys.exit(main())
