"""The recording scripts' demands on a machine, and the packages that they find."""

import argparse
import json
import pathlib
import re
import sys
import tempfile
import tomllib
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "recordings"))

import built  # noqa: E402
import clear  # noqa: E402
import cold  # noqa: E402
import collapse  # noqa: E402
import counted  # noqa: E402
import cow  # noqa: E402
import guest  # noqa: E402
import instructions  # noqa: E402
import kernel_judge  # noqa: E402
import kernel_mutants  # noqa: E402
import khugepaged  # noqa: E402
import nodes  # noqa: E402
import packages  # noqa: E402
import record  # noqa: E402
import same_events  # noqa: E402
import stress  # noqa: E402
import swap  # noqa: E402
import zswap  # noqa: E402


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


class Kernels(unittest.TestCase):
    def test_a_kernel_with_settings_is_another_ones_build(self):
        for name, entry in built.KERNELS.items():
            if "kernel" not in entry:
                self.assertNotIn("settings", entry, name)
                continue
            base = built.KERNELS[entry["kernel"]]
            self.assertNotIn("kernel", base, name)
            self.assertLessEqual(set(entry["variants"]), set(base["variants"]), name)
            rules = built.rules_name(name, entry["variants"][0])
            file = (f"policies/{entry['policy']}.c" if "policy" in entry
                    else f"kernels/recorded/{rules}.toml")
            self.assertTrue((guest.ROOT / file).exists(), name)

    def test_one_that_checks_itself_has_the_settings_of_those_that_do_not(self):
        base = {"source": "6.12", "variants": ["amd64", "arm64"]}
        kernels = built.with_checks({
            "plain": base, "plain-checked": base | {"variants": ["amd64"], "checks": ["plain"]},
            "one": {"kernel": "plain", "variants": ["amd64", "arm64"], "settings": ["a=b"]},
            "arm": {"kernel": "plain", "variants": ["arm64"], "settings": ["a=b"]}})
        self.assertEqual(kernels["one-checked"], {"kernel": "plain-checked", "variants": ["amd64"],
                                                  "settings": ["a=b"]})
        self.assertNotIn("arm-checked", kernels)
        for name, entry in built.KERNELS.items():
            self.assertLessEqual(set(entry.get("checks", [])), set(built.KERNELS), name)

    def test_one_without_a_filesystem_records_nothing_on_it(self):
        with mock.patch.object(built, "KERNELS", {
                "base": {"without": ["EXT4_FS", "NUMA"], "variants": ["amd64"]},
                "one": {"kernel": "base", "variants": ["amd64"]}}):
            lacks = [built.lacks("one", each) for each in ("ext4", "ext4-encrypt", "xfs")]
            self.assertEqual(lacks, [True, True, False])
            workloads = {each: ([], [(f"{each}_a", 128, {}, 0)]) for each in ("ext4", "xfs")}
            args = argparse.Namespace(only="*", again="")
            self.assertEqual(record.missing_from(pathlib.Path("/nowhere"), workloads, args, "one"),
                             {"xfs_a"})

    def test_its_settings_are_those_of_its_features(self):
        documented = {line.split()[1] for abi in built.FEATURES.glob("*/ABI")
                      for line in abi.read_text().splitlines() if line.startswith("What:")}
        for name in built.KERNELS:
            for line in built.settings(name):
                word, path, value = line.split()
                path = re.sub(r"-\d+kB$", "-<size>kB", path)
                self.assertEqual((word, path in documented), ("require", True), f"{name}: {path}")
                self.assertTrue(value, name)

    def test_a_change_of_another_version_builds_nothing(self):
        with tempfile.TemporaryDirectory() as scratch, \
                mock.patch.object(built, "FEATURES", pathlib.Path(scratch)) as top:
            for path in ("attach.py", "README.md", "settings/a.c", "one/6.12.toml", "one/7.2.toml",
                         "one/one.c", "one/ABI", "two/7.2.toml", "two/two.c"):
                (top / path).parent.mkdir(exist_ok=True)
                (top / path).write_text(path)
            before = built.features_digest("6.12")
            for path in ("README.md", "one/7.2.toml", "one/ABI", "two/two.c"):
                (top / path).write_text("changed")
            self.assertEqual(built.features_digest("6.12"), before)
            for path in ("attach.py", "settings/a.c", "one/6.12.toml", "one/one.c"):
                (top / path).write_text("changed")
                self.assertNotEqual(before, before := built.features_digest("6.12"), path)


