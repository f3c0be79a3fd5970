"""Tests how a remedy becomes a command, when a promise is kept, and which settings are restored."""

import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

from promised.room import ASKED, Fragmented, make_room
from remedies import Look, Outcome, Promise, Spread, commands, promises_of, row_of, table
from scenes import M, Scene, scenes


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

    def test_options_are_the_programs_and_not_its_wrappers(self):
        wrapper = ["setpriv", "--reuid=postgres", "--clear-groups"]
        scene = Scene("x", ["/usr/lib/postgresql/15/bin/postgres", "-D", "d"], wrapper=wrapper)
        words, _ = scene.words("postgres -c huge_pages=on ..")
        self.assertEqual(words, [*wrapper, scene.command[0], "-c", "huge_pages=on", "-D", "d"])
        words, _ = scene.words("folio run --text remap -- postgres ..")
        self.assertEqual(words[:4], [*wrapper, "folio"])
        self.assertEqual(scene.words("")[0], wrapper + scene.command)

    def test_another_program_is_refused(self):
        with self.assertRaisesRegex(ValueError, "names 'javac'"):
            self.scene.words("javac -XX:+X ..")

    def test_as_before_is_as_before(self):
        self.assertEqual(self.scene.words("")[0], self.scene.command)


NOW = ("collapse", "sudo folio collapse 12", "", "none", "", "anon", 2 * M, "")
LATER = ("option", "", "X=1 java ..", "after", "", "anon", 2 * M, "")
SCENE = Scene("x", ["java"])


def looks(*of):
    """Starts without a remedy: memory, and the promise for LATER."""
    return Spread([Look({}, {LATER: Promise(gain * M)}, memory * M) for memory, gain in of])


class Tables(unittest.TestCase):
    def last(self, key, outcomes, spread=Spread(), left_off=""):
        return table([row_of(SCENE, key, outcomes, left_off, spread)]).splitlines()[-1]

    def test_a_failure_is_in_the_table(self):
        last = self.last(NOW, [Outcome(Promise(8 * M, M, 8 * M, M), 0, 2 * M)])
        self.assertEqual(last, "| x | `folio collapse PID` | 2M | 8 | 0 | +1 | +2 | 1 | 0, 0.0 | 0 of 1 as said |")

    def test_copies_share_a_row_with_the_smallest_and_largest_value(self):
        last = self.last(LATER, [Outcome(Promise(8 * M, 0, 8 * M), gain * M) for gain in (8, 7, 9)], looks((10, 8), (13, 8)))
        self.assertEqual(last, "| x | `X=1 java` | 2M | 8 | 7 to 9 | +0 | +0 | 3 | 0, 3.0 |  |")

    def test_what_was_not_tried_says_why(self):
        self.assertEqual(self.last(NOW, [], left_off="not tried: y"), "| x | not tried: y | | | | | | | | |")

    def test_a_file_has_no_name_in_the_table(self):
        command = ('new=$(sudo mktemp /var/tmp/a/f.XXXXXX) && sudo cp -a /var/tmp/a/f "$new" && '
                   'sudo mv "$new" /var/tmp/a/f && folio warm /var/tmp/a/f')
        key = ("warm", command, "", "after", "", "file", 2 * M, "/var/tmp/a/f")
        shown = 'new=$(mktemp FILE.XXXXXX) && cp -a FILE "$new" && mv "$new" FILE && folio warm FILE'
        last = self.last(key, [Outcome(Promise(8 * M, 0, 8 * M), 8 * M)])
        self.assertEqual(last, f"| x | `{shown}` | 2M | 8 | 8 | +0 | +0 | 1 | 0, 0.0 |  |")


class Judgement(unittest.TestCase):
    def test_a_tenth_or_two_mebibytes_may_be_missing_or_too_much(self):
        for said, good, bad in [(100, (91, 109), (89, 111)), (4, (2, 6), (1, 7))]:
            promise = Promise(said * M, said * M, said * M, said * M)
            for key in (NOW, LATER):
                for value in good:
                    self.assertEqual(Outcome(promise, value * M, value * M).wrongs(key, Spread()), [])
                for value in bad:
                    found = Outcome(promise, value * M, value * M).wrongs(key, Spread())
                    self.assertEqual(found, ["gain", "memory"])

    def test_a_new_start_may_differ_as_starts_without_a_remedy_do(self):
        promise, spread = Promise(100 * M, 0, 100 * M), looks((10, 100), (13, 108))
        self.assertEqual(Outcome(promise, 83 * M, 5 * M).wrongs(LATER, spread), [])
        self.assertEqual(Outcome(promise, 81 * M, 6 * M).wrongs(LATER, spread), ["gain", "memory"])
        self.assertEqual(Outcome(promise, 83 * M, 5 * M).wrongs(NOW, spread), ["gain", "memory"])

    def test_a_program_whose_starts_differ_keeps_the_least(self):
        promise = Promise(100 * M, 20 * M, 100 * M, 20 * M)
        for gain, more, good in [(150, 90, True), (90, 18, True), (89, 20, False), (100, 17, False)]:
            found = [bool(Outcome(promise, gain * M, more * M).wrongs(key, Spread(), True)) for key in (LATER, NOW)]
            self.assertEqual(found, [not good, gain != 90])

    def test_an_error_is_not_as_said(self):
        self.assertEqual(Outcome(Promise(8 * M), 8 * M, error="y").wrongs(NOW, Spread()), ["y"])

    def test_most_copies_decide(self):
        def is_bad(*gains):
            outcomes = [Outcome(Promise(100 * M, 0, 100 * M), gain * M) for gain in gains]
            return row_of(SCENE, NOW, outcomes, "", Spread())["is_bad"]
        self.assertEqual([is_bad(100), is_bad(0), is_bad(0, 100, 100), is_bad(0, 100, 0), is_bad()],
                         [False, True, False, True, False])


