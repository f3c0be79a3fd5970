"""The dashboard queries only metrics of `folio maps --openmetrics`."""

import itertools
import json
import re
import unittest

from prometheus import DASHBOARD, ROOT, queries

SAVED = ROOT / "crates/results/src/maps/snapshots/largefolio_results__maps__openmetrics__tests__a_reading_is_exported_as_gauges.snap"


class Dashboard(unittest.TestCase):
    def setUp(self):
        self.dashboard = json.loads(DASHBOARD.read_text())
        self.families = set(re.findall(r"# TYPE (\w+) gauge", SAVED.read_text()))

    def test_every_metric_is_written(self):
        asked = {name for _, query in queries(self.dashboard) for name in re.findall(r"folio_\w+", query)}
        self.assertGreater(len(asked), 5)
        self.assertEqual(asked - self.families, set())

    def test_panels_do_not_overlap_and_have_their_own_number(self):
        places = [panel["gridPos"] for panel in self.dashboard["panels"]]
        self.assertGreater(len(places), 3)
        for one, other in itertools.combinations(places, 2):
            apart = [one[at] + one[size] <= other[at] or other[at] + other[size] <= one[at]
                     for at, size in (("x", "w"), ("y", "h"))]
            self.assertTrue(any(apart), f"{one} and {other}")
        numbers = [panel["id"] for panel in self.dashboard["panels"]]
        self.assertEqual(len(set(numbers)), len(numbers))

    def test_a_variable_that_is_not_filled_in_is_an_error(self):
        panel = {"title": "x", "targets": [{"expr": "folio_mapped_bytes[$__rate_interval]"}]}
        with self.assertRaises(ValueError):
            queries({"panels": [panel]})


if __name__ == "__main__":
    unittest.main()
