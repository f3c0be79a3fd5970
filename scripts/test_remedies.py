"""How a remedy becomes a command, what is counted as kept, and what is put back."""

import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from remedies import Outcome, commands, table
from scenes import M, Scene


class Starts(unittest.TestCase):
    def setUp(self):
        self.scene = Scene("x", ["java", "-cp", "d", "Main"], environment={"A": "1"})

    def test_variables_stand_before_and_options_behind_the_program(self):
        words, environment = self.scene.words("B=2 java -XX:+X ..")
        self.assertEqual(words, ["java", "-XX:+X", "-cp", "d", "Main"])
        self.assertEqual((environment["A"], environment["B"]), ("1", "2"))

    def test_a_launcher_stands_before_all(self):
        words, _ = self.scene.words("folio run --text remap -- /usr/bin/java ..")
        self.assertEqual(words[:5], ["folio", "run", "--text", "remap", "--quiet"])
        self.assertEqual(words[6:], self.scene.command)

    def test_as_before_is_as_before(self):
        self.assertEqual(self.scene.words("")[0], self.scene.command)


class Tables(unittest.TestCase):
    def test_a_failure_is_in_the_table(self):
        row = {"scene": "x", "remedy": "sudo folio collapse 12", "size": 2 * M, "said": 8 * M, "gain": 0,
               "said_more": M, "more": 2 * M, "good": False, "tries": 2, "error": ""}
        last = table([row]).splitlines()[-1]
        self.assertEqual(last, "| x | `folio collapse PID` | 2M | 8 | 0 | +1 | +2 | not as said |")

    def test_a_file_has_no_name_in_the_table(self):
        command = ('new=$(sudo mktemp /var/tmp/a/f.XXXXXX) && sudo cp -a /var/tmp/a/f "$new" && '
                   'sudo mv "$new" /var/tmp/a/f && folio warm /var/tmp/a/f')
        row = {"scene": "x", "remedy": command, "size": 2 * M, "said": 8 * M, "gain": 8 * M, "said_more": 0, "more": 0,
               "good": True, "tries": 1, "error": ""}
        shown = 'new=$(mktemp FILE.XXXXXX) && cp -a FILE "$new" && mv "$new" FILE && folio warm FILE'
        self.assertEqual(table([row]).splitlines()[-1], f"| x | `{shown}` | 2M | 8 | 8 | +0 | +0 |  |")


class Judgement(unittest.TestCase):
    NOW = ("collapse", "folio collapse 1", "", "none", "", "anon", 2 * M, "")
    LATER = ("option", "", "X=1 java ..", "after", "", "anon", 2 * M, "")
    SETTING = ("tune", "folio tune", "", "after", "", "anon", 2 * M, "")

    def test_a_gain_may_differ_by_a_tenth(self):
        for key in (self.NOW, self.LATER, self.SETTING):
            self.assertTrue(Outcome(100 * M, 91 * M).is_as_said(key))
            self.assertFalse(Outcome(100 * M, 89 * M).is_as_said(key))
            self.assertEqual(Outcome(100 * M, 111 * M).is_as_said(key), key is self.SETTING)

    def test_memory_now_is_as_said_and_after_a_start_at_most_so(self):
        for more in (14, 46):
            self.assertFalse(Outcome(100 * M, 100 * M, 30 * M, more * M).is_as_said(self.NOW))
        self.assertTrue(Outcome(100 * M, 100 * M, 30 * M, 14 * M).is_as_said(self.LATER))
        self.assertFalse(Outcome(100 * M, 100 * M, 12 * M, 46 * M).is_as_said(self.LATER))
        self.assertTrue(Outcome(100 * M, 100 * M, 12 * M, 13 * M).is_as_said(self.NOW))

    def test_an_error_is_not_as_said(self):
        self.assertFalse(Outcome(8 * M, 8 * M, error="x").is_as_said(self.NOW))


class Undo(unittest.TestCase):
    def test_root_without_sudo_types_it_too(self):
        for undo in ("folio tune --undo", "sudo folio tune --undo", "/opt/own/folio tune --undo",
                     "sudo mount -o remount,huge=never /dev/shm"):
            self.assertEqual(commands(undo), [undo])
            self.assertEqual(commands(f"start it as before; {undo}"), [undo])
        for prose in ("nothing to undo", "start it without folio run",
                      "none while the program runs; memory that it maps later is small again"):
            self.assertEqual(commands(prose), [])


KILLED = """import os, pathlib, signal, sys
sys.path.insert(0, sys.argv[1])
from remedies import keeper
folder = pathlib.Path(sys.argv[2])
keeper(folder, {"enabled": "madvise", "shmem_enabled": "never"})
for name in ("enabled", "shmem_enabled"):
    (folder / name).write_text("always")
os.kill(os.getpid(), signal.SIGKILL)
"""


class Settings(unittest.TestCase):
    def test_a_killed_script_has_put_them_back(self):
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, "-Bc", KILLED, Path(__file__).parent, folder]
            self.assertEqual(subprocess.run(words, check=False).returncode, -signal.SIGKILL)
            values = [Path(folder) / name for name in ("enabled", "shmem_enabled")]
            end = time.monotonic() + 30
            while (found := [value.read_text() for value in values]) != ["madvise", "never"]:
                self.assertLess(time.monotonic(), end, found)
                time.sleep(0.01)


if __name__ == "__main__":
    unittest.main()
