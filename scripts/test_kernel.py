"""`make kernel`: its configuration, its progress and errors, and the verdict on a trial."""

import argparse
import io
import json
import pathlib
import sys
import tempfile
import unittest
from contextlib import redirect_stdout
from unittest import mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "kernel"), str(HERE / "recordings")]

import built  # noqa: E402
import debs  # noqa: E402
import edits  # noqa: E402
import packages  # noqa: E402
import trial  # noqa: E402

DISTRIBUTION = """CONFIG_LOCALVERSION=""
CONFIG_TRANSPARENT_HUGEPAGE=y
CONFIG_MODULE_SIG=y
# CONFIG_MODULE_SIG_ALL is not set
CONFIG_MODULE_SIG_KEY="debian/key.pem"
CONFIG_SYSTEM_TRUSTED_KEYS="debian/certs/debian-uefi-certs.pem"
# CONFIG_DEBUG_INFO_NONE is not set
CONFIG_DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT=y
CONFIG_DEBUG_INFO_BTF=y
CONFIG_XFS_FS=m
"""


class Configuration(unittest.TestCase):
    def test_each_option_has_one_value(self):
        made = edits.private(DISTRIBUTION, {"clear", "policy"})
        names = [line.removeprefix("# ").partition("=")[0].partition(" ")[0]
                 for line in made.splitlines()]
        self.assertEqual(len(names), len(set(names)), made)

    def test_the_distributions_keys_and_debug_information_go(self):
        made = edits.private(DISTRIBUTION, {"clear"})
        self.assertNotIn("debian", made)
        for option, wanted in [("SYSTEM_TRUSTED_KEYS", '""'), ("MODULE_SIG_ALL", "y"),
                               ("DEBUG_INFO_NONE", "y"), ("DEBUG_INFO_BTF", "n"),
                               ("LOCALVERSION", '"-largefolio"'), ("LARGEFOLIO", "y"),
                               ("LARGEFOLIO_CLEAR", "y"), ("LARGEFOLIO_POLICY", "n"),
                               ("XFS_FS", "m"), ("TRANSPARENT_HUGEPAGE", "y")]:
            self.assertEqual(edits.value(made, option), wanted, option)

    def test_modules_without_signatures_stay_so(self):
        made = edits.private("CONFIG_MODULES=y\n", set())
        self.assertNotIn("MODULE_SIG", made)

    def test_a_name_that_begins_like_another_stays(self):
        made = edits.replaced("CONFIG_A_B=y\nCONFIG_A=y\n# CONFIG_A_C is not set\n", {"A": "n"})
        self.assertEqual(made, "CONFIG_A_B=y\n# CONFIG_A_C is not set\n# CONFIG_A is not set\n")

    def test_features_that_cannot_be_had_are_named(self):
        settled = "CONFIG_LARGEFOLIO=y\nCONFIG_LARGEFOLIO_CLEAR=y\n"
        self.assertEqual(edits.accepted(settled, {"policy", "clear"}), (["clear"], ["policy"]))
        with self.assertRaisesRegex(edits.Unfit, "TRANSPARENT_HUGEPAGE"):
            edits.accepted("CONFIG_SYSFS=y\n", {"clear"})

    def test_every_feature_has_the_option_that_is_set(self):
        for version in debs.versions():
            for name in debs.feature_names(version):
                [_, option] = edits.options([name])
                self.assertIn(f"config {option}\n", (built.FEATURES / name / "Kconfig").read_text())


class Progress(unittest.TestCase):
    def test_it_counts_compiled_files(self):
        progress = edits.Progress()
        for line in ["make[1]: Entering directory '/build'\n", "  CC      mm/filemap.o\n",
                     "  CC [M]  fs/xfs/xfs_file.o\n", "  AS      lib/x.o\n",
                     "  LD      vmlinux.o\n"]:
            progress.read(line)
        self.assertEqual(progress.nr_compiled, 3)
        progress.read("  CC      fs/ext4/super.o\n")
        self.assertEqual(progress.text(125), "2 min 05 s: 4 files compiled, now in fs/ext4")

    def test_a_failed_build_names_the_compilers_error(self):
        log = ("  CC      mm/a.o\nmm/a.c:3:1: error: expected x\nmake[3]: *** [scripts/Makefile:9: "
               "mm/a.o] Error 1\nmake: *** [Makefile:2: all] Error 2\n")
        self.assertEqual(edits.errors(log), ["mm/a.c:3:1: error: expected x"])
        self.assertEqual(edits.errors("one\n\ntwo\n"), ["one", "two"])
        self.assertEqual(len(edits.errors("make: *** a\nmake: *** b\n")), 2)


