"""What touches the running kernel: thin, typed layers over the verbs of the command ``folio``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Literal

from largefolio import _command
from largefolio._checks import Path, file_path, items, switch, text, whole
from largefolio._trace import Trace

if TYPE_CHECKING:
    import pyarrow as pa

Recorder = Literal["auto", "qemu", "valgrind"]

_DONE_OR_NO = (0, 1)
_PID_MAX = 2**31 - 1


def record(
    command: Sequence[str],
    output: Path | None = None,
    *,
    recorder: Recorder = "auto",
    quiet: bool = False,
) -> Trace:
    """Records the memory references of a program, unmodified, with its threads and forks.

    It runs under QEMU user emulation (or valgrind), ten to a hundred times slower than alone; its
    streams are those of this process. Ctrl-C ends it, and the trace is complete up to that point.
    How the program ended stands in ``trace.info["meta"]["ended"]``; that it failed is no error.

    Args:
        command: program and arguments: ``["cc1", "-quiet", "big.i", "-o", "/dev/null"]``.
        output: trace to write; default: the program's name and ``.folio`` in this directory.
        recorder: ``"qemu"``, ``"valgrind"``, or whichever is there.
        quiet: no summary on stderr.

    Raises:
        CommandError: no recorder on this machine, no such program: with the remedy.
    """
    if isinstance(command, (str, bytes)) or not isinstance(command, Sequence):
        raise TypeError('command: expected a list of words, such as ["ls", "-l"]')
    words = [file_path(word, "command") for word in command]
    if not words:
        raise ValueError("command: expected a program and its arguments")
    target = file_path(output, "output") if output is not None else _default_output(words[0])
    arguments = ["record", "--with", text(recorder, "recorder"), "--output", target]
    if switch(quiet, "quiet"):
        arguments.append("--quiet")
    # The exit status is the program's; what folio itself fails at it says.
    _command.run_program([*arguments, "--", *words])
    return Trace(target)


def _default_output(program: str) -> str:
    return f"{os.path.basename(program)}.folio"


class Maps(dict[str, Any]):
    """What ``folio maps --json`` says, with :meth:`to_arrow`."""

    def to_arrow(self) -> pa.Table:
        """One row a (process, mapping, kind, folio size), or of the page cache a row a (file, folio
        size): the columns of ``folio maps --csv``, addresses as integers. Sizes are in bytes.

        Of ``elf=``, one row a (file, segment, folio size).
        """
        import pyarrow as pa

        if "size_bytes" in self:
            return pa.Table.from_pylist(list(_segments(self)))
        return pa.Table.from_pylist([*_mapped(self), *_cached(self)], schema=_maps_schema())


def maps(
    pids: int | Iterable[int] = (),
    *,
    all: bool = False,
    cgroup: Path | None = None,
    files: Path | Iterable[Path] = (),
    page_cache: Path | None = None,
    elf: Path | Iterable[Path] = (),
    kernel: str | None = None,
) -> Maps:
    """Which folio sizes back processes and files now, and why not larger ones.

    Args:
        pids: processes. Folio sizes of others' processes need root; without it there is what
            smaps tells.
        all: all processes instead.
        cgroup: the processes of a control group and of the groups below.
        files: the page cache of files, mapped or not.
        page_cache: the page cache of all files below a directory.
        elf: programs and shared objects on disk: which sizes could map their segments at all.
        kernel: whose rules decide, with edits.

    Raises:
        CommandError: no such process, no permission (with the command that has it).
    """
    arguments = ["maps", "--json"]
    if switch(all, "all"):
        arguments.append("--all")
    for option, directory in (("--cgroup", cgroup), ("--page-cache", page_cache)):
        if directory is not None:
            arguments += [option, file_path(directory, option.strip("-"))]
    for option, paths in (("--file", files), ("--elf", elf)):
        for path in items(paths, option.strip("-"), (str, os.PathLike)):
            arguments += [option, file_path(path, option.strip("-"))]
    if kernel is not None:
        arguments += ["--kernel", text(kernel, "kernel")]
    processes = [str(whole(pid, "pids", _PID_MAX)) for pid in items(pids, "pids", (int,))]
    return Maps(json.loads(_command.run([*arguments, "--", *processes])))


class Study(dict[str, Any]):
    """What ``folio study --json`` says, with :meth:`to_arrow`."""

    def to_arrow(self) -> pa.Table:
        """One row a row of a published table: the published numbers, ours, and how far apart."""
        import pyarrow as pa

        return pa.Table.from_pylist(list(_study_rows(self)))


def study(
    *names: str,
    files: Path | Iterable[Path] = (),
    live: bool = False,
    rounds: int | None = None,
    traces: Path | None = None,
) -> Study:
    """The published tables of the patch series beside what is found here.

    Args:
        names: studies; default: all.
        files: studies of your own.
        live: measure on this kernel what the model cannot time; needs root.
        rounds: of each measurement.
        traces: directory of the recorded traces; default: those of the package.
    """
    arguments = ["study", "--json"]
    if switch(live, "live"):
        arguments.append("--live")
    if rounds is not None:
        arguments += ["--rounds", str(whole(rounds, "rounds"))]
    if traces is not None:
        arguments += ["--traces", file_path(traces, "traces")]
    elif not FilePath("traces").is_dir():
        arguments += ["--traces", str(FilePath(_command.folio()).parents[1] / "share/largefolio/traces")]
    for path in items(files, "files", (str, os.PathLike)):
        arguments += ["--file", file_path(path, "files")]
    named = [text(name, "names") for name in names]
    return Study(json.loads(_command.run([*arguments, "--", *named], _DONE_OR_NO)))


class Crosscheck(dict[str, Any]):
    """What ``folio crosscheck --json`` says: a row a workload, ``"outcome"`` is ``"equal"`` or not."""

    @property
    def agrees(self) -> bool:
        """Whether kernel and model agree in every row."""
        return not any(row["differences"] for row in self["rows"])


def crosscheck(
    *,
    filesystems: str | Iterable[str] = (),
    windows: str | Iterable[str] = (),
    only: str | None = None,
    kernel: str | None = None,
) -> Crosscheck:
    """Runs small workloads on this kernel and in the model, and compares folio for folio.

    Needs root and 300 MiB of memory; changes no setting and leaves nothing behind.

    Args:
        filesystems: ``"ext4"``, ``"xfs"``, ``"ext4-encrypt"``; default: the first two.
        windows: readahead windows such as ``"128K"``; default: four.
        only: workloads whose name contains this (``*`` stands for anything).
        kernel: rules to replay under; default: those of this kernel.
    """
    arguments = ["crosscheck", "--json"]
    for option, values in (("--fs", filesystems), ("--window", windows)):
        listed = [text(value, option.strip("-")) for value in items(values, option.strip("-"), (str,))]
        if listed:
            arguments += [option, ",".join(listed)]
    for option, value in (("--only", only), ("--kernel", kernel)):
        if value is not None:
            arguments += [option, text(value, option.strip("-"))]
    return Crosscheck(json.loads(_command.run(arguments, _DONE_OR_NO)))


def _mapped(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for process in result.get("processes", ()):
        for mapping in process["mappings"]:
            where = {key: mapping[key] for key in ("start", "end", "permissions", "offset", "path")}
            for folios in mapping["folios"]:
                yield {"pid": process["pid"], "process": process["name"], **where, **folios}


def _cached(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for file in result.get("files", ()):
        for folios in file["folios"]:
            yield {
                "path": file["path"],
                "kind": "cached",
                "folio_bytes": folios["folio_bytes"],
                "mapped_bytes": folios["cached_bytes"],
            }


def _maps_schema() -> pa.Schema:
    import pyarrow as pa

    words = ("process", "permissions", "path", "kind")
    columns = ("pid", "process", "start", "end", "permissions", "offset", "path", "kind")
    sizes = ("folio", "mapped", "aligned", "unaligned", "partial", "contpte", "pmd")
    names = (*columns, *(f"{size}_bytes" for size in sizes))
    # Addresses of the vsyscall page do not fit a signed number.
    wide = ("start", "end", "offset")
    return pa.schema(
        [
            (name, pa.string() if name in words else pa.uint64() if name in wide else pa.int64())
            for name in names
        ]
    )


def _segments(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for file in result["files"]:
        for segment in file.get("segments", ()):
            named = {("segment" if key == "nr" else key): value for key, value in _plain(segment).items()}
            for size in segment["sizes"]:
                yield {
                    **_plain(file),
                    **named,
                    "size_bytes": size["bytes"],
                    "covered_bytes": size["covered_bytes"],
                    "filesystems": size["filesystems"],
                    "refusal": size["refusal"],
                    "remedy": size["remedy"],
                }


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    """What is a number or a word."""
    return {key: value for key, value in found.items() if not isinstance(value, (list, dict))}


def _study_rows(result: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for study in result["studies"]:
        for table in study["tables"]:
            for row in table["rows"]:
                flat: dict[str, Any] = {"study": study["study"], "table": table["title"]}
                for key, value in row.items():
                    if key in ("published", "ours"):
                        flat |= {f"{key}_{part}": number for part, number in (value or {}).items()}
                    elif not isinstance(value, (list, dict)):
                        flat[key] = value
                yield flat