class Mutants(unittest.TestCase):
    def test_each_changes_one_place_and_names_a_kernel(self):
        for mutant in tomllib.loads(kernel_mutants.LIST.read_text())["mutant"]:
            text = (built.FEATURES / mutant["file"]).read_text()
            self.assertNotEqual(kernel_mutants.changed(text, mutant), text)
            self.assertIn(mutant["variant"], built.variants(mutant["kernel"]), mutant["name"])

    def test_each_that_is_reported_has_a_kernel_that_checks_itself(self):
        for mutant in tomllib.loads(kernel_mutants.LIST.read_text())["mutant"]:
            base = built.KERNELS[mutant["kernel"]]["kernel"]
            self.assertEqual("report" in mutant, "checks" in built.KERNELS[base], mutant["name"])

    def test_a_report_counts_only_if_it_is_the_expected_one(self):
        mutant = {"name": "x", "file": "a.c", "from": "one", "to": "two", "report": "BUG: KASAN"}
        for line, wanted in (("c.log: BUG: KASAN: use", True), ("c.log: WARNING: lock", False),
                             (None, False)):
            error = guest.Complained(line) if line else None
            with tempfile.TemporaryDirectory() as scratch, \
                    mock.patch.object(kernel_mutants, "record_mutant", side_effect=error), \
                    mock.patch("builtins.print"):
                features = pathlib.Path(scratch)
                (features / "a.c").write_text("one")
                self.assertEqual(kernel_mutants.is_found(features, mutant, features), wanted, line)

    def test_a_change_without_its_place_is_an_error(self):
        mutant = {"name": "x", "file": "a.c", "from": "one", "to": "two"}
        self.assertEqual(kernel_mutants.changed("a one b", mutant), "a two b")
        for text in ("none", "one one"):
            with self.assertRaises(packages.Missing):
                kernel_mutants.changed(text.replace("none", "no"), mutant)


class Judge(unittest.TestCase):
    def test_a_setting_decides_which_programs_judge_it(self):
        for name, wanted in (("73_pmd_counts", ("cow", [])), ("73_sizes_2m", None),
                             ("73_file_thp_exec", ("collapse", ["--disk"])),
                             ("73_collapse_sizes", ("collapse", ["--disk", "--any-size"]))):
            self.assertEqual(kernel_judge.programs_of(name), wanted)

    def test_programs_are_as_many_as_asked_for_and_no_two_share_a_seed(self):
        for verb, words in set((verb, tuple(words))
                               for verb, words in kernel_judge.PROGRAMS.values()):
            for number in (1, 500, 501):
                listed = kernel_judge.sets_of(verb, words, number, 7)
                seeds = [seed for *_, nr, first in listed for seed in range(first, first + nr)]
                self.assertGreaterEqual(len(seeds), number)
                self.assertEqual(len(set(seeds)), len(seeds))
                self.assertEqual(min(seeds), 7)

    def test_a_cell_counts_what_was_compared_and_names_what_differs(self):
        rows = [{"name": name, "outcome": outcome} for name, outcome in
                (("a", "equal"), ("b", "different"), ("c", "skipped"), ("d", "equal"))]
        done = mock.Mock(returncode=1, stdout=json.dumps({"rows": rows}))
        with mock.patch.object(kernel_judge, "record_one", return_value=pathlib.Path("x")), \
                mock.patch.object(kernel_judge.subprocess, "run", return_value=done):
            cell = kernel_judge.judge(None, None, "73_copy", "programs")
        self.assertEqual(cell, ("2 of 3, 1 skipped", ["b"]))


class Pools(unittest.TestCase):
    def test_programs_about_huge_pages_get_their_pool(self):
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch) / "x.txt"
            path.write_text("program 1 pages=8 sizes=- huge=2048:11\n0 map 0 1 g\n")
            lines = cow.commands([path], 4096)
            self.assertEqual(lines[-2:], ["set /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
                                          " 11", "run x /programs/x.txt"])
            path.write_text(path.read_text() + "program 2 pages=8 sizes=- huge=2048:3\n")
            with self.assertRaisesRegex(packages.Missing, "2 pools"):
                cow.commands([path], 4096)