class Promises(unittest.TestCase):
    def test_a_setting_is_for_memory_of_its_kind_with_a_better_remedy_too(self):
        def mapping(kind, *remedies):
            whole = {"start": "", "restart": "after", "undo": "", "folio_bytes": 2 * M, "extra_bytes": 0}
            return {"path": "", "start": 0, "end": 64 * M, "folios": [{"kind": kind, "mapped_bytes": 1}],
                    "target": {"remedies": [whole | one for one in remedies]}}
        tune = {"action": "tune", "command": "folio tune", "gain_bytes": 8 * M}
        own = {"action": "option", "command": "", "gain_bytes": 20 * M}
        nothing = {"action": "nothing", "command": "", "gain_bytes": 0}
        mappings = [mapping("anon", tune), mapping("anon", own), mapping("shmem", own), mapping("anon", nothing)]
        found = {(key[0], key[5]): promise for key, promise in promises_of(mappings, 2 * M).items()}
        self.assertEqual(found, {("tune", "anon"): Promise(8 * M, 0, 28 * M), ("option", "anon"): Promise(20 * M, 0, 20 * M),
                                 ("option", "shmem"): Promise(20 * M, 0, 20 * M)})


    def test_memory_is_of_all_kinds_together(self):
        def mapping(kind, extra):
            remedy = {"action": "option", "command": "", "start": "X=1 java ..", "restart": "after", "undo": "",
                      "folio_bytes": 2 * M, "gain_bytes": 8 * M, "extra_bytes": extra}
            return {"path": "", "start": 0, "end": 64 * M, "folios": [{"kind": kind, "mapped_bytes": 1}],
                    "target": {"remedies": [remedy]}}
        found = promises_of([mapping("anon", 3 * M), mapping("text", M)], 2 * M)
        self.assertEqual({key[5]: (one.gain, one.extra) for key, one in found.items()},
                         {"anon": (8 * M, 4 * M), "file": (8 * M, 4 * M)})


class Scenes(unittest.TestCase):
    def test_only_those_asked_for_are_prepared(self):
        with tempfile.TemporaryDirectory() as folder:
            found, missing = scenes(Path("folio"), Path(folder), 1, "node")
            self.assertEqual([one.name for one in found] + [one.split(":")[0] for one in missing], ["node"])
            self.assertEqual(list(Path(folder).iterdir()), [])


class Room(unittest.TestCase):
    def free(self, counts):
        """Runs make_room(100) on a kernel with such counts of free blocks, and counts its attempts."""
        with tempfile.TemporaryDirectory() as name, mock.patch("promised.room.gather") as gather:
            buddyinfo = Path(name) / "buddyinfo"
            texts = [f"Node 0, zone Normal {'0 ' * 9}{count} 0" for count in counts]
            buddyinfo.write_text(texts.pop(0))
            gather.side_effect = lambda _: buddyinfo.write_text(texts.pop(0)) if texts else None
            with mock.patch("promised.room.BUDDYINFO", buddyinfo):
                make_room(100)
            self.assertTrue(all(call.args == (ASKED * 100,) for call in gather.mock_calls))
            return gather.call_count

    def test_it_asks_until_there_is_enough(self):
        self.assertEqual([self.free([100]), self.free([0, 100]), self.free([0, 99, 100])], [0, 1, 2])

    def test_it_says_if_there_never_is(self):
        with self.assertRaisesRegex(Fragmented, "7 free blocks of 2M, 100 are needed"):
            self.free([7])


class Undo(unittest.TestCase):
    def test_root_without_sudo_types_it_too(self):
        for undo in ("folio tune --undo", "sudo folio tune --undo", "/opt/own/folio tune --undo",
                     "sudo mount -o remount,huge=never /dev/shm", "sudo sysctl -w vm.nr_hugepages=0",
                     "nsenter -t 7 -m mount -o remount,huge=never /x"):
            self.assertEqual(commands(undo), [undo])
            self.assertEqual(commands(f"start it as before; {undo}"), [undo])
        for prose in ("nothing to undo", "start it without folio run",
                      "none while the program runs; memory mapped later gets small folios again"):
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
