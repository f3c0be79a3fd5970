"""Checks that each folio command has its effect and cleans up."""

import json
import os
import platform
import re
import shutil

from check import (THP, Skipped, check, chosen, copied, expect, idle, settings,
                   size_name)

PREDICT = ["predict", "demo.folio", "--kernel", "6.12,7.2,7.2+page=16K,7.2+page=64K",
           "--machine", "altra", "--runtime", "1s", "--json"]


@check
def version(run):
    said = run.folio("--version", "--verbose")
    target = re.search(r"^target (\S+)$", said, re.M)
    expect(target and target[1].startswith(platform.machine()), f"not built for here: {target}")
    return target[1]


@check
def predict(run):
    """The output equals the output on the machine that made the bundle."""
    said = run.folio(*PREDICT, where=run.bundle / "traces")
    (run.log_folder / "predict.json").write_text(said)
    expected = run.bundle / "expected" / "predict.json"
    if not expected.exists():
        raise Skipped("no other machine's prediction to compare with; see predict.json")
    expect(said == expected.read_text(), "the prediction differs from the other machine's")
    return f"{len(said)} bytes equal"


@check
def tune(run):
    """Settings are changed, recorded, and restored."""
    # Anonymous memory has fewer sizes than shared memory.
    sizes = sorted((path.parent for path in THP.glob("hugepages-*kB/enabled")),
                   key=lambda path: int(path.name[10:-2]))
    if not sizes:
        raise Skipped("this kernel has no per-size settings; Linux 6.8 introduced them")
    files = [THP / "enabled", sizes[0] / "enabled", sizes[-1] / "enabled"]
    old = [chosen(path) for path in files]
    new = ["always" if each == "madvise" else "madvise" for each in old]
    names = ["thp.enabled", *(f"thp.{size_name(path)}" for path in (sizes[0], sizes[-1]))]
    run.folio("tune")
    with settings(run, dict(zip(names, new))):
        expect([chosen(path) for path in files] == new, f"{names} were not set")
    expect([chosen(path) for path in files] == old, f"{names} did not come back")
    return ", ".join(names)


@check
def warm(run):
    """A file in base pages comes back in large folios."""
    copy = copied(run)
    [row] = run.folio_json("warm", copy)["rows"]
    expect(row["after_bytes"] > 0, f"nothing is large: {row['reason']}")
    [again] = run.folio_json("warm", "--check", copy)["rows"]
    large = row["after_bytes"]
    expect(again["before_bytes"] == large,
           f"{large} bytes were large, then {again['before_bytes']}")
    return f"{row['after_bytes'] >> 10} of {row['possible_bytes'] >> 10} KiB in folios of " \
           f"{row['folio_bytes'] >> 10} KiB"


@check
def run(run):
    """A program behaves the same with and without `folio run`."""
    copy = copied(run)
    alone = run.command(copy, "--version")
    for text in ("off", "large", "remap"):
        said = run.folio("run", "--summary", "--text", text, "--", copy, "--version")
        expect(said == alone, f"--text {text} changes the program's output")
    run.folio("run", "--", "sh", "-c", "exit 7", wanted=(7,))


@check
def package(run):
    """The Debian package: unpacked by dpkg into a separate folder, used there, and removed."""
    deb = run.bundle / "largefolio.deb"
    if not deb.exists():
        raise Skipped("the bundle has no package (run make deb before making it)")
    if not shutil.which("dpkg"):
        raise Skipped("this system has no dpkg")
    root = run.folder / "root"
    state = root / "var" / "lib" / "dpkg"
    state.mkdir(parents=True)
    for name in ("status", "available"):
        (state / name).touch()
    # Its libraries belong to the system, which this dpkg does not know.
    dpkg = ["dpkg", f"--instdir={root}", f"--admindir={state}", "--force-depends",
            "--force-script-chrootless", "--log=/dev/null"]
    run.command(*dpkg, "--install", deb)
    folio = root / "usr" / "bin" / "folio"
    version = run.command(folio, "--version", "--verbose")
    expect(f"target {platform.machine()}-" in version, "the package is for another architecture")
    expect(f"preload library {root}/usr/lib/largefolio/" in version, "its libraries are not found")
    said = run.command(folio, *PREDICT, where=root / "usr" / "share" / "largefolio" / "traces")
    expected = run.bundle / "expected" / "predict.json"
    expect(not expected.exists() or said == expected.read_text(),
           "the prediction differs from the other machine's")
    with idle() as pid:
        found = json.loads(run.command(folio, "maps", pid, "--json"))
    expect(found["processes"], "folio maps finds no process")
    run.command(*dpkg, "--purge", "largefolio")
    left = [path for path in (root / "usr").rglob("*") if not path.is_dir()]
    expect(not left, f"left after dpkg --purge: {left[:3]}")
    return f"{deb.stat().st_size >> 20} MiB, unpacked, used, removed"
