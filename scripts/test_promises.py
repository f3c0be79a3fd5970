"""The drawn processes, the definition of a kept promise, and a printed start as typed."""

import unittest

from promised.cases import KINDS, STARTS, case
from promised.printed import as_printed
from promised.room import nr_free_blocks
from promises import CONDITIONS, M, Promise, promises_of, table, wrongs, Verdict

TYPED = ["/d/memory", "/d", "private:4096:1"]


def mapping(*remedies):
    whole = {"command": "", "start": "", "undo": "", "cost": "", "restart": "none", "folio_bytes": 2 * M, "gain_bytes": 0, "extra_bytes": 0,
             "swapped_in_bytes": 0}
    return {"target": {"remedies": [whole | one for one in remedies]}}


class Cases(unittest.TestCase):
    def test_a_case_does_not_depend_on_the_others(self):
        self.assertEqual(case(3, 7), case(3, 7))
        self.assertNotEqual(case(3, 7).words(), case(4, 7).words())

    def test_every_kind_and_start_is_drawn(self):
        drawn = [case(1, number) for number in range(500)]
        self.assertEqual({one.start for one in drawn}, set(STARTS))
        self.assertEqual({kind for one in drawn for kind, *_ in one.areas}, set(KINDS))

    def test_areas_are_whole_pages(self):
        self.assertTrue(all(kib % 4 == 0 and kib > 0 for number in range(200) for _, kib, _ in case(2, number).areas))


