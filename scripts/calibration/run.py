"""Compares this machine's estimates with measurements; writes the tables of a document.

    python3 -m scripts.calibration.run [--checks N] [--rounds N] [--only WORD] [--write]

Each of N checks is a `folio calibrate` and a `folio calibrate --check`. Then programs that were not
used for calibration are recorded, predicted and verified under settings of the system, which needs
root. With --write the tables go into docs/design/tables/calibration.txt; without, to the terminal.
The tables include every failure.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
DOCUMENT = ROOT / "docs/design/tables/calibration.txt"
BEGIN, END = "<!-- made by scripts/calibration/run.py: {} -->", "<!-- end of {} -->"
SETTINGS = ["thp.enabled=always", "thp.64K=always", "thp.16K=always"]
# The baseline settings, so that a default of always or madvise hides nothing.
BASELINE = ["thp.enabled=never", "thp.64K=never", "thp.16K=never"]


class Case:
    """A program with a name for the table."""

    def __init__(self, name: str, command: list[str]) -> None:
        self.name, self.command = name, command


def programs(work: Path) -> list[Case]:
    """The programs, compiled, with their input."""
    build = [
        ["g++", "-O2", "-std=c++17", str(HERE / "tree.cc"), "-o", str(work / "tree")],
        ["gcc", "-O2", str(HERE / "loads.c"), "-o", str(work / "loads")],
    ]
    for command in build:
        subprocess.run(command, check=True)
    lines = random.Random(7)
    text = "\n".join("%016x" % lines.getrandbits(64) for _ in range(120_000))
    (work / "lines").write_text(text + "\n", encoding="ascii")
    python = shutil.which("python3") or sys.executable
    python = os.path.realpath(python)
    loads, sort = str(work / "loads"), ["/usr/bin/sort", "--parallel=1"]
    return [
        Case("sort, 120,000 lines", [*sort, str(work / "lines"), "-o", str(work / "sorted")]),
        Case("SQLite in Python", [python, str(HERE / "rows.py")]),
        Case("Python, objects", [python, str(HERE / "words.py")]),
        Case("C++, maps", [str(work / "tree")]),
        Case("independent loads, 256 MiB", [loads, "list", "256", "3"]),
        Case("a chain, 256 MiB", [loads, "chain", "256", "3"]),
        Case("a chain, 48 MiB", [loads, "chain", "48", "3"]),
    ]


def folio(*arguments: str, statuses: tuple[int, ...] = (0,)) -> str:
    """Returns folio's output; its errors end the script."""
    binary = os.environ.get("FOLIO", str(ROOT / "target/release/folio"))
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, check=False)
    if done.returncode not in statuses:
        sys.exit(f"folio {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def verify(case: Case, setting: str, trace: Path, rounds: int) -> dict:
    """Measured and predicted change of one case."""
    told = folio(
        *("verify", "--tune", setting, "--trace", str(trace), "--runs", str(rounds), "--json"),
        *("--", *case.command),
        statuses=(0, 1),
    )
    return json.loads(told)


def row_of(case: Case, setting: str, result: dict) -> dict:
    """Numbers of a row."""
    wall = next((row for row in result["rows"] if row["quantity"] == "wall"), None)
    if wall is None:
        sys.exit(f"{case.name}, {setting}: no round counts: {result['warnings'][0]}")
    predicted = result["prediction"]
    return {
        "program": case.name,
        "setting": setting,
        "plain": wall["plain"],
        "rounds": wall["nr_rounds"],
        "measured": [wall["ratio_low"], wall["ratio"], wall["ratio_high"]],
        "predicted": predicted["ratio"],
        "range": predicted["ratio_range"],
        "holds": predicted["holds"],
    }


def percent(ratio: float | None) -> str:
    """`-3.2%`, of a ratio."""
    return "-" if ratio is None else f"{100 * (ratio - 1):+.1f}%"


def place(row: dict) -> str:
    """Whether the measured ratio is within the predicted bounds."""
    if row["holds"] is None:
        return "**no prediction**" if row["range"] is None else "cannot tell"
    return "yes" if row["holds"] else "**no**"


def overlap(bounds: list[float] | None, measured: list[float]) -> bool:
    """Whether some ratio is both predicted and measured."""
    return bounds is not None and bounds[0] <= measured[2] and measured[0] <= bounds[1]


def table_of_programs(rows: list[dict]) -> str:
    """The rows in Markdown, and a summary."""
    lines = [
        "| program | setting | plain run | n | measured [95%] | predicted [bounds] | within the bounds | ratio off by |",
        "|---|---|---|---|---|---|---|---|",
    ]
    off = []
    for row in rows:
        low, mid, high = row["measured"]
        bounds = row["range"] or [None, None]
        distance = abs(row["predicted"] / mid - 1) if row["predicted"] else None
        off += [] if distance is None else [distance]
        lines.append(
            f"| {row['program']} | `{row['setting']}` | {row['plain'] / 1e6:.0f} ms | {row['rounds']} "
            f"| {percent(mid)} [{percent(low)} .. {percent(high)}] "
            f"| {percent(row['predicted'])} [{percent(bounds[0])} .. {percent(bounds[1])}] "
            f"| {place(row)} "
            f"| {'-' if distance is None else f'{100 * distance:.1f}%'} |"
        )
    held = sum(bool(row["holds"]) for row in rows)
    median = f"{100 * statistics.median(off):.1f}%" if off else "-"
    met = sum(overlap(row["range"], row["measured"]) for row in rows)
    lines.append("")
    lines.append(
        f"{held} of {len(rows)} measured ratios are within the predicted bounds; in {met} the measured "
        f"interval and the bounds overlap. The median distance of the ratio is {median}."
    )
    return "\n".join(lines)


def table_of_checks(checks: list[dict]) -> str:
    """The results of `calibrate --check`, one column per run."""
    lines = ["| operation | " + " | ".join(f"run {nr + 1}" for nr in range(len(checks))) + " |"]
    lines.append("|---|" + "---|" * len(checks))
    names = [(row["operation"], row["size"]) for row in checks[0]["rows"]]
    for nr, (operation, size) in enumerate(names):
        cells = []
        for check in checks:
            row = check["rows"][nr]
            measured = row["measured_ns"]
            cell = f"{row['predicted_ns']:.4g} / {measured['median']:.4g} [{measured['min']:.4g} .. {measured['max']:.4g}]"
            distance = row.get("distance")
            if distance is not None:
                is_off = row.get("is_within") is False
                cell += f", {'**' if is_off else ''}{100 * distance:+.0f}%{'**' if is_off else ''}"
            cells.append(cell)
        lines.append(f"| {operation}, {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write(name: str, text: str) -> None:
    """Puts a table between its marks in the document."""
    whole = DOCUMENT.read_text(encoding="utf-8")
    begin, end = BEGIN.format(name), END.format(name)
    head, rest = whole.split(begin, 1)
    _, tail = rest.split(end, 1)
    DOCUMENT.write_text(f"{head}{begin}\n{text}\n{end}{tail}", encoding="utf-8")


def main() -> None:
    """Runs everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checks", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="", help="only programs with this in their name")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--json", type=Path, help="also write all results here")
    asked = parser.parse_args()
    checks = []
    for nr in range(asked.checks):
        print(f"calibration and check {nr + 1} of {asked.checks}", file=sys.stderr)
        folio("calibrate")
        checks.append(json.loads(folio("calibrate", "--check", "--json", statuses=(0, 1))))
    rows = []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        cases = [case for case in programs(work) if asked.only in case.name]
        folio("tune", *(word for setting in BASELINE for word in ("--set", setting)), "--yes")
        try:
            for nr, case in enumerate(cases):
                trace = work / f"{nr}.folio"
                print(f"recording {case.name}", file=sys.stderr)
                folio("record", "-o", str(trace), "--", *case.command)
                for setting in SETTINGS:
                    print(f"{case.name}, {setting}", file=sys.stderr)
                    rows.append(row_of(case, setting, verify(case, setting, trace, asked.rounds)))
        finally:
            folio("tune", "--undo")
    if asked.json:
        asked.json.write_text(json.dumps({"checks": checks, "programs": rows}, indent=1))
    machine = f"Linux {platform.release()}"
    tables = {"programs": table_of_programs(rows)}
    if checks:
        tables["checks"] = table_of_checks(checks)
    for table, text in tables.items():
        if asked.write:
            write(table, text)
        else:
            print(f"{table} ({machine})\n\n{text}\n")


if __name__ == "__main__":
    main()
