"""Unit tests of the crates, which were built with the bundle."""

import json
import pathlib
import re

from check import CHECKS, Skipped, expect

# Unit tests that are not useful here: one gives a shell two seconds; the others try all
# interleavings or sequences, which takes minutes and does not depend on the architecture.
LEFT_OUT = {"linux": ["verify::tests::a_server_that_ends_is_told_with_its_last_words"],
            "mm": ["buddy::tests::small_world"]}
# Cases per property; the gate tries 256 and more. Only the architecture is new here.
NR_CASES = 16


def unit(run, crate):
    """The unit tests of a crate."""
    built = json.loads((run.bundle / "tests.json").read_text())
    if crate not in built:
        raise Skipped("the bundle was made without tests")
    folder = pathlib.Path(built[crate])
    expect(folder.is_dir(), f"no folder {folder}, which its tests read")
    skip = [word for name in LEFT_OUT.get(crate, []) for word in ("--skip", name)]
    said = run.command(run.bundle / "tests" / crate, "--quiet", *skip, where=folder, seconds=900,
                       PROPTEST_CASES=str(NR_CASES))
    result = re.search(r"^test result: ok\. (\d+) passed", said, re.M)
    expect(result and int(result[1]), "no test ran")
    return f"{result[1]} passed"


for name in ("mm", "trace", "linux"):
    CHECKS[f"unit-{name}"] = lambda run, crate=name: unit(run, crate)
