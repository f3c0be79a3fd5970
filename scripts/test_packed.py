"""Refuses a program that needs more than its package declares, and documents with dead links."""

import email.utils
import pathlib
import re
import tempfile
import tomllib
import unittest
import zipfile
from unittest import mock

import packed

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEBIAN = ROOT / "scripts/debian"
CARGO = tomllib.loads((ROOT / "crates/cli/Cargo.toml").read_text())["package"]["metadata"]["deb"]
READELF = """
 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
  0x0010:   Name: GLIBC_2.9  Flags: none  Version: 4
  0x0020:   Name: GLIBC_2.34  Flags: none  Version: 3
"""


class Depends(unittest.TestCase):
    def needs(self, told):
        with mock.patch.object(packed, "said", return_value=told):
            return packed.needs("folio")

    def check(self, depends, told=READELF):
        packed.check_depends(packed.depended(depends), "folio", *self.needs(told))

    def test_a_line_of_depends_is_read(self):
        self.assertEqual(packed.depended("libc6:arm64 (>= 2.36), libgcc-s1"), {"libc6": "2.36", "libgcc-s1": None})

    def test_the_newest_symbol_counts_by_number(self):
        self.assertEqual(self.needs(READELF), (["libgcc_s.so.1", "libc.so.6"], "2.34"))
        self.assertEqual(self.needs("Name: GLIBC_2.2.5\nName: GLIBC_ABI_DT_RELR"), ([], "2.36"))

    def test_what_is_published_asks_for_enough(self):
        self.check(CARGO["depends"])
        self.check("libc6 (>= 2.34), libgcc-s1")

    def test_what_a_package_does_not_ask_for_is_named(self):
        with self.assertRaisesRegex(packed.Wrong, "glibc 2.34, but the package depends on 2.31"):
            self.check("libc6 (>= 2.31), libgcc-s1")
        with self.assertRaisesRegex(packed.Wrong, "glibc 2.34, but the package depends on None"):
            self.check("libc6, libgcc-s1")
        with self.assertRaisesRegex(packed.Wrong, "does not depend on libgcc-s1"):
            self.check("libc6 (>= 2.35)")
        with self.assertRaisesRegex(packed.Wrong, "libz.so.1: which package"):
            self.check(CARGO["depends"], READELF + " 0x1 (NEEDED)  Shared library: [libz.so.1]\n")


class Documents(unittest.TestCase):
    def dead(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return list(packed.dead_links(pathlib.Path(folder)))

    def test_a_link_that_leads_nowhere_is_named(self):
        there = "[a](docs/b.md#c) [d](https://e) `[f](g.md)`\n    [h](i.md)\n\n```\n[j](k.md)\n```\n"
        files = {"README.md": there, "docs/b.md": "[back](../README.md)", "n.ipynb": '{"cells": []}'}
        self.assertEqual(self.dead(files), [])
        self.assertEqual(self.dead({**files, "docs/b.md": "[l](m.md#n)"}), ["docs/b.md: m.md#n"])
        cell = '{"cells": [{"cell_type": "markdown", "source": ["[o](p.md)"]}]}'
        self.assertEqual(self.dead({**files, "n.ipynb": cell}), ["n.ipynb: p.md"])

    def test_installed_documents_lead_to_installed_documents(self):
        with tempfile.TemporaryDirectory() as folder:
            for source, target, _ in CARGO["assets"]:
                if not target.startswith(packed.DOCUMENTS) or "target/dist" in source:
                    continue
                pattern = source.removeprefix("../../")
                for path in ROOT.glob(pattern):
                    place = pathlib.Path(folder) / target.removeprefix(packed.DOCUMENTS + "/")
                    place.mkdir(parents=True, exist_ok=True)
                    (place / path.name).symlink_to(path)
            self.assertGreater(len(list(pathlib.Path(folder).rglob("*.md"))), 50)
            self.assertEqual(list(packed.dead_links(pathlib.Path(folder))), [])


class Wheel(unittest.TestCase):
    def test_a_wheel_without_licences_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "a.whl"
            for names in (packed.LICENCES[:2], packed.LICENCES):
                with zipfile.ZipFile(path, "w") as archive:
                    for name in names:
                        archive.writestr(f"largefolio-0.1.0.dist-info/licenses/{name}", "text")
                if names == packed.LICENCES:
                    packed.check_wheel(path)
                else:
                    self.assertRaisesRegex(packed.Wrong, "without THIRD-PARTY.txt", packed.check_wheel, path)


class Debian(unittest.TestCase):
    def test_the_changelog_is_of_this_version_and_of_the_maintainer(self):
        text = (DEBIAN / "changelog").read_text()
        version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
        self.assertTrue(text.startswith(f"largefolio ({version}-1) "), text.splitlines()[0])
        who, _, when = text.splitlines()[-1].removeprefix(" -- ").partition("  ")
        self.assertEqual(who, CARGO["maintainer"])
        day = email.utils.parsedate_to_datetime(when)
        self.assertEqual(email.utils.format_datetime(day), when, "another day of the week")

    def test_the_copyright_file_has_every_licence_that_it_names(self):
        text = (DEBIAN / "copyright").read_text()
        self.assertTrue(text.startswith("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"))
        self.assertIn("\nFiles: *\n", text)
        self.assertIn("/usr/share/common-licenses/Apache-2.0", text)
        self.assertEqual(re.findall(r"^License: (.*)\n(?= )", text, re.MULTILINE), ["MIT", "Apache-2.0"])
        ours = (ROOT / "LICENSE-MIT").read_text().partition("Permission")[2].split()
        theirs = text.partition("Permission")[2].partition("\nLicense:")[0].replace("\n .\n", "\n").split()
        self.assertEqual(theirs, ours)

    def test_nothing_is_left_that_only_debhelper_replaces(self):
        for path in DEBIAN.iterdir():
            if path.is_file():
                self.assertNotIn("#DEBHELPER#", path.read_text(), path)


if __name__ == "__main__":
    unittest.main()
