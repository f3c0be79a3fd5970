"""The mutants fit the code: found in the fast lane, run in the other."""

import unittest

import mutants


class Mutants(unittest.TestCase):
    def test_every_mutant_has_its_place(self):
        self.assertEqual(mutants.stale(), [])


if __name__ == "__main__":
    unittest.main()