class Promises(unittest.TestCase):
    def test_both_ways_count(self):
        promise = Promise(gain=40 * M, extra=8 * M, most_gain=40 * M, most_extra=8 * M)
        self.assertEqual(wrongs(promise, 42 * M, 9 * M), [])
        self.assertEqual(wrongs(promise, 35 * M, 8 * M), ["gain"])
        self.assertEqual(wrongs(promise, 45 * M, 11 * M), ["gain", "memory"])
        self.assertEqual(wrongs(promise, 40 * M, 5 * M), ["memory"])

    def test_a_setting_is_for_memory_with_a_better_remedy_too(self):
        tune = {"action": "tune", "command": "folio tune", "gain_bytes": 8 * M, "extra_bytes": 0}
        own = {"action": "option", "start": "X=1 memory ..", "gain_bytes": 20 * M, "extra_bytes": 4 * M}
        found = {"processes": [{"mappings": [mapping(tune), mapping(own), mapping({**tune, "gain_bytes": 2 * M})]}]}
        by_action = {key.action: promise for key, promise in promises_of(found).items()}
        self.assertEqual(by_action["tune"], Promise(10 * M, 0, 30 * M, 4 * M))
        self.assertEqual(by_action["option"], Promise(20 * M, 4 * M, 20 * M, 4 * M))

    def test_a_setting_may_reach_memory_without_a_promise_for_its_size(self):
        tune = {"action": "option", "command": "folio tune; X=1 memory ..", "gain_bytes": 8 * M, "folio_bytes": M // 16}
        plain, watched = mapping(tune), mapping()
        watched["target"] |= {"target_bytes": M // 16, "reasons": [{"refusal": "userfaultfd", "bytes": 5 * M}]}
        larger = mapping({"action": "collapse", "gain_bytes": 2 * M})
        larger["target"] |= {"target_bytes": 2 * M, "missing_bytes": 20 * M}
        found = promises_of({"processes": [{"mappings": [plain, watched, larger]}]})
        promise = next(value for key, value in found.items() if key.action == "option")
        self.assertEqual((promise.gain, promise.most_gain), (8 * M, 33 * M))

    def test_a_condition_limits_a_promise_only_where_it_holds(self):
        tune = {"action": "tune", "command": "folio tune", "gain_bytes": 40 * M}

        def of(cost):
            return next(iter(promises_of({"processes": [{"mappings": [mapping({**tune, "cost": cost})]}]}).values()))

        plain = of("all programs")
        for condition, (start, share) in CONDITIONS.items():
            limited = of(f"all programs; {condition}: unseen")
            self.assertEqual(wrongs(limited, 40 * M * share, 0, start), [])
            self.assertEqual(wrongs(limited, 40 * M * share, 0), ["gain"])
            self.assertEqual(wrongs(plain, 40 * M * share, 0, start), ["gain"])
        self.assertEqual(wrongs(of(next(reversed(CONDITIONS))), 24 * M, 0, "own malloc"), ["gain"])

    def test_that_nothing_works_is_no_promise(self):
        nothing = {"action": "nothing", "gain_bytes": 0, "extra_bytes": 0, "folio_bytes": 0}
        self.assertEqual(promises_of({"processes": [{"mappings": [mapping(nothing), {"target": None}]}]}), {})


class Starts(unittest.TestCase):
    def test_variables_and_options_are_as_printed(self):
        words, environment = as_printed("A=1:b=2 memory -x ..", TYPED, {"B": "3"})
        self.assertEqual(words, ["/d/memory", "-x", "/d", "private:4096:1"])
        self.assertEqual(environment, {"A": "1:b=2", "B": "3"})

    def test_options_that_a_variable_has_are_kept(self):
        set_already = {"T": "a.b=1:c.d=2"}
        self.assertEqual(as_printed("T=a.b=1:c.d=3 memory ..", TYPED, set_already)[1], {"T": "a.b=1:c.d=3"})
        with self.assertRaisesRegex(ValueError, "drops a.b=1 of T"):
            as_printed("T=c.d=3 memory ..", TYPED, set_already)

    def test_a_loader_may_be_printed_or_not(self):
        typed = ["/lib64/ld-linux-x86-64.so.2", *TYPED]
        self.assertEqual(as_printed("A=1 ld-linux-x86-64.so.2 /d/memory ..", typed, {})[0], typed)
        self.assertEqual(as_printed("A=1 memory ..", typed, {})[0], TYPED)

    def test_another_program_is_refused(self):
        with self.assertRaises(ValueError):
            as_printed("A=1 'memory (deleted)' ..", TYPED, {})
        self.assertEqual(as_printed("'/d/a b' ..", ["/d/a b", "/d"], {})[0], ["/d/a b", "/d"])

    def test_a_launcher_stands_before_all(self):
        words, _ = as_printed("folio run --heap 2M -- memory ..", TYPED, {})
        self.assertEqual(words, ["folio", "run", "--heap", "2M", "--quiet", "--", *TYPED])

    def test_options_stand_before_or_behind_the_others_as_printed(self):
        self.assertEqual(as_printed("memory -x .. -y", TYPED, {})[0], ["/d/memory", "-x", *TYPED[1:], "-y"])

    def test_nothing_printed_is_as_before(self):
        self.assertEqual(as_printed("", TYPED, {"A": "1"}), (TYPED, {"A": "1"}))


class Room(unittest.TestCase):
    def test_larger_blocks_count_as_several(self):
        text = "Node 0, zone   Normal  5 4 3 3 3 3 3 3 3 2 1\nNode 0, zone      DMA  0 0 0 0 0 0 0 0 0 1 3\n"
        self.assertEqual(nr_free_blocks(text), 2 + 2 + 1 + 6)


class Tables(unittest.TestCase):
    def test_wrong_ones_count_for_each_kind_and_start(self):
        good = Verdict(0, ["guard"], "plain", "x", 8 * M, 8 * M, 0, 0)
        bad = Verdict(1, ["guard", "small"], "script", "x", 8 * M, 0, 0, M, ["gain"])
        lines = table([good, bad], [(case(1, 0), 12 * M)]).splitlines()
        self.assertIn("| guard | 2 | 1 | 8.0 | - |", lines)
        self.assertIn("| start: script | 1 | 1 | 8.0 | - |", lines)
        self.assertEqual(lines[-1], "| all | 2 | 1 | 8.0 | 1, at most 12 MiB |")


if __name__ == "__main__":
    unittest.main()
