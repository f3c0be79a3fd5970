"""The places that kernel/attach.py finds in a kernel's source, on small sources of our own."""

import contextlib
import io
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "kernel"))

import attach  # noqa: E402

SOURCE = """\
#include <one.h>
#include <two.h>

struct state {
\tint size;	/* in { pages */
};

/* take(x) { is only mentioned here */
static int take(struct state *s, int nr);

static int take(struct state *s,
\t\tint nr)
{
\tint left = 0;	// left
\tconst char *why = "left { ( ;";

#ifdef CONFIG_X
\t/* Not the first mention of left. */
\tif (s->left)
\t\tleft = room(s);
#endif
\tif (nr > left &&
\t    room(s) > left)
\t\treturn -1;
\treturn left;
}

int give(struct state *s)
{
\treturn take(s, 1);
}
"""


def placed(**hook):
    return attach.edited(SOURCE, hook)


def added(**hook):
    """The lines that a hook adds, each with the line after it."""
    old, new = SOURCE.splitlines(), placed(**hook).splitlines()
    at = next(i for i, (a, b) in enumerate(zip(old, new)) if a != b)
    return new[at:at + len(new) - len(old)], new[at + len(new) - len(old)]


class Places(unittest.TestCase):
    def test_entry_is_the_bodys_first_line_and_not_a_declarations(self):
        self.assertEqual(added(function="take", entry="x();"), (["\tx();"], "\tint left = 0;	// left"))

    def test_before_skips_comments_strings_members_and_preprocessor_lines(self):
        where = [added(function="take", before="left", nth=nth, line="x();")[1]
                 for nth in range(5)]
        self.assertEqual(where, ["\tint left = 0;	// left", "\tif (s->left)",
                                 "\tif (nr > left &&", "\tif (nr > left &&", "\treturn left;"])

    def test_a_call_is_redirected_everywhere_in_that_function_only(self):
        text = placed(function="take", call="room", to="lf_room", times=2)
        self.assertEqual(text, SOURCE.replace("room(s)", "lf_room(s)"))
        with self.assertRaisesRegex(attach.Misplaced, "calls room 2 times"):
            placed(function="take", call="room", to="lf_room")

    def test_a_word_is_replaced_once(self):
        self.assertIn("room(s) > lf(left))\n", placed(function="take", word="left", nth=3,
                                                      to="lf(left)"))
        with self.assertRaisesRegex(attach.Misplaced, "mentions left 5 times"):
            placed(function="take", word="left", nth=5, to="x")

    def test_above_field_and_include(self):
        self.assertEqual(added(function="give", above="int x;"), (["int x;"],
                                                                 "int give(struct state *s)"))
        self.assertEqual(added(struct="state", field="int x;"), (["\tint x;"], "};"))
        self.assertEqual(added(include="x.h"), (["#include <x.h>"], ""))

    def test_what_is_missing_or_there_twice_is_an_error(self):
        for hook in ({"function": "lend", "entry": "x"}, {"struct": "none", "field": "x"}):
            with self.assertRaisesRegex(attach.Misplaced, "found 0 times"):
                placed(**hook)
        twice = SOURCE + SOURCE[SOURCE.index("int give"):]
        with self.assertRaisesRegex(attach.Misplaced, "the function give: found 2 times"):
            attach.edited(twice, {"function": "give", "entry": "x"})

    def test_a_hook_has_one_kind(self):
        for hook in ({"function": "take"}, {"function": "take", "entry": "x", "above": "y"}):
            with self.assertRaisesRegex(attach.Misplaced, "a hook has one of"):
                attach.checked(hook, "a.toml")


class Copies(unittest.TestCase):
    """Whole runs on a small tree with a feature of our own."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.top = pathlib.Path(temporary.name)
        for path, text in {
                "source/mm/Kconfig": "menu \"m\"\nendmenu\n", "source/mm/Makefile": "obj-y += a.o\n",
                "source/mm/a.c": SOURCE, "source/mm/b.c": "int b;\n",
                "kernel/settings/Kconfig": "config LARGEFOLIO\n",
                "kernel/settings/9.toml": "hook = []\n",
                "kernel/own/Kconfig": "config LARGEFOLIO_OWN\n", "kernel/own/own.c": "int own;\n",
                "kernel/own/own.h": "extern int own;\n", "kernel/other/Kconfig": "",
                "kernel/own/9.toml":
                    "[[hook]]\nfile = 'mm/a.c'\nfunction = 'give'\nentry = 'x();'\n"}.items():
            (self.top / path).parent.mkdir(parents=True, exist_ok=True)
            (self.top / path).write_text(text)
        here = mock.patch.object(attach, "HERE", self.top / "kernel")
        here.start()
        self.addCleanup(here.stop)

    def run_it(self, *words):
        with mock.patch.object(sys, "argv", ["attach.py", str(self.top / "source"),
                                             str(self.top / "copy"), "9", *words]), \
                contextlib.redirect_stdout(io.StringIO()) as out:
            attach.main()
        return out.getvalue()

    def test_a_copy_has_the_features_that_know_the_version(self):
        self.assertTrue(self.run_it().endswith("copy: own\n"))
        copy = self.top / "copy"
        self.assertIn("{\n\tx();\n", (copy / "mm/a.c").read_text())
        self.assertEqual((copy / "include/linux/largefolio/own.h").read_text(), "extern int own;\n")
        self.assertIn("obj-$(CONFIG_LARGEFOLIO_OWN) += own.o",
                      (copy / "mm/largefolio/own/Makefile").read_text())
        self.assertEqual((copy / "mm/largefolio/Makefile").read_text(),
                         "obj-y += settings/\nobj-y += own/\n")
        self.assertEqual((self.top / "source/mm/a.c").read_text(), SOURCE)
        self.assertTrue(os.path.samefile(copy / "mm/b.c", self.top / "source/mm/b.c"))

    def test_a_second_run_changes_only_what_differs(self):
        self.run_it()
        files = [self.top / "copy" / path for path in ("mm/a.c", "mm/largefolio/own/own.c")]
        before = [path.stat().st_mtime_ns for path in files]
        (self.top / "kernel/own/own.c").write_text("int own = 1;\n")
        self.run_it()
        after = [path.stat().st_mtime_ns for path in files]
        self.assertEqual((before[0] == after[0], before[1] == after[1]), (True, False))
        (self.top / "kernel/own/9.toml").unlink()
        self.assertTrue(self.run_it().endswith("no feature\n"))
        self.assertEqual(files[0].read_text(), SOURCE)
        self.assertFalse(files[1].exists())

    def test_an_unknown_feature_or_place_ends_the_run(self):
        with self.assertRaisesRegex(SystemExit, "no hooks for 9: other; there are own"):
            self.run_it("other")
        (self.top / "source/mm/a.c").write_text("int a;\n")
        with self.assertRaisesRegex(SystemExit, "the function give: found 0 times"):
            self.run_it()


class Features(unittest.TestCase):
    def test_each_setting_is_in_an_abi_document(self):
        for code in (ROOT / "kernel").glob("*/*.c"):
            abi = code.parent / "ABI"
            for name in attach.re.findall(r"^LF_SETTING\((\w+),", code.read_text(), attach.re.M):
                self.assertIn(f"/sys/kernel/mm/largefolio/{name}\n", abi.read_text(), code)


if __name__ == "__main__":
    unittest.main()