class Recorders(unittest.TestCase):
    """Every recorder of programs runs the probe on each file, with words that it knows."""

    WORDS = ("dir=", "disk=", "statistics", "machine", "trace=", "groups=", "swap=", "others=",
             "zswap=", "variant=", "edits=")

    def runs(self, recorder, *more, folder=""):
        taken = []

        def run_programs(machine, _probes, files, commands, _seconds=1500):
            taken.append((machine, [path.name for path in files], commands))
            return {}

        with tempfile.TemporaryDirectory() as scratch, \
                mock.patch.object(cow.CowGuest, "run_programs", run_programs), \
                mock.patch.object(cow.CowGuest, "__init__", self.prepared), \
                mock.patch.object(guest, "Modules"), mock.patch.object(built, "tree_of"), \
                mock.patch.object(cow, "save"):
            work = pathlib.Path(scratch)
            (work / folder).mkdir(parents=True, exist_ok=True)
            (work / folder / "name.txt").write_text("program 1 pages=128 sizes=64\n")
            args = argparse.Namespace(programs=work, plain=None, out=work)
            recorder.record(work, "6.12", "amd64", *(more and [*more, args] or [work, work]))
        (_, files, commands), = taken
        self.assertEqual(files, ["name.txt"])
        return [line for line in commands if line.startswith("run ")]

    @staticmethod
    def prepared(machine, work, _tree, variant):
        machine.work, machine.variant, machine.files = work, variant, {}

    def test_each_runs_the_programs_with_words_for_the_probe(self):
        for recorder, more, folder in [(cow, (), "4K"), (nodes, (), "4K"), (collapse, (), ""),
                                       (khugepaged, (), ""), (swap, ("lists",), ""),
                                       (zswap, ("disk",), "disk")]:
            runs = self.runs(recorder, *more, folder=folder)
            self.assertTrue(runs, recorder)
            for line in runs:
                _, _, path, *words = line.split()
                self.assertIn(path, ["/programs/name.txt", "/files.txt"], recorder)
                self.assertTrue(all(word.startswith(self.WORDS) for word in words), line)


class Lists(unittest.TestCase):
    ROW = ("name", 128, {"file": "own", "prot": "r"}, 4096)

    def test_a_workload_with_its_own_file_makes_and_removes_it(self):
        lines = record.commands({"xfs": ([{"name": "data", "bytes": 1, "is_sparse": False}],
                                         [self.ROW])}, {"name"}, {"variant": "rules"})
        self.assertNotIn("make /xfs/data 1", lines)
        at = lines.index("make /xfs/own 4096")
        self.assertTrue(lines[at + 1].startswith("run name fs=xfs "), lines)
        self.assertEqual(lines[at + 2], "remove /xfs/own")

    def test_stress_runs_on_each_filesystem_that_the_kernel_has(self):
        lines = stress.commands(["ext4", "ext4-encrypt"], [("off", ""), ("random", " settings=/s")],
                                "seconds=1")
        self.assertIn("mount /dev/@4 ext4 /ext4-encrypt", lines)
        self.assertFalse(any("/xfs" in line for line in lines), lines)
        runs = [line for line in lines if line.startswith("run ")]
        self.assertEqual(runs[0], "run off_ext4 dir=/ext4 seconds=1")
        self.assertEqual((len(runs), runs[3]), (4, "run random_ext4-encrypt dir=/ext4-encrypt "
                                                   "seconds=1 settings=/s"))

    def test_stress_counts_operations_and_not_what_the_kernel_counts(self):
        text = "# stress seed=1\nload 10\nmap-file 2\npgmigrate_success 5\nthp_fault_alloc 1\n"
        self.assertEqual(stress.operations(text), ["load 10", "map-file 2"])

    def test_clearing_is_recorded_at_each_size_with_its_edits(self):
        lines = clear.commands(4096, "full", True, ["off", "merged"])
        runs = [line.split()[1] for line in lines if line.startswith("run ")]
        self.assertEqual(runs[:2] + runs[-1:], ["off_full_16", "off_full_32", "merged_full_1048576"])
        self.assertEqual(len(runs), 18)
        self.assertTrue(all("edits=clear=" in line for line in lines if line.startswith("run ")))
        self.assertEqual(clear.sizes_kb(65536)[-1], 512 << 10)


