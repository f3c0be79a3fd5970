"""How a remedy becomes a command, and what is counted as kept."""

import unittest

from remedies import M, Scene, table


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
               "good": False, "tries": 2, "error": ""}
        last = table([row]).splitlines()[-1]
        self.assertEqual(last, "| x | `folio collapse PID` | 2M | 8 | 0 | not as said |")


if __name__ == "__main__":
    unittest.main()
