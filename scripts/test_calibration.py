"""Tests of scripts/calibration/run.py: the tables, without measuring."""

from __future__ import annotations

import unittest

from scripts.calibration import run


def result(ratio: float | None, holds: bool | None) -> dict:
    """The parts of `folio verify --json` that are read."""
    wall = {"quantity": "wall", "plain": 52e6, "nr_rounds": 20}
    measured = {"ratio_low": 0.9, "ratio": 0.95, "ratio_high": 1.01}
    bounds = None if ratio is None else [0.8, 0.97]
    predicted = {"ratio": ratio, "ratio_range": bounds, "holds": holds}
    return {"rows": [{"quantity": "user"}, {**wall, **measured}], "prediction": predicted}


class Tables(unittest.TestCase):
    """One row per case, and none is left out."""

    def test_programs(self) -> None:
        """Failures and missing predictions stay in the table."""
        case = run.Case("sort", ["sort"])
        results = [result(0.931, True), result(1.2, False), result(None, None)]
        rows = [run.row_of(case, "thp.64K=always", one) for one in results]
        table = run.table_of_programs(rows)
        self.assertIn("| 52 ms | 20 | -5.0% [-10.0% .. +1.0%] | -6.9% [-20.0% .. -3.0%] | yes | 2.0% |", table)
        self.assertIn("| +20.0% [-20.0% .. -3.0%] | **no** | 26.3% |", table)
        self.assertIn("| - [- .. -] | **no prediction** | - |", table)
        open_row = run.row_of(case, "thp.64K=always", result(0.931, None))
        self.assertIn("| -6.9% [-20.0% .. -3.0%] | cannot tell | 2.0% |", run.table_of_programs([open_row]))
        self.assertIn("1 of 3 measured ratios are within the predicted bounds; in 2 the", table)
        self.assertIn("median distance of the ratio is 14.2%", table)

    def test_checks(self) -> None:
        """One column per run; values outside the bounds are marked."""
        measured = {"median": 75.0, "min": 58.0, "max": 99.0}
        row = {"operation": "fork", "size": "64K", "predicted_ns": 102.0, "measured_ns": measured}
        within, outside = {"distance": 0.1, "is_within": True}, {"distance": -0.31, "is_within": False}
        table = run.table_of_checks([{"rows": [{**row, **within}]}, {"rows": [{**row, **outside}]}])
        self.assertIn("| fork, 64K | 102 / 75 [58 .. 99], +10% | 102 / 75 [58 .. 99], **-31%** |", table)


if __name__ == "__main__":
    unittest.main()
