#!/usr/bin/env python3
"""Runs cc1 cold in kernels, and compares with the model (recordings/README.md, "Cold programs").

    scripts/recordings/cold.py 6.12-largefolio
    scripts/recordings/cold.py 6.18 --boots 1 --out DIR

The program's files are on an XFS disk, and none is cached. The guest counts faults, bytes read, and
the folios that enter the page cache. The same program is recorded with `folio record` on this
machine, and the model predicts the same numbers under the release's rules with the edit of each
setting. Needs what record.py needs for amd64, gcc, and a QEMU with plugins (`make qemu`).
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys

import built
import guest
import packages
import record

ROOT = guest.ROOT
sys.path.insert(0, str(ROOT / "scripts"))
import traces  # noqa: E402

VARIANT = "amd64"
PROGRAM = "cc1"
LOADER = "/lib64/ld-linux-x86-64.so.2"
OFF = "off"
# Settings in /sys/kernel/mm/largefolio (with the value at boot), and the model's edit for each.
FORMS = {
    "6.12-largefolio": {
        "exec_order=block": ("off", "exec-block=64K"),
        "exec_order=window": ("off", "exec-window=64K"),
        "exec_miss=posted": ("kernel", "exec-miss=posted"),
    },
}
WINDOW_KB = 128
SECONDS = 1500
# Sizes in KiB of the folios that the table lists; the largest column has all larger ones.
COLUMNS_KB = [4, 16, 64]


class Disk:
    """A tree of files for `mkfs.xfs -p`."""

    def __init__(self):
        self.tree = {}

    def add(self, path, entry):
        """`entry`: a file's source, or a symbolic link or device in mkfs's form."""
        *folders, name = pathlib.PurePosixPath(path).parts[1:]
        at = self.tree
        for folder in folders:
            at = at.setdefault(folder, {})
        at[name] = entry

    def protofile(self):
        return "\n".join(["/dev/null", "0 0", "d--755 0 0", *self.lines(self.tree), ""])

    def lines(self, tree):
        lines = []
        for name, entry in sorted(tree.items()):
            if isinstance(entry, dict):
                lines += [f"{name} d--755 0 0", *self.lines(entry)]
            else:
                lines.append(f"{name} {entry}")
        return [*lines, "$"]


def disk_of(paths):
    """The disk with these files of this machine. The loader looks for each library by its short name,
    which is a link to the file; old folders and the loader itself are links too.
    """
    disk = Disk()
    for name in ("/lib", "/lib64"):
        disk.add(name, f"l--777 0 0 usr{name}")
    disk.add("/dev/null", "c--666 0 0 1 3")
    for path in map(pathlib.Path, paths):
        disk.add(path, f"---755 0 0 {path}")
        if ".so" in path.name:
            for link in path.parent.glob(f"{path.name.partition('.so')[0]}.so*"):
                if link.is_symlink() and link.resolve() == path.resolve():
                    disk.add(link, f"l--777 0 0 {path.name}")
        if path.name == pathlib.Path(LOADER).name:
            disk.add(f"/usr{LOADER}", f"l--777 0 0 {path}")
    return disk


class ColdGuest(guest.Guest):
    """A machine with the program's files on its first disk."""

    result_disk = 1

    def __init__(self, work, tree, disk):
        super().__init__(work, tree, VARIANT)
        self.modules = guest.Modules(tree).closure(["nvme", "xfs"])
        self.probe = work / "probe" / VARIANT / "cold"
        self.protofile = work / "cold.proto"
        self.protofile.write_text(disk.protofile())

    def kinds(self):
        kinds = {kind[0]: kind for kind in super().kinds()}
        name, size, make = kinds["xfs"]
        return [(name, size, [*make, "-p", self.protofile]), kinds["result"]]


def commands(forms, folder, command):
    """The init's list for one boot."""
    lines = [f"mkdir {record.INSTANCE}", "result /dev/@2", f"set {guest.THP}/enabled madvise",
             *guest.KHUGEPAGED_ASLEEP, "mount /dev/@1 xfs /disk",
             f"set /sys/block/@1/queue/read_ahead_kb {WINDOW_KB}"]
    words = (f"root=/disk dir={folder} device=@1 trace={record.INSTANCE} "
             f"-- {' '.join(command)}")
    for form in [OFF, *forms]:
        key, _, value = form.partition("=")
        change = [f"require {built.SETTINGS}/{key} {value}"] if form != OFF else []
        back = [f"require {built.SETTINGS}/{key} {forms[form][0]}"] if form != OFF else []
        lines += [*change, f"run {form} settings={form} {words}", *back]
    return lines


def parsed(text):
    """One run's numbers, and its folios by size in KiB."""
    lines = text.splitlines()
    if not lines or lines[-1] != "end":
        raise ValueError("a result has no end")
    row, folios = {}, {}
    for line in lines[1:-1]:
        kind, *words = line.split()
        values = {key: int(value) for key, value in (word.split("=") for word in words)}
        if kind == "folios":
            folios[4 << values["order"]] = values["nr"]
        else:
            row |= {f"{kind}_{key}": value for key, value in values.items()}
    if row.pop("ended_status"):
        raise ValueError("the program failed in the guest")
    return {"faults": row["faults_minor"] + row["faults_major"], "major": row["faults_major"],
            "read_bytes": row["reads_bytes"], "cached_bytes": cached(folios), "folios": folios}


