"""Measures the costs `swap_in` and `swap_out` of a machine file: pages to zram and back.

    sudo python3 -m scripts.calibration.swap [--rounds N] [--mib N]

Needs root, gcc, and an unused zram device. Swap space is on it during the run; then the device is
restored. Three kinds of content alternate: a program's text, prose, and noise. The kernel must have
no other swap space.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DEVICE = Path("/sys/block/zram0")
# Waits for this process to end in any way, and resets the device.
KEEPER = "cat >/dev/null; swapoff /dev/zram0 2>/dev/null; echo 1 >/sys/block/zram0/reset"
CONTENTS = {"text of python": sys.executable, "prose": str(ROOT / "docs/behaviour/reclaim.md"), "noise": "-"}


def refuse(why: str) -> None:
    """Ends with a reason."""
    sys.exit(f"swap.py: {why}")


def is_free() -> bool:
    """Whether no swap space is in use and the device is empty."""
    swaps = Path("/proc/swaps").read_text().splitlines()[1:]
    return not swaps and int((DEVICE / "disksize").read_text()) == 0


def measure(program: Path, rounds: int, mib: int) -> dict[str, list[tuple[float, float]]]:
    """Nanoseconds per page, out and in, by content; one round of each at a time."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTENTS}
    for number in range(rounds):
        for name, path in CONTENTS.items():
            command = [str(program), path, "1", str(mib)]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            out, back = printed.split()
            found[name].append((float(out), float(back)))
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return found


def line(name: str, values: list[float]) -> str:
    """Median and spread."""
    return f"  {name:9} {statistics.median(values):8.0f} ns  ({min(values):.0f} to {max(values):.0f})"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--mib", type=int, default=128)
    asked = parser.parse_args()
    if os.geteuid() != 0:
        refuse("swap space needs root. Run: sudo python3 -m scripts.calibration.swap")
    if not DEVICE.exists():
        refuse(f"{DEVICE} is missing. Run: modprobe zram")
    if not is_free():
        refuse("swap space or zram0 is in use. Run: swapoff -a; zramctl --reset /dev/zram0")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "swap"
        subprocess.run(["gcc", "-O2", "-Wall", "-Werror", "-o", program, HERE / "swap.c"], check=True)
        with subprocess.Popen(["sh", "-c", KEEPER], stdin=subprocess.PIPE, start_new_session=True):
            (DEVICE / "disksize").write_text(f"{4 * asked.mib}M")
            subprocess.run(["mkswap", "/dev/zram0"], check=True, stdout=subprocess.DEVNULL)
            subprocess.run(["swapon", "/dev/zram0"], check=True)
            found = measure(program, asked.rounds, asked.mib)
            algorithm = (DEVICE / "comp_algorithm").read_text().strip()
    print(f"Linux {platform.release()}, {algorithm}, n = {asked.rounds}, {asked.mib} MiB; of a page:")
    for name, values in found.items():
        print(name)
        print(line("swap_out", [out for out, _ in values]))
        print(line("swap_in", [back for _, back in values]))


if __name__ == "__main__":
    main()
