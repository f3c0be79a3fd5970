"""Packages of another architecture: the tools that build them, and the programs that QEMU runs."""

import contextlib
import importlib.util
import io
import os
import pathlib
import platform
import re
import struct
import tempfile
import tomllib
import types
import unittest
from unittest import mock

import arm64
import fresh
import package
import roots


def unescaped(text):
    return text.encode().decode("unicode_escape").encode("latin-1")


def header(machine, kind, bits=2, abi=0):
    """The first 20 bytes of an ELF file."""
    return b"\x7fELF" + bytes([bits, 1, 1, abi]) + bytes(8) + struct.pack("<HH", kind, machine)


class Binfmt(unittest.TestCase):
    def matches(self, first):
        magic, mask = unescaped(roots.MAGIC), unescaped(roots.MASK)
        self.assertEqual(len(magic), len(mask))
        return all(byte & mask[at] == magic[at] & mask[at] for at, byte in enumerate(first))

    def test_programs_and_libraries_of_arm64_run_under_qemu(self):
        self.assertTrue(self.matches(header(183, 2)))
        self.assertTrue(self.matches(header(183, 3)), "position-independent")
        self.assertTrue(self.matches(header(183, 3, abi=3)), "of the GNU ABI")

    def test_nothing_else_does(self):
        self.assertFalse(self.matches(header(62, 3)), "x86-64")
        self.assertFalse(self.matches(header(183, 3, bits=1)), "32 bits")
        self.assertFalse(self.matches(header(183, 4)), "a core file")
        self.assertFalse(self.matches(b"#!/bin/sh\n# a script of shell"[:20]))


class Builds(unittest.TestCase):
    def test_this_machine_is_built_without_a_target(self):
        for arch, machine in package.MACHINES.items():
            with mock.patch.object(platform, "machine", return_value=machine):
                own = package.Build(arch, "release")
                self.assertEqual(package.own_arch(), arch)
            self.assertIsNone(own.target)
            self.assertEqual(own.folder(), package.built_in() / "release")

    def test_the_other_one_has_a_linker_of_its_own(self):
        with mock.patch.object(platform, "machine", return_value="x86_64"), \
                mock.patch.dict(os.environ):
            os.environ.pop("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", None)
            other = package.Build("arm64", "lab")
            environment = other.environment()
        self.assertEqual(other.folder(), package.built_in() / "aarch64-unknown-linux-gnu" / "lab")
        linker = environment["CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER"]
        self.assertEqual(linker, "aarch64-linux-gnu-gcc")

    def test_packages_asked_for_together_are_compiled_together(self):
        for what, is_both in [(["deb"], False), (["deb", "wheel"], True)]:
            built = []
            args = types.SimpleNamespace(what=what, arch=["arm64"], profile="lab")
            with mock.patch.object(package, "wheel"), mock.patch.object(package, "pages"), \
                    mock.patch.object(package, "lint"), \
                    mock.patch.object(package.Build, "programs", lambda build: built.append(build.folio)), \
                    mock.patch.object(package, "install", return_value="Cargo.toml"), \
                    mock.patch("shutil.which", return_value="cargo-deb"), \
                    contextlib.redirect_stderr(io.StringIO()):
                self.assertEqual(len(list(package.made(args))), len(what))
            self.assertEqual(package.MODULE[0] in built[0], is_both)

    def test_what_is_missing_is_said_with_its_command(self):
        with mock.patch.object(platform, "machine", return_value="x86_64"), \
                mock.patch.object(arm64, "has_target", return_value=False):
            with self.assertRaisesRegex(package.Wrong, "rustup target add aarch64"):
                package.Build("arm64", "release").prepare()
        with mock.patch.object(platform, "machine", return_value="x86_64"), \
                mock.patch.object(arm64, "has_target", return_value=True), \
                mock.patch("shutil.which", return_value=None):
            with self.assertRaisesRegex(package.Wrong, "apt-get install -y -qq gcc-aarch64"):
                package.Build("arm64", "release").prepare()


