#!/usr/bin/env python3
"""Checks on an arm64 kernel, emulated or real: folio's commands and unit tests.

    checks.py --bundle DIR --out DIR [--only NAME,..]
    checks.py --list

bundle.py makes the DIR of --bundle. Each check prints one line, `ok NAME: ..`, `FAILED NAME: why`
or `skipped NAME: why`. DIR of --out gets summary.json and, for each check, NAME.txt: every command
with its output. Needs root, which it uses only through folio. Changed settings are restored.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import re
import signal
import sys
import tempfile
import time

sys.dont_write_bytecode = True

# Each module adds its checks to CHECKS, in this order.
import verbs  # noqa: E402, F401
import sizes  # noqa: E402, F401
import model  # noqa: E402, F401
import recording  # noqa: E402, F401
import killed  # noqa: E402, F401
import units  # noqa: E402, F401
from check import CHECKS, THP, Failed, Run, Skipped  # noqa: E402


def performed(name, bundle, out):
    """Runs one check; returns its line and its entry in the summary."""
    began = time.monotonic()
    with (out / f"{name}.txt").open("w") as log, \
            tempfile.TemporaryDirectory(dir="/var/tmp", prefix="largefolio-check-") as folder:
        on_way = Run(bundle, pathlib.Path(folder), log)
        on_way.log_folder = out
        try:
            status, why = "ok", CHECKS[name](on_way)
        except Skipped as reason:
            status, why = "skipped", str(reason)
        except (Failed, OSError, KeyError, ValueError) as reason:
            status, why = "FAILED", f"{type(reason).__name__}: {reason}"
            why = str(reason) if isinstance(reason, Failed) else why
            log.write(f"# {why}\n")
    seconds = round(time.monotonic() - began, 1)
    shown = " ".join(why.split()) if why else ""
    print(f"{status} {name}{': ' if shown else ''}{shown} ({seconds:.0f} s)", flush=True)
    return {"name": name, "status": status, "why": why, "seconds": seconds}


def machine():
    """The facts that a reader of the results needs first."""
    def text(path):
        with contextlib.suppress(OSError):
            return pathlib.Path(path).read_text(errors="replace")
        return None
    thp = {str(path.relative_to(THP)): path.read_text().strip()
           for path in sorted(THP.rglob("*")) if path.is_file() and os.access(path, os.R_OK)}
    cpu = (text("/proc/cpuinfo") or "").partition("\n\n")[0]
    return {"kernel": platform.release(), "version": platform.version(),
            "page_bytes": os.sysconf("SC_PAGE_SIZE"), "nr_cpus": os.cpu_count(),
            "first_cpu": dict(re.findall(r"^(.+?)\s*: (.*)$", cpu, re.M)),
            "memory": (text("/proc/meminfo") or "").partition("\n")[0],
            "system": re.findall(r'^PRETTY_NAME="(.*)"', text("/etc/os-release") or "", re.M),
            "thp": thp, "command_line": text("/proc/cmdline")}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bundle", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--only", metavar="NAME,..")
    parser.add_argument("--list", action="store_true", help="list the checks")
    args = parser.parse_args()
    names = args.only.split(",") if args.only else list(CHECKS)
    if unknown := [name for name in names if name not in CHECKS]:
        parser.error(f"no check is called {', '.join(unknown)}; there are {', '.join(CHECKS)}")
    if args.list:
        print("\n".join(names))
        return 0
    if not args.bundle or not args.out:
        parser.error("--bundle and --out are needed")
    if os.geteuid() != 0:
        parser.error("folio sizes need root")
    # Exit normally, so that open contexts restore their settings.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    args.out.mkdir(parents=True, exist_ok=True)
    summary = {"schema_version": 1, "machine": machine(), "names": names, "checks": []}
    for name in names:
        summary["checks"].append(performed(name, args.bundle.resolve(), args.out.resolve()))
        (args.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    return 1 if any(each["status"] == "FAILED" for each in summary["checks"]) else 0


if __name__ == "__main__":
    sys.exit(main())
