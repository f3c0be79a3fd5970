"""The repository's English: the patterns, their limits, and the text itself."""

import unittest

import english
from doccheck.exceptions import tomllib


class English(unittest.TestCase):
    def test_the_repository_is_within_its_limits(self):
        limits = tomllib.loads(english.LIST.read_text())["limit"]
        rates, _ = english.measured()
        self.assertEqual(list(english.complaints(rates, limits)), [])

    def test_a_limit_follows_the_text_down(self):
        self.assertIn("Lower", " ".join(english.complaints({"comment": 1.0}, {"comment": 2.0})))
        self.assertIn("limit 2.0", " ".join(english.complaints({"comment": 2.1}, {"comment": 2.0})))
        self.assertEqual(list(english.complaints({"comment": 1.8}, {"comment": 2.0})), [])

    def test_prose_is_separated_from_code(self):
        line = 'let url = "https://a.b/c d e f"; // A comment.'
        self.assertEqual(english.texts("a.rs", line),
                         [("comment", " A comment."), ("string", "https://a.b/c d e f")])
        self.assertEqual(english.texts("a.md", "Text."), [("document", "Text.")])
        self.assertEqual(english.texts("a.json", '"who is behind it all"'), [])


if __name__ == "__main__":
    unittest.main()