def cached(folios):
    return sum(kb * nr << 10 for kb, nr in folios.items())


def predicted(folio, trace, kernels):
    """The model's numbers by kernel name."""
    shown = subprocess.run([folio, "predict", trace, "--kernel", ",".join(kernels), "--machine",
                            "zen4", "--fs", "xfs", "--json"], check=True, capture_output=True,
                           text=True).stdout
    return {row["kernel"]: of_row(row) for row in json.loads(shown)["rows"]}


def of_row(row):
    folios = {int(size) >> 10: nr // int(size) for size, nr in row["cached_bytes"].items() if nr}
    return {"faults": row["memory_stat"]["pgfault"], "major": row["memory_stat"]["pgmajfault"],
            "read_bytes": row["reads"]["bytes"], "cached_bytes": cached(folios), "folios": folios}


def kernel_of(name, edit):
    """The model's name of a kernel with a setting."""
    release = built.KERNELS.get(name, {}).get("source", name)
    return f"{release}+{edit}" if edit else release


def toml(head, rows):
    """The file of one program and kernel."""
    lines = ["# Written by scripts/recordings/cold.py.",
             *(f"{key} = {json.dumps(value)}" for key, value in head.items())]
    for row in rows:
        lines += ["", "[[runs]]"]
        for key, value in row.items():
            if isinstance(value, dict):
                inside = ", ".join(f'"{size}" = {nr}' for size, nr in sorted(value.items()))
                value = f"{{ {inside} }}"
            else:
                value = json.dumps(value)
            lines.append(f"{key} = {value}")
    return "\n".join(lines) + "\n"


def shares(folios):
    """Shares of the cached bytes by the smallest column that has the size."""
    whole = cached(folios) or 1
    parts = []
    for low, high in zip(COLUMNS_KB, [*COLUMNS_KB[1:], 1 << 30]):
        nr = sum(kb * nr << 10 for kb, nr in folios.items() if low <= kb < high)
        parts.append(100 * nr / whole)
    return parts


def table(rows):
    """The runs as a table for people: one line per setting, model and boot."""
    lines = ["| setting | by | faults | major | MiB read | MiB cached | in 4K and 8K folios "
             "| 16K, 32K | 64K and larger |", "|---" * 9 + "|"]
    for row in rows:
        parts = " | ".join(f"{part:.1f}%" for part in shares(row["folios"]))
        lines.append(f"| `{row['settings']}` | {row['by']} | {row['faults']:,} | {row['major']:,} "
                     f"| {row['read_bytes'] / 2**20:.2f} | {row['cached_bytes'] / 2**20:.2f} "
                     f"| {parts} |")
    return "\n".join(lines)


def run_cold(work, name, args):
    """Boots a kernel several times; writes its file and prints the table."""
    folio = pathlib.Path(guest.folio()).with_name("folio")
    traces.WORK = work / "program"
    traces.WORK.mkdir(exist_ok=True)
    command = traces.PROGRAMS[PROGRAM][2]()
    trace = traces.record(folio, PROGRAM, command, work / "traces")
    shown = subprocess.run([folio, "trace", "info", "--json", trace], check=True,
                           capture_output=True, text=True).stdout
    disk = disk_of([file["path"] for file in json.loads(shown)["meta"]["files"]])
    tree = built.tree_of(work, name, VARIANT)
    forms = FORMS.get(name, {})
    by_form = {form: [] for form in [OFF, *forms]}
    for boot in range(args.boots):
        machine = ColdGuest(work, tree, disk)
        results = machine.run(machine.probe.parent, commands(forms, traces.WORK, command),
                              SECONDS)
        for form in by_form:
            status, text = results[form]
            if status:
                raise RuntimeError(f"{form}: {text.strip()[-200:]}")
            by_form[form].append(parsed(text))
            release = re.search(r" release=(\S+)", text)[1]
        print(f"{name}: boot {boot + 1} of {args.boots}", file=sys.stderr, flush=True)
    kernels = {form: kernel_of(name, "" if form == OFF else forms[form][1]) for form in by_form}
    models = predicted(folio, trace, kernels.values())
    rows = []
    for form, boots in by_form.items():
        rows += [{"settings": form, "by": f"boot {nr}", **each} for nr, each in enumerate(boots, 1)]
        rows.append({"settings": form, "by": kernels[form], **models[kernels[form]]})
    head = {"kernel": built.archive_name(name, VARIANT), "release": release,
            "program": PROGRAM, "read_ahead_kb": WINDOW_KB}
    out = args.out / f"{PROGRAM}_{head['kernel']}.toml"
    out.write_text(toml(head, rows))
    print(f"{out}\n{table(rows)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", nargs="+", help=" ".join([*packages.VERSIONS, *built.KERNELS]))
    parser.add_argument("--boots", type=int, default=3, help="boots per kernel [default: 3]")
    parser.add_argument("--work", type=pathlib.Path, default=ROOT / "target" / "recordings")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "recordings" / "cold")
    args = parser.parse_args()
    guest.require([VARIANT], guest.folio())
    work = args.work.resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    record.make_probe(work)
    is_complete = True
    for name in args.kernels:
        try:
            run_cold(work, name, args)
        except (packages.Missing, RuntimeError, ValueError, subprocess.SubprocessError) as error:
            print(f"  {name}: {error}", file=sys.stderr, flush=True)
            is_complete = False
    return 0 if is_complete else 1


if __name__ == "__main__":
    sys.exit(main())
