"""Third-party licences: every crate is named, every text appears once, nothing is specific to this
machine.
"""

import pathlib
import tempfile
import unittest

import built_in
import third_party

PAGE = """<h3>📦 windows-link-0.2.1</h3><p><b>License:</b> MIT OR Apache-2.0</p>
<details><summary><code>LICENSE-MIT</code></summary><pre>
Copyright &#60;somebody&#62;
</pre></details>"""


class Written(unittest.TestCase):
    def crate(self, folder, name, files, licence="MIT", declared=None):
        place = pathlib.Path(folder) / name
        for path, text in files.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_bytes(text.encode())
        return {"name": name, "version": "1.0.0+c", "license": licence, "license_file": declared, "source": "registry",
                "manifest_path": str(place / "Cargo.toml")}

    def written(self, *packages):
        return third_party.written(third_party.crates(packages))

    def test_a_text_that_two_share_is_printed_once_with_both(self):
        with tempfile.TemporaryDirectory() as folder:
            text = self.written(
                self.crate(folder, "b", {"LICENSE": "of all\r\n"}), self.crate(folder, "a", {"LICENCE.md": "\nof all"}))
        self.assertEqual(text.count("of all"), 1)
        self.assertIn("a 1.0.0+c: LICENCE.md\nb 1.0.0+c: LICENSE\n", text)

    def test_texts_of_c_code_below_a_crate_are_there_and_code_is_not(self):
        with tempfile.TemporaryDirectory() as folder:
            text = self.written(self.crate(folder, "sys", {
                "c/COPYING": "of C", "NOTICE": "a notice", "src/license.rs": "fn", "named.txt": "declared",
            }, declared="named.txt"))
        for words in ("sys 1.0.0+c: c/COPYING", "of C", "a notice", "declared"):
            self.assertIn(words, text)
        self.assertNotIn("fn", text.partition(third_party.LINE)[2])

    def test_a_crate_without_a_text_is_named_with_its_licence(self):
        with tempfile.TemporaryDirectory() as folder:
            text = self.written(self.crate(folder, "bare", {"src/lib.rs": ""}, "MIT/Apache-2.0"))
        self.assertIn(f"bare 1.0.0+c  MIT OR Apache-2.0 ({third_party.WITHOUT})\n", text)

    def test_notices_of_the_standard_library_are_read(self):
        notices = third_party.Notices()
        notices.feed(PAGE)
        (one,) = notices.components
        self.assertEqual(one.name, "windows-link 0.2.1 (Rust's standard library)")
        self.assertEqual(one.licence, "MIT OR Apache-2.0")
        self.assertEqual(one.texts, {"LICENSE-MIT": "Copyright <somebody>"})


class Whole(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = third_party.third_party()

    def test_every_crate_that_is_built_in_is_named(self):
        names = {line[4:].partition("  ")[0] for line in self.text.partition(third_party.LINE)[0].splitlines()}
        for one in built_in.BuiltIn().crates:
            name = f"{one['name']} {one['version']}"
            self.assertEqual(name in names, not built_in.is_own(one), name)

    def test_zstd_is_in_it_and_no_path_of_this_machine(self):
        self.assertIn(": zstd/LICENSE\n", self.text)
        for place in (str(pathlib.Path.home()) + "/", str(third_party.ROOT) + "/", "registry/src"):
            self.assertNotIn(place, self.text)

    def test_it_is_the_same_each_time(self):
        self.assertEqual(self.text, third_party.third_party())


if __name__ == "__main__":
    unittest.main()
