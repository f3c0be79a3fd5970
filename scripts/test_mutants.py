"""The mutants match the code. The fast lane checks that; another lane runs them."""

import unittest

import mutants


class Mutants(unittest.TestCase):
    def test_every_mutant_has_its_place(self):
        self.assertEqual(mutants.stale(), [])

    def test_a_sample_is_a_tenth(self):
        self.assertIn(len(mutants.sample(list(range(95)))), (9, 10))


if __name__ == "__main__":
    unittest.main()
