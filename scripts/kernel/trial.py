#!/usr/bin/env python3
"""Installs a kernel's packages in a Debian root, boots it, and tries the settings.

    scripts/kernel/trial.py 6.12                 the packages that `make kernel` made
    scripts/kernel/trial.py 6.12 --deb FILE      another image package with the features

A Debian root gets the package by dpkg, which makes its initramfs, and starts from an XFS disk under
QEMU (TCG, one CPU). All settings must be off at boot. Then a small project is compiled, PostgreSQL
makes a database, and a script runs under node, each with a cold page cache, with the settings off
and on in turn; and `folio-lab crosscheck program` compares the kernel with the model under the
rules of the same names. At last the package is removed from the root. Prints the figures; the rest
is in target/kernel/trial. Needs root, mmdebstrap, qemu-system-x86, xfsprogs, and folio and
folio-lab.
"""

import argparse
import collections
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "scripts"), str(ROOT / "scripts" / "recordings")]
sys.dont_write_bytecode = True

import debs  # noqa: E402
import edits  # noqa: E402
import guest  # noqa: E402
import packages  # noqa: E402
import roots  # noqa: E402

# Per version, the settings that are tried, and the model's edits of the same names.
TRIED = {
    "6.12": ({"exec_order": "window", "exec_miss": "final", "forced": "final", "forced_gate": "on",
              "clear": "merged"},
             "6.12+exec-window=64K+exec-miss=final+forced=final+forced-gate=on"),
}
# The values at boot.
OFF = {"off", "kernel", "65536"}
INSIDE = ["e2fsprogs", "gcc", "initramfs-tools", "kmod", "libc6-dev", "make", "nodejs",
          "postgresql", "procps", "python3", "systemd-sysv", "udev", "util-linux", "xfsprogs",
          "zstd"]
PLACE = "opt/trial"
LABEL = "trial"         # of the root's filesystem
# What `folio-lab crosscheck` compares: small workloads with executable mappings, and a program.
CHECKS = {"workloads": {"verb": [], "words": ["--only", "*_rx_plain_*"]},
          "ls": {"verb": ["program"], "words": ["--", "ls", "-l", "/etc"]}}
UNIT = """[Unit]
Description=largefolio's trial of a kernel
SuccessAction=poweroff-force
FailureAction=poweroff-force
[Service]
Type=oneshot
ExecStart=/usr/bin/python3 -B /{place}/inside.py
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
[Install]
WantedBy=multi-user.target
"""
MASKED = ["postgresql.service", "getty@.service", "serial-getty@.service", "apt-daily.timer",
          "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer",
          "e2scrub_reap.service", "fstrim.timer", "xfs_scrub_all.timer",
          "systemd-tmpfiles-clean.timer"]
DISK_BYTES = 3 << 30
SECONDS = 5400         # a machine that runs longer is stuck
TOOLS = {"mmdebstrap": "mmdebstrap", "mkfs.xfs": "xfsprogs",
         "qemu-system-x86_64": "qemu-system-x86"}
# The mount is private, so it and the loop device end with this process.
FILL = 'set -e; mount -o loop "$1" "$2"; cp -a "$3/." "$2"; umount "$2"'
NAMES = {"compile": "gcc", "postgres": "postgres", "node": "node"}


class TrialGuest(guest.Guest):
    """A machine that starts the installed kernel, with its own initramfs, from the Debian disk."""

    memory_mb = 2560
    # The kernel numbers the disks in the order in which it finds them.
    options = f"root=LABEL={LABEL} rootdelay=60 rw systemd.show_status=0"

    def __init__(self, work, tree, disk):
        super().__init__(work, tree, "amd64")
        self.disk = disk
        [self.initrd] = tree.glob("boot/initrd*")

    def initramfs(self, _probe, _commands):
        return self.initrd

    def disks(self):
        result = self.work / "result.img"
        result.unlink(missing_ok=True)
        with result.open("wb") as image:
            image.truncate(guest.RESULT_BYTES)
        return [self.disk, result]

    def drive_options(self, path):
        return ",snapshot=on" if path == self.disk else ""


def suite():
    """The Debian suite of the root: this machine's, as folio was linked here."""
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    return release if release in ("bookworm", "trixie") else "trixie"


def installed(root, deb):
    """Installs the package; returns the kernel's release."""
    name = deb.name.partition("_")[0]
    shutil.copy(deb, root.path / "tmp" / deb.name)
    try:
        inside(root, "dpkg", "-i", f"/tmp/{deb.name}")
    finally:
        (root.path / "tmp" / deb.name).unlink()
    release = name.removeprefix("linux-image-")
    for path in (f"boot/vmlinuz-{release}", f"boot/initrd.img-{release}"):
        if not (root.path / path).exists():
            raise packages.Missing(f"{deb.name} left no /{path}")
    return release


