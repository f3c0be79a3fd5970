"""The recording scripts' demands on a machine, and the packages that they find."""

import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "recordings"))

import guest  # noqa: E402
import packages  # noqa: E402


class Tools(unittest.TestCase):
    def test_each_missing_tool_is_named_with_its_package(self):
        self.assertEqual(guest.missing(["amd64"], ["x"], lambda tool: tool), [])
        lines = guest.missing(["amd64", "arm64_16k"], ["./lab"], lambda tool: None)
        self.assertIn("mkfs.btrfs is missing: sudo apt-get install btrfs-progs", lines)
        self.assertIn("qemu-system-x86_64 is missing: sudo apt-get install qemu-system-x86", lines)
        self.assertEqual(lines[-1], "./lab is missing: make build, or set FOLIO to a folio-lab")

    def test_only_the_machines_of_the_variants_are_needed(self):
        lines = guest.missing(["amd64"], which=lambda tool: None)
        self.assertFalse(any("aarch64 is" in line for line in lines), lines)
        self.assertTrue(any("qemu-system-x86" in line for line in lines), lines)

    def test_nothing_is_started_without_the_tools(self):
        with self.assertRaises(SystemExit) as ended:
            guest.require(["amd64"], "/nowhere/folio-lab")
        self.assertIn("/nowhere/folio-lab is missing", str(ended.exception))


class Packages(unittest.TestCase):
    def test_a_version_finds_its_newest_release_and_a_release_only_itself(self):
        names = ["linux-binary-7.2.9+deb13-cloud-amd64", "linux-binary-7.2.13+deb14-cloud-amd64",
                 "linux-binary-7.2.12+deb13-cloud-amd64", "linux-binary-7.2.130+deb14-cloud-amd64x",
                 "linux-binary-7.2.14+deb14-arm64-16k", "linux-image-7.2.15+deb14-cloud-amd64",
                 "linux-binary-7.2-cloud-amd64", "linux-binary-7.20.1+deb14-cloud-amd64"]
        found = {version: packages.newest(names, "binary", version, "cloud-amd64")
                 for version in ("7.2", "7.2.12", "7.2.13", "7.2.1", "7.3")}
        self.assertEqual(found, {"7.2": names[1], "7.2.12": names[2], "7.2.13": names[1],
                                 "7.2.1": None, "7.3": None})
        old = ["linux-image-6.1.0-47-cloud-amd64", "linux-image-6.1.0-50-cloud-amd64"]
        for version in ("6.1", "6.1.0"):
            self.assertEqual(packages.newest(old, "image", version, "cloud-amd64"), old[1])

    def test_only_a_release_is_looked_for_in_the_unstable_suite(self):
        with tempfile.TemporaryDirectory() as work, mock.patch.object(packages.Apt, "run"), \
                mock.patch.object(packages, "mirror", return_value="http://debian/"):
            apts = [packages.apt_for(work, version, "arm64_16k") for version in ("7.2", "7.2.13")]
            sources = [(apt.root / "sources.list").read_text() for apt in apts]
        self.assertEqual([apt.arch for apt in apts], ["arm64", "arm64"])
        self.assertEqual([" sid " in text for text in sources], [False, True])


if __name__ == "__main__":
    unittest.main()
