"""Tests of scripts/docs.py: which text counts as a command, and what it accepts and refuses."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest

from doccheck import english, exceptions, machine, markdown, prose, session, shape

HELP = {
    "": "Commands:\n  maps     Folio sizes\n  trace    Traces\n\nOptions:\n  -h, --help\n",
    "maps": "Options:\n      --elf  Files\n",
    "trace": "Commands:\n  gen   Makes one\n\nOptions:\n      --quiet\n",
    "trace gen": "Options:\n      --seed <N>\n",
}


def texts(document):
    return [command.text for command in markdown.commands("a.md", document)]


class Markdown(unittest.TestCase):
    def test_indented_blocks_with_prompts_have_output(self):
        found = markdown.commands("a.md", "Words.\n\n    $ folio maps 1\n    all 3\n    ...\n    $ folio tune\n\nEnd.\n")
        self.assertEqual([(c.line, c.text) for c in found], [(3, "folio maps 1"), (6, "folio tune")])
        self.assertEqual(found[0].shown, ["all 3", "..."])

    def test_blocks_without_prompts_are_scripts_if_they_begin_as_such(self):
        self.assertEqual(texts("\n    sudo folio maps 1   # one\n    folio maps \\\n        --all\n"),
                         ["sudo folio maps 1   # one", "folio maps \\\n    --all"])
        self.assertEqual(texts("\n    folio          process\n      found?\n"), [])
        self.assertEqual(texts("```text\nfolio maps 1\n```\n"), [])

    def test_commands_go_on_over_lines(self):
        loop = "for t in a b; do\n    folio maps $t\ndone"
        for text in (loop, "cat > x <<'END'\na 'b\nEND", "python3 -c '\nprint(1)'"):
            self.assertEqual(texts(f"```sh\n{text}\nfolio tune\n```\n"), [text, "folio tune"])

    def test_a_command_in_a_block_that_is_none_is_told(self):
        self.assertEqual(list(markdown.doubtful("\n    words\n    folio maps 1\n")), [(3, "folio maps 1")])
        self.assertEqual(list(markdown.doubtful("\n    $ folio maps 1\n    folio maps\n")), [])

    def test_fences_of_python_are_python(self):
        found = markdown.commands("a.md", "```python\nx = 1\nprint(x)\n```\n")
        self.assertTrue(found[0].is_python)
        self.assertEqual(found[0].text, "x = 1\nprint(x)")

    def test_spans_leave_out_blocks(self):
        text = "`folio maps`\n\n    `folio no`\n\n```\n`folio no`\n```\nand `folio\ntune`\n"
        self.assertEqual([code for _, code in markdown.spans(text)], ["folio maps", "folio tune"])


class Shape(unittest.TestCase):
    SHOWN = ["kernel 6.18.44, 4K pages", "  mapped   text   share", "  4K   1.2 MiB   .", "...", "done in 3 s"]

    def differs(self, *printed):
        return shape.difference(self.SHOWN, printed)

    def test_other_numbers_are_equal(self):
        self.assertIsNone(self.differs(
            "kernel 6.1.0-18-amd64, 16K pages", "mapped text share", " 16K 12,000 KiB 3.1%", "x", "y", "done in 11.0 s"))

    def test_exactly_means_each_number(self):
        def differs(shown, printed):
            return shape.difference([shown], [printed], form=shape.exact)

        self.assertIsNone(differs("major   | 991 -> 500", "major | 991  ->  500"))
        self.assertIsNone(differs("major .. 500", "major | 991 -> 500"))
        for printed in ("major | 991 -> 501", "major | 991 -> 500 MiB", "minor | 991 -> 500"):
            self.assertIsNotNone(differs("major | 991 -> 500", printed), printed)

    def test_numbers_are_renewed_where_the_shape_is_the_same(self):
        shown = ["major  | 991", "..", "", "read | .. 5 KiB", "end 3"]
        printed = ["major  | 992", "x 1", "y", "read | 7, 6 KiB", "end 4"]
        self.assertEqual(shape.renewed(shown, printed), ["major  | 992", "..", "", "read | .. 5 KiB", "end 4"])
        self.assertIsNone(shape.renewed(["major 1"], ["minor 1"]))
        text = "# a\n\n    $ folio x \\\n        y\n    major 1\n\nprose\n"
        command = markdown.commands("a.md", text)[0]
        renewed = markdown.renew(text, command, ["major 2", ""])
        self.assertEqual(renewed, text.replace("major 1", "major 2"))

    def test_a_renamed_column_differs(self):
        self.assertIn("share", self.differs("kernel 6.1.0, 4K pages", "mapped text part", "4K . .", "done in 1 s"))

    def test_a_changed_message_differs(self):
        self.assertIn("done", self.differs("kernel 6.1.0, 4K pages", "mapped text share", "4K . .", "ready in 1 s"))

    def test_a_missing_or_new_line_differs(self):
        self.assertIsNotNone(self.differs("kernel 6.1.0, 4K pages", "mapped text share", "4K . ."))
        self.assertIsNotNone(self.differs(
            "kernel 6.1.0, 4K pages", "new", "mapped text share", "4K . .", "done in 1 s"))
        self.assertIn("`...`", self.differs(
            "kernel 6.1.0, 4K pages", "mapped text share", "4K . .", "done in 1 s", "new"))

    def test_optional_lines_may_be_missing(self):
        self.assertIsNone(shape.difference(["a", "b 1", "c"], ["a", "c"], optional=["b "]))
        self.assertIsNotNone(shape.difference(["a", "b 1", "c"], ["a", "b x", "c"], optional=["b "]))

    def test_warnings_that_are_not_shown_are_the_machines(self):
        self.assertIsNone(shape.difference(["a"], ["folio: warning: no root", "a"]))
        self.assertIsNotNone(shape.difference(["folio: warning: b"], ["folio: warning: c"]))

    def test_two_dots_are_any_text(self):
        self.assertIsNone(shape.difference(["why: ..", "[1 .. 2] end"], ["why: because", "[3 .. 4] end"]))
        self.assertIsNotNone(shape.difference(["why: .."], ["what: because"]))

    def test_missing_takes_any_order(self):
        self.assertIsNone(shape.missing(["a 1", "b"], ["b", "x", "a 2"]))
        self.assertIsNotNone(shape.missing(["a 1", "b"], ["b", "x"]))


class Prose(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        root = pathlib.Path(self.directory.name)
        cases = "".join(f"'{verb} --help') printf '{text}';;\n" for verb, text in HELP.items() if verb)
        script = f"#!/bin/sh\ncase \"$*\" in\n--help) printf '{HELP['']}';;\n{cases}*) exit 2;;\nesac\n"
        (root / "folio").write_text(script)
        (root / "folio").chmod(0o755)
        (root / "Makefile").write_text("demo: build\n")
        self.words = prose.Words(root / "folio", root, {"--elsewhere": "ld"})

    def complaint(self, code):
        return self.words.complaint(code)

    def test_what_exists_is_fine(self):
        for code in ("folio maps --elf FILE", "sudo folio trace gen ret-stubs --seed 1", "make demo", "--seed",
                     "folio maps -- CMD --of-cmd", "trace gen --seed", "--elsewhere", "maps", "mm/src/rules.rs"):
            self.assertIsNone(self.complaint(code), code)

    def test_what_does_not_is_told(self):
        for code in ("folio maps --seed 1", "folio mops", "folio trace gen --elf", "make demos", "--gone",
                     "maps --gone", "scripts/none.py"):
            self.assertIsNotNone(self.complaint(code), code)

    def test_options_of_others_that_nothing_names_are_stale(self):
        self.assertIn("--elsewhere", prose.check({"a.md": "`folio maps`"}, self.words)[0])


class English(unittest.TestCase):
    def test_a_phrase_is_found_over_a_line_break_and_not_in_code(self):
        listed = english.phrases('[[phrase]]\nfind = "to be had"\nsay = "available"\n')
        text = "It is not to be\nhad. `to be had`, [a](to be had)\n\n    $ echo to be had\n"
        self.assertEqual(
            english.check({"a.md": english.prose(text)}, listed),
            ['a.md:1: "to be had": say: available (scripts/doccheck/english.toml)'],
        )

    def test_every_phrase_of_the_list_finds_what_it_is_about(self):
        said = (
            "None was to be had. It is looked at. We reckon so. Arguments that are none. Files of which nothing is"
            " cached. Floors. A row a cell. A column each. Bytes a reference. Within factor 2. It is no cost. A size"
            " the filesystem has not. Opened for write. For want of one. Reached is malloc. Workloads that nobody"
            " listed. Whatever cannot be done. A superpage."
        )
        for phrase in english.phrases():
            self.assertEqual(len(english.check({"": said}, [phrase])), 1, phrase)

    def test_common_words_are_left_alone(self):
        said = "There is no kernel here. It has not been read. It opens for writing; floor(2.5) and room for one."
        self.assertEqual(english.check({"": said}, english.phrases()), [])


class Commands(unittest.TestCase):
    """The commands really run, with `true` in place of folio."""

    def results(self, text, rules=""):
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(rules)
            file.flush()
            found = exceptions.Exceptions(file.name)
        house = types.SimpleNamespace(
            root=pathlib.Path("/"), folio=pathlib.Path("/bin/true"), python=pathlib.Path(sys.executable),
            exceptions=found, turns=machine.Turns(), is_shared=True, renewals=[])
        with contextlib.redirect_stderr(io.StringIO()):
            results = session.run_document("a.md", markdown.commands("a.md", text), house)
        return [(outcome, text) for _, outcome, text in results], found

    def outcomes(self, text, rules=""):
        return [outcome for outcome, _ in self.results(text, rules)[0]]

    def test_status_output_and_directory(self):
        self.assertEqual(self.outcomes("```sh\nA=3\ntouch a$A\ntest -e a3\ntest -e a4\nfalse | true\n```\n"),
                         ["ok", "ok", "ok", "FAILED", "FAILED"])
        varying = '[[varying]]\nmatch = "KiB"\nwhy = "w"\n'
        text = "    $ echo all 3 KiB\n    all 5 MiB\n    $ echo all 3\n    all 5\n    $ echo all\n    most\n"
        self.assertEqual(self.outcomes(text, varying), ["ok", "FAILED", "FAILED"])
        complaints = self.results("    $ echo 3 KiB\n", varying)[1].complaints(markdown.commands("a.md", "    $ echo 3 KiB\n"))
        self.assertIn("shows output", complaints[0])

    def test_files_are_made_when_named(self):
        self.assertEqual(self.outcomes("    $ cat x.c\n    made 2\n", "[files]\n\"x.c\" = 'echo made 2 > x.c'"), ["ok"])

    def test_process_ids_are_of_a_process(self):
        self.assertEqual(self.outcomes("    $ grep -c objects /proc/4242/cmdline\n    1\n", '[pids]\n4242 = "objects = 1"'), ["ok"])

    def test_rules_replace_and_skip_and_become_stale(self):
        rules = '[[command]]\ndocument = "a.md"\nmatch = "{}"\nwhy = "w"\n{}\n'
        text = "    $ sleep 900\n"
        commands = markdown.commands("a.md", text)
        results, found = self.results(text, rules.format("sleep", 'replace = { "900" = "0" }'))
        self.assertEqual((results[0][0], found.complaints(commands)), ("ok", []))
        results, found = self.results(text, rules.format("sleep", "skip = true"))
        self.assertEqual((results, found.complaints(commands)), ([("not run", "w")], []))
        text = "    $ sleep 0\n"
        for stale in (rules.format("slope", ""), rules.format("sleep", 'replace = { "7" = "8" }'),
                      "[files]\n'x.c' = 'true'\n", "[pids]\n4242 = '0'\n"):
            _, found = self.results(text, stale)
            self.assertEqual(len(found.complaints(markdown.commands("a.md", text))), 1)

    def test_a_process_that_stays_fails_and_is_killed(self):
        grace, machine.GRACE = machine.GRACE, 0.2
        try:
            results, _ = self.results("    $ setsid sleep 987 > /dev/null 2>&1 &\n")
        finally:
            machine.GRACE = grace
        self.assertIn("still there: sleep", results[0][1])
        shown = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout
        self.assertNotIn("sleep 987", shown)

    def test_a_command_that_does_not_end_is_ended(self):
        results, _ = self.results("    $ sleep 986\n",
                                  '[[command]]\ndocument = "a.md"\nmatch = "sleep"\nwhy = ""\nseconds = 1\n')
        self.assertIn("did not end", results[0][1])

    def test_python_blocks_share_names_and_examples_are_compared(self):
        text = "```python\nx = 2\n```\n\n```python\n>>> x + 1\n3\n>>> 'a'\n'b'\n```\n\n```python\nassert x == 3\n```\n"
        self.assertEqual(self.outcomes(text), ["ok", "FAILED", "FAILED"])


class Machine(unittest.TestCase):
    def test_a_changed_setting_is_told_and_put_back(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "enabled")
            pathlib.Path(path).write_text("always [madvise] never\n")
            old, machine.SETTINGS, grace, machine.GRACE = machine.SETTINGS, [directory + "/**"], machine.GRACE, 0
            try:
                before = machine.settings()
                pathlib.Path(path).write_text("[always] madvise never\n")
                self.assertEqual(len(machine.changed_settings(before)), 1)
                self.assertEqual(pathlib.Path(path).read_text(), "madvise")
                self.assertEqual(machine.changed_settings(before), [])
            finally:
                machine.SETTINGS, machine.GRACE = old, grace


if __name__ == "__main__":
    unittest.main()