class Instructions(unittest.TestCase):
    TEXT = ("# count page=4096 arch=x86-64 release=6.12.1 variant= settings=- kib=64 rounds=2\n"
            "c fault 1 16 10 x3 12 40\nc fork_none 0 0 100\nc fork 2 32 130 x2\nend\n")
    CALIBRATED = "# count page=4096 arch=x86-64 release=6.12.1\nk turns 100 201\nend\n"

    def rows(self, *texts):
        boots = []
        for text in texts:
            results = {"calibrate": (0, self.CALIBRATED), "off:memory:64": (0, text)}
            by_key, known, _ = instructions.collected(results)
            self.assertEqual(known, {"turns": (100, 201)})
            boots.append(by_key)
        return instructions.merged(boots)

    def test_short_forms_of_equal_values_are_written_out(self):
        samples, _, _ = instructions.parsed(self.TEXT)
        self.assertEqual(samples["fault"], (1, 16, [10, 10, 10, 12, 40]))
        _, known, file = instructions.parsed("# count\nk getpid 1 90\nf 3 48\nend\n")
        self.assertEqual((known, file), ({"getpid": (1, 90)}, (3, 48)))
        with self.assertRaises(ValueError):
            instructions.parsed(self.TEXT.removesuffix("end\n"))

    def test_boots_are_counted_together_and_each_has_its_median(self):
        fault, *_ = self.rows(self.TEXT, self.TEXT.replace("10 x3", "11 x3"))
        self.assertEqual((fault["n"], fault["median"], fault["min"], fault["max"]), (10, 11, 10, 40))
        self.assertEqual((fault["boots"], fault["folios"], fault["pages"]), ([10, 11], 1, 16))

    def test_a_folio_costs_what_is_above_no_folio(self):
        rows = self.rows(self.TEXT)
        fork = next(row for row in rows if row["operation"] == "fork")
        self.assertEqual(instructions.each_folio(fork, rows), 15)
        fork["settings"] = "owners_max=40"
        self.assertEqual(instructions.each_folio(fork, rows), 65)
        self.assertIn("| off | fault | 64 | 5 | 10 | 10 | 40 | the same | 10.0 | 0.6 |",
                      instructions.table(rows))

    def test_the_file_is_read_back(self):
        rows = self.rows(self.TEXT)
        text = instructions.toml({"kernel": "k", "boots": 1}, {"turns": (100, 201)},
                                 {"off": (3, 48)}, rows)
        read = tomllib.loads(text)
        self.assertEqual((read["rows"], read["files"]), (rows, {"off": [3, 48]}))
        self.assertEqual((read["kernel"], read["known"]), ("k", {"turns": [100, 201]}))

    def test_each_setting_is_set_counted_and_reset(self):
        for name, forms in instructions.FORMS.items():
            kernel = built.KERNELS[name]
            features = {f"LARGEFOLIO_{key.split('_max')[0].upper()}"
                        for key in ("clear", "copy", "exec_order", "owners_max")
                        if any(form.startswith(key) for form in forms)}
            self.assertLessEqual(features, set(kernel["options"]), name)
            lines = instructions.commands([instructions.OFF, *forms], 2)
            for form in forms:
                key, _, value = form.partition("=")
                at = lines.index(f"require {built.SETTINGS}/{key} {value}")
                back = lines.index(f"require {built.SETTINGS}/{key} "
                                   f"{instructions.SETTINGS[key][0]}", at + 1)
                runs = [line for line in lines[at:back] if line.startswith("run ")]
                self.assertTrue(runs, form)
                self.assertTrue(all(line.startswith(f"run {form}:") for line in runs), form)

    def test_a_size_is_allowed_only_while_it_is_counted(self):
        for part in ("memory", "fault"):
            allowed = set()
            for line in instructions.runs("off", part, 2):
                word, what, value, *_ = line.split()
                if word == "set":
                    (allowed.add if value == "always" else allowed.discard)(what)
                else:
                    kib = int(what.split(":")[2])
                    self.assertEqual(sorted(allowed), [] if kib == 4 else
                                     [f"{guest.THP}/hugepages-{kib}kB/enabled"])
            self.assertFalse(allowed)


