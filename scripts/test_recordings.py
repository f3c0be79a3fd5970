"""The recording scripts' demands on a machine."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "recordings"))

import guest  # noqa: E402


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


if __name__ == "__main__":
    unittest.main()
