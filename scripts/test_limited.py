"""Workloads that a kernel does not repeat exactly."""

import pathlib
import sys
import tempfile
import tomllib
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "recordings"))

import limited  # noqa: E402

TEXT = "# kernel=7.2\nN 0 open=0\nT 0\nA 0 0 x4\nT 1\nT 9\nD 0 0\nA 9 0\nE 0\n= usage 4096\n"


class Varying(unittest.TestCase):
    def test_steps_have_what_entered_and_left(self):
        self.assertEqual(limited.steps_of(TEXT), [[], ["A 0 0 x4"], [], ["D 0 0", "A 9 0"]])

    def test_the_first_other_step_counts_as_a_replay_does(self):
        self.assertIsNone(limited.first_other_step(TEXT, TEXT.replace("usage 4096", "usage 0")))
        self.assertEqual(limited.first_other_step(TEXT, TEXT.replace("D 0 0", "D 1 0")), 3)
        self.assertEqual(limited.first_other_step(TEXT, TEXT.replace("A 9 0\n", "")), 3)

    def test_the_earliest_of_all_repetitions_counts(self):
        late, early = TEXT.replace("D 0 0", "D 1 0"), TEXT.replace("x4", "x2")
        found = limited.varying({"a": TEXT, "b": TEXT}, [{"a": late, "b": TEXT}, {"a": early}])
        self.assertEqual(found, {"a": 1})

    def test_sections_of_other_kernels_stay(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "varying.toml"
            limited.note_varying(path, "deb_7.2_amd64_lists", 2, {"b": 3, "a": 1})
            limited.note_varying(path, "deb_6.1_amd64_lists", 3, {})
            limited.note_varying(path, "deb_7.2_amd64_lists", 4, {"a": 1})
            self.assertTrue(path.read_text().startswith("# "))
            self.assertEqual(tomllib.loads(path.read_text()),
                             {"deb_6.1_amd64_lists": {"n": 3}, "deb_7.2_amd64_lists": {"n": 6, "a": 1, "b": 3}})


if __name__ == "__main__":
    unittest.main()