class Cold(unittest.TestCase):
    TEXT = ("# cold arch=x86-64 release=6.12.1 variant=- settings=off\nended status=0\n"
            "faults minor=90 major=10\nreads requests=7 bytes=70000\n"
            "folios order=0 nr=3\nfolios order=4 nr=1\nend\n")

    def test_a_run_has_faults_bytes_and_folios_by_size(self):
        row = cold.parsed(self.TEXT)
        self.assertEqual(row, {"faults": 100, "major": 10, "read_bytes": 70000,
                               "cached_bytes": 19 * 4096, "folios": {4: 3, 64: 1}})
        self.assertEqual([round(part, 1) for part in cold.shares(row["folios"])],
                         [15.8, 0.0, 84.2])
        for wrong in (self.TEXT.replace("status=0", "status=256"), self.TEXT[:-4]):
            with self.assertRaises(ValueError):
                cold.parsed(wrong)

    def test_a_prediction_has_the_same_numbers(self):
        row = cold.of_row({"memory_stat": {"pgfault": 100, "pgmajfault": 10},
                           "reads": {"bytes": 70000},
                           "cached_bytes": {"4096": 3 * 4096, "65536": 65536, "8192": 0}})
        self.assertEqual(row, cold.parsed(self.TEXT))
        self.assertEqual(cold.kernel_of("6.12-largefolio", "exec-window=64K"),
                         "6.12+exec-window=64K")
        self.assertEqual(cold.kernel_of("6.18", ""), "6.18")

    def test_the_disk_has_the_files_at_their_paths(self):
        disk = cold.Disk()
        disk.add("/usr/bin/one", "---755 0 0 /from/one")
        disk.add("/lib", "l--777 0 0 usr/lib")
        self.assertEqual(disk.protofile().splitlines(),
                         ["/dev/null", "0 0", "d--755 0 0", "lib l--777 0 0 usr/lib",
                          "usr d--755 0 0", "bin d--755 0 0", "one ---755 0 0 /from/one",
                          "$", "$", "$"])

    def test_a_library_is_found_by_its_short_name(self):
        with tempfile.TemporaryDirectory() as scratch:
            library = pathlib.Path(scratch) / "libx.so.1.2"
            library.touch()
            (library.parent / "libx.so.1").symlink_to(library.name)
            (library.parent / "libx.so").symlink_to("libother.so")
            lines = cold.disk_of([str(library)]).protofile().splitlines()
        self.assertIn("libx.so.1 l--777 0 0 libx.so.1.2", lines)
        self.assertFalse([line for line in lines if line.startswith("libx.so ")])

    def test_the_file_is_read_back(self):
        rows = [{"settings": "off", "by": "boot 1", **cold.parsed(self.TEXT)}]
        read = tomllib.loads(cold.toml({"kernel": "k"}, rows))
        read["runs"][0]["folios"] = {int(kb): nr for kb, nr in read["runs"][0]["folios"].items()}
        self.assertEqual((read["kernel"], read["runs"]), ("k", rows))


