"""One document: a fresh directory with the commands' requirements, and the commands, one by one."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid

from . import machine, shape

# Assignments and directory changes apply to later commands.
LASTING = re.compile(r"(export )?[A-Za-z_]\w*=\S*$|(cd|source|\.) \S+$")
# These change settings, measure times, or need unmapped files: run them alone.
ALONE = re.compile(r"folio (verify|tune|calibrate|run|warm|collapse)|folio-lab (bench|crosscheck)|--live")
PACKAGES = re.compile(r"import (largefolio|pandas|polars|duckdb|pyarrow)|python3? -m (venv|dask)")
PYTHON_DRIVER = pathlib.Path(__file__).with_name("driver.py")


# After Ctrl-C, start nothing new and stop running commands.
INTERRUPTED = threading.Event()
RUNNING = set()


def interrupt():
    """Ends the running commands; the sessions then end by themselves."""
    INTERRUPTED.set()
    for pid in list(RUNNING):
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGTERM)


# Progress messages, which only a slow machine prints.
PROGRESS = re.compile(r"^folio(-lab)?: (replaying|searching|explaining|rounds): .*(in all|so far|after .*)\n", re.MULTILINE)


class Failure(Exception):
    """A command's result differs from its document."""


class NotRun(Exception):
    """A command that is not run, with the reason."""


