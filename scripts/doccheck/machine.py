"""The machine that runs a document's commands: its settings, lingering processes, and turns between
documents.
"""

import contextlib
import glob
import os
import pathlib
import signal
import threading
import time

SETTINGS = ["/sys/kernel/mm/transparent_hugepage/**", "/sys/block/*/queue/read_ahead_kb"]
# Counters and triggers in these directories are not settings.
NO_SETTING = {"pages_collapsed", "full_scans"}
# Seconds for keepers of a setting and children of a command to exit.
GRACE = 5
MARK = "FOLIO_DOCS_COMMAND"


def settings():
    """Every setting as {path: text}; of `always [madvise] never` the selected word."""
    found = {}
    for pattern in SETTINGS:
        for path in glob.glob(pattern, recursive=True):
            if not os.path.isfile(path) or "/stats/" in path or os.path.basename(path) in NO_SETTING:
                continue
            with contextlib.suppress(OSError):
                text = pathlib.Path(path).read_text().strip()
                found[path] = text.partition("[")[2].partition("]")[0] or text
    return found


def changed_settings(before):
    """Restores settings that differ from `before`. Returns lines about them."""
    deadline = time.monotonic() + GRACE
    while True:
        now = settings()
        changed = {path: value for path, value in before.items() if now.get(path, value) != value}
        if not changed or time.monotonic() > deadline:
            break
        time.sleep(0.05)
    lines = []
    for path, value in changed.items():
        try:
            pathlib.Path(path).write_text(value)
            lines.append(f"{path} was left at {now[path]}, restored to {value}")
        except OSError as error:
            lines.append(f"{path} was left at {now[path]} and cannot be restored to {value}: {error}")
    return lines


def marked(mark):
    """Running processes with `mark` in their environment."""
    found = []
    wanted = f"{MARK}={mark}".encode()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if wanted in environment(entry.path).split(b"\0"):
                    found.append(int(entry.name))
    return found


def environment(process):
    """A process's environment. During execve it is briefly empty, so it is read again."""
    for _ in range(20):
        shown = pathlib.Path(process, "environ").read_bytes()
        # Exited processes and kernel threads have no executable.
        if shown or not os.path.exists(f"{process}/exe"):
            break
        time.sleep(0.002)
    return shown


def left_behind(mark):
    """Kills processes of a command that outlive the grace period, and returns them."""
    deadline = time.monotonic() + GRACE
    while (found := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.02)
    lines = []
    for pid in found:
        with contextlib.suppress(OSError):
            name = pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
            os.kill(pid, signal.SIGKILL)
            lines.append(f"still there: {name} (process {pid})")
    return lines


class Turns:
    """Commands that change settings or measure run alone, all others in parallel."""

    def __init__(self):
        self.condition = threading.Condition()
        self.nr_shared, self.nr_waiting, self.is_alone = 0, 0, False

    @contextlib.contextmanager
    def shared(self):
        with self.condition:
            self.condition.wait_for(lambda: not self.is_alone and not self.nr_waiting)
            self.nr_shared += 1
        try:
            yield
        finally:
            with self.condition:
                self.nr_shared -= 1
                self.condition.notify_all()

    @contextlib.contextmanager
    def alone(self):
        with self.condition:
            self.nr_waiting += 1
            self.condition.wait_for(lambda: not self.is_alone and not self.nr_shared)
            self.nr_waiting -= 1
            self.is_alone = True
        try:
            yield
        finally:
            with self.condition:
                self.is_alone = False
                self.condition.notify_all()