class Documents(unittest.TestCase):
    """Tables and studies quote recordings/instructions and recordings/cold."""

    def counts(self, scratch, **medians):
        for kernel, median in medians.items():
            rows = [{"settings": "off", "operation": "fork", "kib": 64, "folios": 2, "pages": 32,
                     "median": median}]
            path = pathlib.Path(scratch) / f"deb_{kernel}_amd64.toml"
            path.write_text(instructions.toml({"kernel": kernel}, {}, {}, rows))
        return counted.Counts(pathlib.Path(scratch))

    def test_each_table_is_that_of_the_data(self):
        self.assertEqual(list(counted.changed(counted.Counts())), [],
                         "scripts/recordings/counted.py updates them")

    def test_each_study_quotes_what_was_counted(self):
        counts, nr = counted.Counts(), 0
        for path in sorted((guest.ROOT / "studies").glob("*.toml")):
            for table in tomllib.loads(path.read_text()).get("tables", []):
                for row in table["rows"]:
                    if quoted := row.get("in-kernel"):
                        nr += 1
                        for key, text in zip(("before", "after"), quoted["counted"]):
                            self.assertAlmostEqual(quoted[key], counts.selected(text), delta=0.06,
                                                   msg=f"{path.name}: {row['what']}: {text}")
        self.assertTrue(nr)

    def test_the_page_of_a_series_quotes_it_too(self):
        counts = counted.Counts()
        for study, page in (("owners", "004-owners"), ("clear", "001-clearing")):
            text = (guest.ROOT / "docs" / "series" / f"{page}.md").read_text()
            *tables, = tomllib.loads((guest.ROOT / "studies" / f"{study}.toml").read_text())["tables"]
            for row in (row for table in tables for row in table["rows"] if "in-kernel" in row):
                before, after = map(counts.selected, row["in-kernel"]["counted"])
                self.assertIn(counted.change(before, after).rstrip("%"), text, row["what"])

    def test_equal_sizes_share_a_row(self):
        with tempfile.TemporaryDirectory() as scratch:
            counts = self.counts(scratch, one=100)
            (row,) = counts.files["deb_one_amd64"]["rows"]
            counts.files["deb_one_amd64"]["rows"] += [{**row, "kib": 128}, {**row, "kib": 2048}]
            lines = counted.table(counts, ["deb_one_amd64"], ["fork"]).splitlines()
            self.assertEqual(lines[2:], ["| fork | 64K to 2M | 50.0 |"])

    def test_columns_are_compared_with_the_first(self):
        with tempfile.TemporaryDirectory() as scratch:
            counts = self.counts(scratch, one=100, two=50)
            marks = "<!-- counted: deb_one_amd64 deb_two_amd64 | fork -->\nold\n<!-- end -->"
            lines = counted.written(counts, marks).splitlines()
            self.assertEqual(lines[2], "| operation | folio | one amd64 | two amd64 |")
            self.assertEqual(lines[4], "| fork | 64K | 50.0 | 25.0 (-50.0%) |")
            self.assertEqual(lines[-1], "<!-- end -->")
            self.assertEqual(counts.selected("deb_one_amd64:off:fork:64"), 50)
            # 64 KiB are 8,192 steps of eight bytes.
            self.assertEqual(counts.value("deb_one_amd64", "fork-steps", 64), 50 - 8192)
            for wrong in ("deb_none_amd64", "deb_one_amd64:clear=merged"):
                with self.assertRaises(ValueError):
                    counts.rows(wrong)
            with self.assertRaises(ValueError):
                counts.selected("deb_one_amd64:off:fork:128")
            with self.assertRaises(ValueError):
                counted.table(counts, ["deb_one_amd64"], ["munmap"])


class Events(unittest.TestCase):
    def test_short_forms_are_written_out(self):
        old = same_events.steps("# x\nT 3\nF .\nR order 1\nA . 2 x2\nE 0\nA 9 0\n")
        new = same_events.steps("# y\nT 3\nF 3\nA 3 2\nA 7 2\nE 0\n")
        self.assertEqual(old, new)
        self.assertNotEqual(old, same_events.steps("T 3\nF 3\nA 3 2\nA 7 1\nE 0\n"))


class Console(unittest.TestCase):
    def test_a_kernels_complaint_is_seen(self):
        quiet = "[    0.1] Linux version 6.12\n[    0.2] x86/mm: INFO about debugging\nran a\n"
        self.assertEqual(guest.complaints(quiet), [])
        for line in ("[    1.0] BUG: KASAN: slab-out-of-bounds in f+0x1/0x2",
                     "[    1.0] WARNING: possible circular locking dependency detected",
                     "[    1.0] Oops: Oops: 0000 [#1] SMP",
                     "[    1.0] Kernel panic - not syncing"):
            self.assertEqual(guest.complaints(quiet + line), [line])


    def test_a_complaint_ends_the_recording_also_if_the_machine_hangs(self):
        late = guest.subprocess.TimeoutExpired("qemu", 1)
        report = "[    1.0] INFO: task stress:7 blocked for more than 60 seconds."
        for error, text, raised in ((None, report, guest.Complained),
                                    (late, report, guest.Complained),
                                    (late, "quiet", guest.subprocess.TimeoutExpired)):
            with tempfile.TemporaryDirectory() as scratch, \
                    mock.patch.object(guest.Guest, "__init__", lambda *_: None), \
                    mock.patch.object(guest.Guest, "disks"), \
                    mock.patch.object(guest.Guest, "boot", side_effect=error):
                machine = guest.Guest()
                machine.work, machine.name = pathlib.Path(scratch), "k"
                machine.console().write_text(text)
                with self.assertRaises(raised):
                    machine.run(None, [], 1)


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
