"""Releases: two builds are compared byte for byte, and the list of components is correct."""

import json
import pathlib
import tempfile
import types
import unittest
from unittest import mock

import release


class Compared(unittest.TestCase):
    def made(self, folder, **files):
        folder = pathlib.Path(tempfile.mkdtemp(dir=folder))
        for name, text in files.items():
            (folder / name).write_text(text)
        return {name: folder / name for name in files}

    def test_the_same_bytes_have_one_digest(self):
        with tempfile.TemporaryDirectory() as folder:
            digests = release.compared(self.made(folder, deb="x"), self.made(folder, deb="x"))
        self.assertEqual(list(digests), ["deb"])
        self.assertEqual(len(digests["deb"]), 64)

    def test_a_byte_or_a_file_that_differs_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            first = self.made(folder, deb="x", whl="same")
            with self.assertRaisesRegex(release.Different, "1 of 2 differ:\n    diffoscope .*deb"):
                release.compared(first, self.made(folder, deb="y", whl="same"))
            with self.assertRaisesRegex(release.Different, "only one build made.*whl"):
                release.compared(first, self.made(folder, deb="x"))


class Unchanged(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "crates").mkdir()
        self.lock = self.root / "Cargo.lock"
        self.lock.write_text("version = 4\n")
        self.start(mock.patch.object(release.built_in, "ROOT", self.root))
        self.start(mock.patch.object(release, "OUTPUT", self.root / "target" / "published"))
        self.start(mock.patch.object(release.package, "TOOLS", self.root / "target" / "tools"))
        release.git("init", "--quiet")
        release.git("add", "Cargo.lock")
        release.git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message=first")
        self.id = release.git("rev-parse", "HEAD")
        self.start(mock.patch.object(release, "Commit", lambda: types.SimpleNamespace(id=self.id)))

    def start(self, patch):
        self.addCleanup(patch.stop)
        return patch.start()

    def test_what_is_not_in_the_commit_stops_it_before_anything_is_built(self):
        built = self.start(mock.patch.object(release, "Build"))
        (self.root / "notes.txt").write_text("nobody reads it")
        release.check_unchanged(self.id)
        self.lock.write_text("version = 3\n")
        (self.root / "crates" / "mine.rs").write_text("")
        with self.assertRaises(release.Changed) as raised:
            release.release(types.SimpleNamespace())
        said = str(raised.exception)
        self.assertRegex(said, r"^the commit [0-9a-f]{12} is built, .*:\n    M\tCargo.lock\n    \?\tcrates/mine.rs\n")
        self.assertIn("git stash --include-untracked", said)
        release.git("add", "Cargo.lock")
        with self.assertRaisesRegex(release.Changed, "M\tCargo.lock"):
            release.release(types.SimpleNamespace())
        built.assert_not_called()

    def test_what_changes_while_it_is_built_is_not_published(self):
        def made():
            self.lock.write_text("version = 3\n")
            return {}

        build = self.start(mock.patch.object(release, "Build"))
        build.return_value.made = made
        with self.assertRaisesRegex(release.Changed, "M\tCargo.lock"):
            release.release(types.SimpleNamespace())
        self.assertFalse(release.OUTPUT.exists())


class Provenance(unittest.TestCase):
    def tools(self, *parts, arch=("amd64", "arm64")):
        asked = []

        def first_line(*words):
            asked.append(words[0])
            return f"{words[0]} 1.2"

        args = types.SimpleNamespace(parts=parts, arch=list(arch), profile="lab")
        with mock.patch.object(release, "first_line", first_line), \
                mock.patch("platform.machine", return_value="x86_64"):
            lines = [f"{use}: {tool}" for use, tool in release.tools(args)]
        return asked, lines

    def test_all_that_makes_bytes_is_named(self):
        asked, lines = self.tools("deb", "wheel")
        for name in ("cargo", "cc", "ld", "aarch64-linux-gnu-gcc", "aarch64-linux-gnu-ld", "cargo-deb", "dpkg-deb"):
            self.assertIn(name, asked)
        self.assertRegex("\n".join(lines), r"wheels: maturin [0-9.]+\n")

    def test_tools_that_had_no_part_in_it_are_not(self):
        asked, lines = self.tools("crates")
        self.assertFalse([name for name in asked if name.startswith(("aarch64", "cargo-deb"))])
        self.assertNotIn("maturin", "\n".join(lines))

    def test_a_tool_that_is_missing_is_said_to_be(self):
        self.assertEqual(release.first_line("no-such-tool", "--version"), "no no-such-tool")


class Components(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.commit = release.Commit()
        cls.sbom = release.sbom(cls.commit)

    def test_it_has_what_is_built_in_and_not_what_tests_use(self):
        names = {one["name"] for one in self.sbom["components"]}
        self.assertLessEqual({"largefolio-cli", "largefolio-mm", "parquet", "zstd-sys", "landlock"}, names)
        self.assertFalse({"insta", "proptest", "jsonschema", "largefolio-testkit"} & names)

    def test_it_has_what_cargo_builds_on_linux_and_no_more(self):
        names = {one["name"] for one in self.sbom["components"]}
        versions = {one["version"][:3] for one in self.sbom["components"] if one["name"] == "getrandom"}
        self.assertEqual(versions, {"0.3", "0.4"}, "tempfile asks for 0.4 where cfg(any(unix, windows, ..))")
        others = ("windows", "winapi", "wasm", "wasi", "js-sys", "iana-time-zone-haiku", "hermit", "redox")
        self.assertFalse([name for name in names if name.startswith(others)])

    def test_what_only_builds_is_not_said_to_be_in_a_program(self):
        scopes = {one["name"]: one["scope"] for one in self.sbom["components"]}
        self.assertEqual({name: scopes[name] for name in ("cc", "serde_derive", "zstd-sys", "largefolio-mm")}, {
            "cc": "excluded", "serde_derive": "excluded", "zstd-sys": "required", "largefolio-mm": "required"})

    def test_a_package_url_has_no_plus(self):
        self.assertEqual(release.reference({"name": "zstd-sys", "version": "2.0.16+zstd.1.5.7"}),
                         "pkg:cargo/zstd-sys@2.0.16%2Bzstd.1.5.7")
        urls = [one["purl"] for one in self.sbom["components"]]
        self.assertFalse([url for url in urls if "+" in url])

    def test_every_component_has_a_licence_and_a_checksum_or_is_ours(self):
        for one in self.sbom["components"]:
            self.assertTrue(one["licenses"][0]["expression"], one["name"])
            self.assertEqual("hashes" in one, not one["name"].startswith("largefolio-"), one["name"])

    def test_references_lead_to_components(self):
        refs = {one["bom-ref"] for one in self.sbom["components"]} | {"largefolio"}
        self.assertEqual(len(refs), len(self.sbom["components"]) + 1)
        for one in self.sbom["dependencies"]:
            self.assertLessEqual({one["ref"], *one["dependsOn"]}, refs)

    def test_it_is_the_same_each_time(self):
        again = release.sbom(release.Commit())
        self.assertEqual(json.dumps(self.sbom), json.dumps(again))


if __name__ == "__main__":
    unittest.main()