class Wheel(unittest.TestCase):
    """The build backend with a maturin that does nothing."""

    def setUp(self):
        path = package.ROOT / "python/build_backend/largefolio_build.py"
        maturin = types.SimpleNamespace(**dict.fromkeys([
            "get_requires_for_build_wheel", "prepare_metadata_for_build_wheel",
            "get_requires_for_build_editable", "prepare_metadata_for_build_editable"]))
        spec = importlib.util.spec_from_file_location("largefolio_build", path)
        self.backend = importlib.util.module_from_spec(spec)
        modules = {"maturin": maturin, "largefolio_build": self.backend}
        with mock.patch.dict("sys.modules", modules):
            spec.loader.exec_module(self.backend)

    def test_a_target_reaches_cargo_and_its_own_strip_is_used(self):
        build = self.backend.Build.of({"target": "aarch64-unknown-linux-gnu", "profile": "lab"})
        words = build.words()
        self.assertEqual(words[words.index("--target") + 1], "aarch64-unknown-linux-gnu")
        self.assertEqual(words[words.index("--profile") + 1], "lab")
        self.assertEqual(build.tool("strip"), "aarch64-linux-gnu-strip")

    def test_licences_are_there_while_a_wheel_is_built_and_in_the_source_distribution(self):
        with tempfile.TemporaryDirectory() as folder:
            for root, is_made in [(pathlib.Path(folder), True), (pathlib.Path(folder) / "python/workspace", False)]:
                python = pathlib.Path(folder) / "python"
                python.mkdir(exist_ok=True)
                (root / "scripts").mkdir(parents=True)
                (root / "scripts/third_party.py").write_text("import sys; open(sys.argv[1], 'w').write('theirs')")
                target = python / "THIRD-PARTY.txt"
                with mock.patch.multiple(self.backend, _ROOT=root, _PYTHON=python, _THIRD_PARTY=target):
                    with self.backend._licensed():
                        self.assertEqual(target.exists(), is_made)
                    self.assertFalse(target.exists())

    def test_this_machine_needs_no_target(self):
        build = self.backend.Build.of(None)
        self.assertNotIn("--target", build.words())
        self.assertEqual(build.tool("strip"), "strip")


class Published(unittest.TestCase):
    def manifests(self):
        for path in sorted(package.ROOT.glob("crates/*/Cargo.toml")):
            whole = tomllib.loads(path.read_text())["package"]
            if whole.get("publish", True):
                yield path.parent, whole

    def test_every_crate_and_the_wheel_have_our_licences(self):
        for folder in [*(folder for folder, _ in self.manifests()), package.ROOT / "python"]:
            for name in ("LICENSE-MIT", "LICENSE-APACHE"):
                self.assertEqual((folder / name).read_bytes(), (package.ROOT / name).read_bytes(), folder)

    def test_what_is_packed_of_each_crate_has_them_too(self):
        without = [f"--exclude={name}" for name in package.UNPUBLISHED]
        listed = package.said("cargo", "package", "--list", "--workspace", "--allow-dirty", "--quiet", *without)
        nr_crates = len(list(self.manifests()))
        for name in ("LICENSE-MIT", "LICENSE-APACHE", "README.md", "Cargo.toml.orig"):
            self.assertEqual(listed.splitlines().count(name), nr_crates, name)

    def test_every_crate_has_a_page_of_its_own_that_a_registry_can_show(self):
        for folder, manifest in self.manifests():
            self.assertEqual(manifest["readme"], "README.md", folder)
            text = (folder / "README.md").read_text()
            self.assertTrue(text.startswith(f"# {manifest['name']}\n"), folder)
            self.assertIn("largefolio-cli", text, "where the whole is")

    def test_pages_of_registries_link_to_nothing_beside_them(self):
        pages = [folder / "README.md" for folder, _ in self.manifests()] + [package.ROOT / "python/README.md"]
        for page in pages:
            links = re.findall(r"\]\((?!https://)([^)]*)\)", page.read_text())
            self.assertEqual(links, [], page)
            self.assertNotRegex(page.read_text(), r"docs/|\./python|\.md\b", page)

    def test_maturin_is_of_one_version(self):
        (required,) = package.build_requires()
        self.assertRegex(required, r"^maturin==[0-9.]+$")


class Left(unittest.TestCase):
    def test_a_file_that_stays_is_seen_and_state_is_not(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "usr/bin").mkdir(parents=True)
            (root / "var/lib").mkdir(parents=True)
            place = fresh.Place("trixie-amd64")
            place.root.path = root
            before = place.files()
            (root / "var/lib/status").touch()
            self.assertEqual(place.files(), before)
            (root / "usr/bin/folio").touch()
            self.assertEqual(place.files() - before, {root / "usr/bin/folio"})


class Skips(unittest.TestCase):
    def test_a_gate_that_cannot_lint_says_so(self):
        said = io.StringIO()
        with mock.patch.object(arm64, "has_target", return_value=False), \
                mock.patch("sys.argv", ["arm64.py", "lint"]), contextlib.redirect_stderr(said):
            self.assertEqual(arm64.main(), 0)
        self.assertTrue(said.getvalue().startswith("SKIPPED: "), said.getvalue())
        self.assertIn("rustup target add", said.getvalue())


if __name__ == "__main__":
    unittest.main()
