"""The comparison of a recorded run."""

import unittest

from workloads import BUSY, without_busy


class WithoutBusy(unittest.TestCase):
    def test_only_the_warning_of_a_busy_machine_is_left_out(self):
        other = "folio: warning: 3 events were lost\n"
        self.assertEqual(without_busy((0, f"42\n{BUSY}10 ms when ..\n{other}")), ((0, f"42\n{other}"), True))

    def test_what_a_program_says_stays(self):
        for said in ((0, "42\n"), (0, ""), (0, None)):
            self.assertEqual(without_busy(said), (said, False))


if __name__ == "__main__":
    unittest.main()
