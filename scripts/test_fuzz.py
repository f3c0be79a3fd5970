"""The record of fuzzing time."""

import pathlib
import tempfile
import unittest
from unittest import mock

import fuzz


class Hours(unittest.TestCase):
    def test_what_ran_adds_up_and_a_find_counts(self):
        with tempfile.TemporaryDirectory() as folder:
            hours = pathlib.Path(folder) / "hours.csv"
            with mock.patch.object(fuzz, "HOURS", hours), mock.patch.object(fuzz, "ROOT", pathlib.Path(folder)):
                fuzz.note("abc", ["trace", 1800, 5, 70, 0])
                fuzz.note("abc", ["elf", 5400, 6, "?", 1])
                self.assertEqual(fuzz.told_hours(), "2.0 hours of one processor, found 1 (hours.csv)")
            lines = hours.read_text().splitlines()
            self.assertEqual(lines[0], ",".join(fuzz.COLUMNS))
            self.assertTrue(lines[2].endswith(",abc,elf,5400,6,?,1"), lines[2])

    def test_an_input_is_late_only_if_it_is_late_again(self):
        told = "Test unit written to /finds/trace-timeout-12ab\nstat::x: 1"
        for status, is_excused in [(0, True), (70, False)]:
            with mock.patch.object(fuzz, "command", return_value=(mock.Mock(returncode=status), 1.0)) as command:
                self.assertEqual(fuzz.is_late_once("program", "trace", told), is_excused)
                command.assert_called_once_with("program", "trace", "/finds/trace-timeout-12ab")
        self.assertFalse(fuzz.is_late_once("program", "trace", "written to /finds/trace-crash-12ab"))

    def test_every_line_that_is_kept_is_of_a_target(self):
        kept = fuzz.HOURS.read_text().splitlines()[1:]
        self.assertGreater(len(kept), len(fuzz.targets()))
        self.assertLessEqual({line.split(",")[2] for line in kept}, set(fuzz.targets()))


if __name__ == "__main__":
    unittest.main()
