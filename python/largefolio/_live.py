"""Results of the command ``folio``.

:func:`maps` runs in this process, with the command's own code. :func:`record` needs the command as a
separate process: it runs a program and forwards signals to it.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, Literal

from largefolio import _command, _native
from largefolio._checks import Path, file_path, items, switch, text, whole
from largefolio._trace import Trace
from largefolio.errors import CommandError, FolioWarning, MapsError

if TYPE_CHECKING:
    import pyarrow as pa

Recorder = Literal["auto", "qemu"]

_RECORDERS = ("auto", "qemu")
_PID_MAX = 2**31 - 1


def record(
    command: Sequence[str],
    output: Path | None = None,
    *,
    recorder: Recorder = "auto",
    quiet: bool = False,
) -> Trace:
    """Records the memory references of an unmodified program, with its threads and forks.

    The program runs under QEMU user emulation, ten to a hundred times slower than
    natively, and uses this process's streams. Ctrl-C ends it, and the trace is complete up to that
    point. ``trace.info["meta"]["ended"]`` says how the program ended; a failure of the program is
    not an error. The call does not wait for processes that the program leaves running; their
    standard error is closed.

    Args:
        command: program and arguments: ``["cc1", "-quiet", "big.i", "-o", "/dev/null"]``.
        output: trace to write; default: the program's name and ``.folio`` in this directory.
        recorder: ``"qemu"``, the only one; earlier versions also had ``"valgrind"``.
        quiet: no summary on stderr.

    Raises:
        CommandError: no QEMU with plugins on this machine, or no such program; with the remedy.
    """
    if isinstance(command, (str, bytes)) or not isinstance(command, Sequence):
        raise TypeError('command: expected a list of words, such as ["ls", "-l"]')
    words = [file_path(word, "command") for word in command]
    if not words:
        raise ValueError("command: expected a program and its arguments")
    target = file_path(output, "output") if output is not None else _default_output(words[0])
    if recorder not in _RECORDERS:
        raise ValueError(f"recorder: expected one of {', '.join(_RECORDERS)}, not {recorder!r}")
    if not target:
        raise ValueError("output: expected a file name")
    arguments = ["record", f"--output={target}"]
    if switch(quiet, "quiet"):
        arguments.append("--quiet")
    before = _identity(target)
    # The exit status is the program's; folio prints its own errors.
    code = _command.run_program([*arguments, "--", *words])
    if _identity(target) in (None, before):
        raise CommandError(f"folio record wrote no {target} (exit status {code}); see its message above", code)
    return Trace(target)


def _identity(path: str) -> tuple[int, ...] | None:
    """Identifies a file's name and content: another file has another identity."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _default_output(program: str) -> str:
    return f"{os.path.basename(program)}.folio"


class Maps(dict[str, Any]):
    """The output of ``folio maps --json``, with :meth:`to_arrow`."""

    def to_arrow(self) -> pa.Table:
        """One row per process, mapping, kind and folio size; for the page cache, one per file and
        folio size. The columns are those of ``folio maps --csv``, with addresses as integers.
        Sizes are in bytes.

        With ``elf=``, one row per file, segment and folio size.
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
    """Which folio sizes back processes and files now, and why they are not larger.

    Args:
        pids: processes. Folio sizes of other users' processes need root; without it, the result
            has only the numbers in smaps.
        all: all processes instead.
        cgroup: the processes of a cgroup and of its descendants.
        files: the page cache of files, mapped or not.
        page_cache: the page cache of all files below a directory.
        elf: programs and shared objects on disk: which sizes could map their segments at all.
        kernel: for ``elf``: the kernel whose rules apply, with edits.

    ``"command_line"`` is the equivalent command.

    Raises:
        MapsError: no such process, or no permission (with the command that has it).
        KernelError: no such kernel.
        ValueError: conflicting arguments.
    """
    command = ["folio", "maps", "--json"]
    if switch(all, "all"):
        command.append("--all")
    group, directory = (
        None if path is None else file_path(path, what)
        for path, what in ((cgroup, "cgroup"), (page_cache, "page_cache"))
    )
    for option, named in (("--cgroup", group), ("--page-cache", directory)):
        if named is not None:
            command += [option, named]
    cached = [file_path(path, "files") for path in items(files, "files", (str, os.PathLike))]
    programs = [file_path(path, "elf") for path in items(elf, "elf", (str, os.PathLike))]
    for option, paths in (("--file", cached), ("--elf", programs)):
        for path in paths:
            command += [option, path]
    rules = None if kernel is None else text(kernel, "kernel")
    if rules is not None:
        command += ["--kernel", rules]
    processes = [whole(pid, "pids", _PID_MAX) for pid in items(pids, "pids", (Integral,))]
    command += ["--", *map(str, processes)]
    is_live = all or group is not None or bool(processes)
    if all and (group is not None or processes):
        raise ValueError("all: all processes, or those named with pids or cgroup, not both")
    if group is not None and processes:
        raise ValueError("cgroup: give a control group or processes, not both")
    if programs and (is_live or cached or directory is not None):
        raise ValueError("elf: programs on disk cannot be combined with processes or page cache")
    if programs:
        return Maps(_result(_native.elf(programs, rules, command)))
    if rules is not None:
        raise ValueError(
            "kernel: for programs on disk (elf=) only; processes are shown under the running "
            "kernel, and largefolio.predict replays a recording under another one"
        )
    asked = {
        "pids": processes,
        "all": all,
        "cgroup": group,
        "files": cached,
        "page_cache": directory,
    }
    return Maps(_result(_native.maps(asked, command)))


def _result(found: _native.CommandResult) -> dict[str, Any]:
    """Returns the result and issues its warnings; raises if it lacks something that was named."""
    for warning in found.warnings:
        warnings.warn(warning, FolioWarning, stacklevel=3)
    if found.missing:
        raise MapsError("\n".join(found.missing))
    result: dict[str, Any] = json.loads(found.json)
    return result


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
    # Addresses of the vsyscall page do not fit into a signed number.
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
    """Returns the fields that are numbers or words."""
    return {key: value for key, value in found.items() if not isinstance(value, (list, dict))}
