"""The account of how long the parsers were fuzzed."""

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

    def test_every_line_that_is_kept_is_of_a_target(self):
        kept = fuzz.HOURS.read_text().splitlines()[1:] if fuzz.HOURS.exists() else []
        self.assertLessEqual({line.split(",")[2] for line in kept}, set(fuzz.targets()))


if __name__ == "__main__":
    unittest.main()