def started(root, release, folder):
    """Copies the two files that the machine starts from."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "boot").mkdir(parents=True)
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(root.path / "boot" / f"{name}-{release}", folder / "boot")
    return folder


def removed(root, deb):
    """Removes the package; returns the files that stay."""
    inside(root, "dpkg", "-P", deb.name.partition("_")[0])
    return [f"/{path.relative_to(root.path)}" for pattern in ("boot/*largefolio*",
            "lib/modules/*largefolio*", "usr/lib/modules/*largefolio*")
            for path in root.path.glob(pattern)]


def inside(root, *words):
    done = root.run(words, has_network=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                    text=True)
    if done.returncode:
        raise packages.Missing(f"{' '.join(words)}: {done.stdout.strip()[-600:]}")
    return done.stdout


def prepared(root, folio, plan):
    """Puts the trial into the root, as the only service that starts."""
    place = root.path / PLACE
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for path in (HERE / "inside.py", folio, folio.with_name("folio-lab")):
        shutil.copy(path, place)
    (place / "plan.json").write_text(json.dumps(plan))
    units = root.path / "etc/systemd/system"
    (units / "trial.service").write_text(UNIT.format(place=PLACE))
    wanted = units / "multi-user.target.wants"
    wanted.mkdir(exist_ok=True)
    for link, target in [(wanted / "trial.service", "../trial.service"),
                         *((units / name, "/dev/null") for name in MASKED)]:
        link.unlink(missing_ok=True)
        link.symlink_to(target)
    (root.path / "etc/fstab").write_text(f"LABEL={LABEL} / xfs defaults 0 0\n")


def disk_of(root, image):
    """An XFS disk with the root's files: 6.12 has no large folios on ext4."""
    image.unlink(missing_ok=True)
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    subprocess.run(["mkfs.xfs", "-q", "-L", LABEL, image], check=True, stdout=subprocess.DEVNULL)
    mount = image.with_suffix(".mount")
    mount.mkdir(exist_ok=True)
    subprocess.run(["unshare", "--mount", "--propagation", "private", "sh", "-c", FILL, "fill",
                    image, mount, root.path], check=True)
    mount.rmdir()
    return image


def size(text):
    """Bytes as folio prints sizes."""
    number = int(text)
    return f"{number >> 20}M" if number >= 1 << 20 else f"{number >> 10}K"


def shares(folios):
    """A row of sizes with their share, largest first."""
    total = sum(folios.values())
    rows = sorted(folios.items(), key=lambda pair: -int(pair[0]))
    return ", ".join(f"{size(name)} {100 * count / total:.0f}%" for name, count in rows
                     if count * 200 >= total) or "nothing"


def spread(values):
    middle = statistics.median(values)
    return f"{middle:,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def lines(found):
    """The figures as text."""
    said = [f"kernel {found['release']}; at boot {states(found['at_boot'])}"]
    for name in dict.fromkeys(run["workload"] for run in found["runs"]):
        for state in ("off", "on"):
            runs = [run for run in found["runs"]
                    if (run["workload"], run["settings"]) == (name, state)]
            said.append(f"{name}, settings {state} (n = {len(runs)})")
            for key, label, unit in (("faults", "faults", 1), ("major_faults", "major faults", 1),
                                     ("read_bytes", "KiB read", 1024)):
                said.append(f"    {label}: {spread([run[key] / unit for run in runs])}")
            last = runs[-1]
            orders = {str(4096 << int(order)): count << int(order)
                      for order, count in last["folios_by_order"].items()}
            if orders:
                said.append(f"    pages cached, by folio size: {shares(orders)}")
            name_of = pathlib.Path(last["program"]).name
            said.append(f"    {name_of} in the page cache: {shares(last['program_cache'])}")
            if last["text"]:
                said.append(f"    mapped text: {shares(last['text'])}")
    for check in found["checks"]:
        said.append(f"crosscheck of {check['check']}, settings {check['settings']}, rules "
                    f"{check['kernel']}: {verdict(check)}")
    return said


def verdict(check):
    """The result of a check, by its exit status."""
    if check["status"] > 1:
        return f"error: {check['errors'].strip()[-300:]}"
    rows = json.loads(check["json"])["rows"]
    nr_equal = sum(row["outcome"] == "equal" for row in rows)
    counts = collections.Counter()
    for row in rows:
        counts.update(row["compared"])
    compared = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    return f"{nr_equal} of {len(rows)} recordings equal; {compared} compared"