class Builds(unittest.TestCase):
    def args(self, folder, **given):
        words = {"version": "6.12", "config": "cloud", "modules": "all", "jobs": 2,
                 "work": folder / "work", "out": folder / "out"}
        return argparse.Namespace(**words | given)

    def test_missing_tools_are_named_by_package(self):
        self.assertEqual(debs.missing_packages(lambda tool: tool, lambda path: True), [])
        lost = debs.missing_packages(lambda tool: None if tool == "dh" else tool,
                                     lambda path: "gelf" not in path)
        self.assertEqual(lost, ["debhelper", "libelf-dev"])

    def test_a_configuration_that_does_not_exist_is_an_error_with_a_remedy(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            with self.assertRaisesRegex(packages.Missing, "/none: No such file.*CONFIG=cloud"):
                debs.Build(self.args(folder, config="/none")).made()
            with self.assertRaisesRegex(packages.Missing, "MODULES=/none: No such file"):
                debs.Build(self.args(folder, modules="/none"))

    def test_packages_with_the_same_inputs_are_not_built_again(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            own = folder / "config"
            own.write_text(DISTRIBUTION)
            build = debs.Build(self.args(folder, config=str(own)))
            build.folder.mkdir(parents=True)
            deb = build.folder / "linux-image-6.12.1-largefolio_1_amd64.deb"
            deb.touch()
            (build.folder / "linux-libc-dev_1_amd64.deb").touch()
            config = edits.private(DISTRIBUTION, build.names)
            (build.folder / "complete").write_text(build.inputs(config))
            with redirect_stdout(io.StringIO()), \
                    mock.patch.object(built, "attached", side_effect=AssertionError):
                self.assertEqual(build.made(), [deb])
                own.write_text(DISTRIBUTION + "CONFIG_MORE=y\n")
                with mock.patch.object(debs, "missing_packages", lambda: ["rsync"]), \
                        self.assertRaisesRegex(packages.Missing, "apt-get install rsync"):
                    build.made()

    def test_reduced_builds_have_a_folder_of_their_own(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "list").write_text("Module Size Used by\nxfs 1 0\n")
            whole, reduced = (debs.Build(self.args(folder, modules=which)).folder.name
                              for which in ("all", str(folder / "list")))
            self.assertEqual((whole, reduced), ("6.12-cloud", "6.12-cloud-reduced"))


class Trials(unittest.TestCase):
    CHECKED = json.dumps({"rows": [
        {"outcome": "equal", "compared": {"insertions": 1600, "faults": 9, "waits": 0}},
        {"outcome": "different", "compared": {"insertions": 33}}]})
    FOUND = {"error": None, "at_boot": {"clear": "off", "exec_miss": "kernel"},
             "at_end": {"clear": "off", "exec_miss": "kernel"}, "runs": [],
             "checks": [{"check": "ls", "settings": "on", "kernel": "6.12+a=b", "status": 0,
                         "errors": "", "json": CHECKED},
                        {"check": "ls", "settings": "off", "kernel": "6.12",
                         "status": 1, "errors": "", "json": CHECKED}]}

    def changed(self, **given):
        return json.loads(json.dumps(self.FOUND)) | given

    def test_a_good_trial(self):
        self.assertEqual(trial.judged(self.FOUND, []), [])

    def test_each_fault_is_named(self):
        on = {"clear": "merged", "exec_miss": "kernel"}
        for found, kept, words in [
                (self.changed(error="Traceback:\nRuntimeError: x"), [], "RuntimeError: x"),
                (self.changed(at_boot=on, at_end=on), [], "not off at boot: clear=merged"),
                (self.changed(at_end=on), [], "the settings did not come back"),
                (self.FOUND, ["/boot/x"], "/boot/x stays after removal")]:
            self.assertEqual(trial.judged(found, kept), [words])
        different = self.changed()
        different["checks"][0]["status"] = 1
        different["checks"][1]["status"] = 0
        found = "1 of 2 recordings equal; 1,633 insertions, 9 faults compared"
        self.assertEqual(trial.judged(different, []),
                         [f"crosscheck of ls, settings {state}: {found}"
                          for state in ("on", "off")])

    def test_settings_that_are_tried_are_documented(self):
        documented = " ".join(path.read_text() for path in built.FEATURES.glob("*/ABI"))
        for version, (settings, rules) in trial.TRIED.items():
            self.assertTrue(rules.startswith(f"{version}+"))
            for name, value in settings.items():
                self.assertIn(f"/sys/kernel/mm/largefolio/{name}\n", documented)
                self.assertIn(value, documented)

    def test_shares_begin_with_the_largest_size(self):
        self.assertEqual(trial.shares({"4096": 50, "65536": 50, "2097152": 0}), "64K 50%, 4K 50%")
        self.assertEqual(trial.shares({}), "nothing")

    def test_without_packages_the_command_that_makes_them_is_named(self):
        with tempfile.TemporaryDirectory() as scratch:
            args = argparse.Namespace(deb=None, version="6.12", out=pathlib.Path(scratch))
            with self.assertRaisesRegex(packages.Missing, "make kernel KERNEL=6.12"):
                trial.image_package(args)


if __name__ == "__main__":
    unittest.main()