class Session:
    """The directory, environment and helpers of one document; a context manager."""

    def __init__(self, name, house):
        self.name, self.house = name, house
        self.lasting, self.processes, self.pids = [], [], {}
        self.driver, self.seconds = None, 0.0

    def __enter__(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="folio-docs-"))
        self.work = self.root / "work"
        home, shims = self.root / "home", self.root / "bin"
        for directory in (self.work, home, shims):
            directory.mkdir()
        for program in ("folio", "folio-lab"):
            (shims / program).symlink_to(self.house.folio.with_name(program))
        if os.geteuid() == 0:
            (shims / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
            (shims / "sudo").chmod(0o755)
        python = [str(self.house.python.parent)] if self.house.python else []
        kept = {name: os.environ[name] for name in ("LANG", "TMPDIR", "USER") if name in os.environ}
        path = ":".join([str(shims), *python, os.environ["PATH"], "/usr/sbin", "/sbin"])
        self.environment = {**kept, "PATH": path, "HOME": str(home), "ROOT": str(self.house.root),
                            "BIN": str(shims)}
        return self

    def __exit__(self, *_):
        for process in [*self.processes, *([self.driver] if self.driver else [])]:
            process.stdin.close()
            process.kill()
            process.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def prepare(self, commands):
        """Makes the files and processes named in the commands."""
        text = "\n".join(command.text for command in commands)
        exceptions = self.house.exceptions
        for name, script in exceptions.named(exceptions.files, text):
            self.make_file(name, script)
        for pid, code in exceptions.named(exceptions.pids, text):
            self.pids[pid] = self.start(code)

    def make_file(self, name, script):
        done = subprocess.run(
            ["bash", "-e", "-c", script], cwd=self.work, env=self.environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )
        if done.returncode:
            raise Failure(f"docs/commands.toml: cannot make {name}: {done.stderr}")

    def start(self, code):
        """Starts a Python process that runs `code` and stays until this session ends; returns its
        PID.
        """
        code = f"import sys\n{code}\nprint('ready', flush=True)\nsys.stdin.read()\n"
        process = subprocess.Popen(
            [os.path.realpath("/usr/bin/python3"), "-c", code], env=self.environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        self.processes.append(process)
        if process.stdout.readline() != "ready\n":
            raise Failure(f"docs/commands.toml: cannot start {code!r}")
        return str(process.pid)

    def run(self, command):
        """Runs a command according to its document and its rule; raises `Failure` or `NotRun`."""
        rule = self.house.exceptions.rule(command)
        text = rule.apply(command.text)
        if rule.skip:
            raise NotRun(rule.why)
        if reason := self.house.exceptions.missing(text, rule, self.environment["PATH"]) or self.lacks(command, text):
            raise NotRun(reason)
        for pid, own in self.pids.items():
            text = re.sub(rf"(?<![\w.-]){pid}\b", own, text)
        is_alone = rule.is_alone or ALONE.search(text)
        turns = self.house.turns.alone() if is_alone else self.house.turns.shared()
        with turns:
            if INTERRUPTED.is_set():
                raise NotRun("interrupted")
            start = time.monotonic()
            before = {} if self.house.is_shared else machine.settings()
            code, printed, left = self.python(text) if command.is_python else self.shell(text, rule.seconds)
            left += machine.changed_settings(before)
            self.seconds = time.monotonic() - start
        if left:
            raise Failure("\n".join(left))
        if code not in rule.exit:
            tail = "\n".join(printed.splitlines()[-12:])
            raise Failure(f"exit status {code}, not {' or '.join(map(str, rule.exit))}\n{tail}")
        if any(line.strip() for line in command.shown):
            self.compare(command, printed.splitlines(), rule)
        if not command.is_python and LASTING.match(command.text):
            self.lasting.append(command.text)

    def compare(self, command, printed, rule):
        """Raises `Failure` if the document differs; records how to update it."""
        compare = shape.missing if rule.is_any_order else shape.difference
        form = shape.shape if self.house.exceptions.is_varying(command) else shape.exact
        differs = compare(command.shown, printed, rule.optional, form)
        if differs and self.house.renewals is not None and not rule.is_any_order:
            if lines := shape.renewed(command.shown, printed):
                self.house.renewals.append((command, lines))
        if differs:
            raise Failure(differs)

    def lacks(self, command, text):
        """An option of this run that a command needs and that was not given."""
        if not self.house.python and (command.is_python or PACKAGES.search(text)):
            return "no --python was given"
        if "sudo " in text and os.geteuid():
            if not shutil.which("sudo"):
                return "not root, and no sudo"
            if subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode:
                return "not root, and sudo asks for a password"
        return None

    def shell(self, text, seconds):
        """Exit status, output and complaints of one command line."""
        mark = uuid.uuid4().hex
        script = "\n".join([*self.lasting, text])
        process = subprocess.Popen(
            ["bash", "-e", "-o", "pipefail", "-c", script], cwd=self.work, start_new_session=True,
            env={**self.environment, machine.MARK: mark},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        RUNNING.add(process.pid)
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=machine.GRACE)
            machine.left_behind(mark)
            raise Failure(f"did not end within {seconds} s") from None
        finally:
            RUNNING.discard(process.pid)
        return process.returncode, PROGRESS.sub("", output.decode(errors="replace")), machine.left_behind(mark)

    def python(self, text):
        """Runs a Python block. A document's blocks share their names, as in a notebook."""
        if self.driver is None:
            self.driver = subprocess.Popen(
                [self.house.python, PYTHON_DRIVER], cwd=self.work, env=self.environment, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )
        self.driver.stdin.write(json.dumps(text) + "\n")
        self.driver.stdin.flush()
        answer = self.driver.stdout.readline()
        if not answer:
            raise Failure("the Python process ended")
        answer = json.loads(answer)
        return answer["status"], answer["output"], []


def run_document(name, commands, house):
    """Runs the commands of one document; returns [(command, outcome, text)], reporting each."""
    results = []
    with Session(name, house) as session:
        try:
            session.prepare(commands)
        except Failure as failure:
            return [(command, "FAILED", str(failure)) for command in commands]
        for command in commands:
            session.seconds = 0.0
            try:
                session.run(command)
                outcome, text = "ok", ""
            except Failure as failure:
                outcome, text = "FAILED", str(failure)
            except NotRun as reason:
                outcome, text = "not run", str(reason)
            results.append((command, outcome, text))
            line = f"{outcome:7} {session.seconds:5.1f} s  {command.document}:{command.line}: {command.title}"
            print(line + (f"\n    {text}".replace("\n", "\n    ") if text else ""), file=sys.stderr, flush=True)
    return results