def states(settings):
    return ", ".join(f"{name}={value}" for name, value in settings.items())


def judged(found, kept):
    """The faults of a trial, one line each."""
    wrong = []
    if found["error"]:
        wrong.append(found["error"].strip().splitlines()[-1])
    on = {name: value for name, value in found.get("at_boot", {}).items() if value not in OFF}
    if on:
        wrong.append(f"not off at boot: {states(on)}")
    if found.get("at_boot") != found.get("at_end"):
        wrong.append("the settings did not come back")
    for check in found["checks"]:
        wanted = 0 if check["settings"] == "on" else 1
        if check["status"] != wanted:
            wrong.append(f"crosscheck of {check['check']}, settings {check['settings']}: "
                         f"{verdict(check)}")
    return wrong + [f"{path} stays after removal" for path in kept]


def image_package(args):
    """The image's package: the one named, or the newest that was built."""
    if args.deb:
        if not args.deb.exists():
            raise packages.Missing(f"{args.deb} does not exist")
        return args.deb.resolve()
    found = [path for path in args.out.resolve().glob(f"{args.version}-*/linux-image-*.deb")
             if (path.parent / "complete").exists()]
    if not found:
        raise packages.Missing(f"no packages of {args.version} below {args.out}: make kernel "
                               f"KERNEL={args.version}")
    return max(found, key=lambda path: path.stat().st_mtime)


def require(folio):
    if os.geteuid() != 0:
        raise packages.Missing("only root can make a Debian root. Run: sudo make kernel-try")
    lost = [package for tool, package in TOOLS.items() if not shutil.which(tool)]
    if lost:
        raise packages.Missing(f"to try a kernel: sudo apt-get install {' '.join(lost)}")
    for program in (folio, folio.with_name("folio-lab")):
        if not program.exists():
            raise packages.Missing(f"{program} is missing: make build, and cargo build --release "
                                   "--package largefolio-lab")


def tried(args, work):
    """Installs, boots and removes; returns the results, and the files that stay."""
    require(args.folio)
    deb = image_package(args)
    settings, rules = TRIED[args.version]
    began = time.monotonic()

    def say(words):
        debs.say(f"{edits.clock(time.monotonic() - began)}: {words}")

    say(f"making a root of {suite()}")
    root = roots.Root(suite(), "amd64", "kernel").made(INSIDE)
    for folder in ("boot", "lib/modules"):
        for path in (root.path / folder).glob("*largefolio*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    say(f"installing {deb.name}")
    release = installed(root, deb)
    kept = None
    try:
        prepared(root, args.folio, {"rounds": args.rounds, "settings": settings, "rules": rules,
                                    "checks": CHECKS})
        disk = disk_of(root, work / "disk.img")
        machine = TrialGuest(work, started(root, release, work / "machine"), disk)
        say(f"booting {release}; {machine.console()} has its messages")
        disks = machine.disks()
        machine.boot(None, [], disks, args.seconds)
        if reports := guest.complaints(machine.console().read_text(errors="replace")):
            raise packages.Missing(f"{machine.console()}: {reports[0]}")
        _, text = guest.results_of(disks[1])["trial"]
        (work / "results.json").write_text(text)
        say("removing the package")
    finally:
        kept = removed(root, deb)
    say("done")
    return json.loads(text), kept


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", choices=list(TRIED), metavar="VERSION", help=", ".join(TRIED))
    parser.add_argument("--deb", type=pathlib.Path, help="the image's package (default: the newest "
                        "of this version in target/kernel)")
    parser.add_argument("--rounds", type=int, default=2,
                        help="runs per workload with the settings off, and on (default: 2)")
    parser.add_argument("--seconds", type=int, default=SECONDS, help="the machine's longest time")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target" / "kernel")
    parser.add_argument("--folio", type=pathlib.Path, default=ROOT / "target" / "release" / "folio",
                        help="folio; folio-lab is next to it")
    args = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    work = args.out.resolve() / "trial"
    work.mkdir(parents=True, exist_ok=True)
    try:
        found, kept = tried(args, work)
    except (packages.Missing, roots.Unable, RuntimeError) as error:
        sys.exit(f"kernel: {error}")
    except subprocess.TimeoutExpired:
        sys.exit(f"kernel: the machine did not end within {args.seconds} s")
    except KeyboardInterrupt:
        sys.exit("kernel: stopped")
    if found["runs"]:
        print("\n".join(lines(found)))
    wrong = judged(found, kept)
    for line in wrong:
        print(f"kernel: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
