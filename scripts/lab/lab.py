#!/usr/bin/env python3
"""The arm64 laboratory: checks.py in emulated machines with base pages of 4K, 16K and 64K.

    scripts/lab/lab.py --folio target/release/folio
    scripts/lab/lab.py --page 16K --only maps,warm

Makes a Debian arm64 root and builds folio and its unit tests for arm64. Under QEMU, boots a
packaged kernel for 4K and one for 16K and a self-built kernel for 64K, and copies the results to
target/arm64/PAGE. Needs root; installs mmdebstrap, qemu-system-arm, a cross compiler, and the tools
to build a kernel. A missing requirement skips its part with a line that begins with SKIPPED.
docs/guide/arm64.md describes it.
"""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "scripts" / "recordings")]
sys.dont_write_bytecode = True

import arm64  # noqa: E402
import built  # noqa: E402
import bundle  # noqa: E402
import guest  # noqa: E402
import packages  # noqa: E402

WORK = ROOT / "target" / "arm64"
KERNELS = ROOT / "target" / "recordings"     # shared with the recorders
# Per base page size, the newest packaged kernel that also has packaged source, from which 64K is
# built.
MACHINES = {"4K": ("7.2", "arm64"), "16K": ("7.2", "arm64_16k"), "64K": ("7.2-lab", "arm64_64k")}
# The suite whose qemu-user loads plugins, for `folio record`.
SUITE = "bookworm"
PACKAGES = ["base-files", "bash", "coreutils", "dash", "diffutils", "dpkg", "e2fsprogs",
            "findutils",
            "grep", "gzip", "kmod", "libc-bin", "mount", "procps", "python3", "qemu-user",
            "sed", "tar", "util-linux", "xfsprogs"]
EMULATORS = {"qemu-aarch64"}    # the only one needed from qemu-user
# `folio-lab crosscheck` needs xfs, loop and zram.
MODULES = ["nvme", "ext4", "xfs", "btrfs", "loop", "zram"]
ROOT_BYTES = 2 << 30
RESULT_BYTES = 256 << 20
SECONDS = 2700      # one guest: 1600 on a busy machine; a longer one is stuck
TOOLS = {"mmdebstrap": "mmdebstrap", "qemu-system-aarch64": "qemu-system-arm",
         "mke2fs": "e2fsprogs", arm64.LINKER: "gcc-aarch64-linux-gnu", "flex": "flex",
         "bison": "bison", "bc": "bc"}
FILES = {arm64.SYSROOT / "lib" / "libc.a": "libc6-dev-arm64-cross"}


class LabGuest(guest.Guest):
    """A machine with the Debian root, the bundle of checks and a disk for the results."""

    memory_mb = 6144     # the model of `crosscheck cow` has 4 GiB
    options = "init_on_alloc=0"     # no zeroing before a copy
    # Emulating these costs time, and no check needs them.
    without = "pauth=off,sve=off,sme=off"

    def __init__(self, work, tree, variant, root, checks):
        super().__init__(work, tree, variant)
        self.modules = guest.Modules(tree).closure(MODULES)
        self.root, self.checks = root, checks

    def disks(self):
        result = self.work / "result.img"
        with result.open("wb") as image:
            image.truncate(RESULT_BYTES)
        return [self.root, self.checks, result]

    def command(self, initramfs, disks):
        words = super().command(initramfs, disks)
        words[words.index("-cpu") + 1] = f"max,{self.without}"
        return words

    def drive_options(self, path):
        return "" if path.name == "result.img" else ",snapshot=on"

    def console(self):
        return self.work / "console.log"


def root_image():
    """The Debian root as a disk, made once."""
    image, made_of = WORK / "root.ext4", WORK / "root.list"
    wanted = "\n".join([SUITE, str(ROOT_BYTES), *PACKAGES, *sorted(EMULATORS)])
    if image.exists() and made_of.exists() and made_of.read_text() == wanted:
        return image
    made_of.unlink(missing_ok=True)
    print(f"lab: making a root of {SUITE}", flush=True)
    folder = WORK / "root"
    shutil.rmtree(folder, ignore_errors=True)
    # Only unpack: maintainer scripts would need an emulator registered on this machine.
    subprocess.run(["mmdebstrap", "--quiet", "--mode=root", "--architectures=arm64",
                    "--variant=extract", f"--include={','.join(PACKAGES)}", SUITE, folder,
                    packages.mirror()], check=True)
    for path in (folder / "usr/bin").glob("qemu-*"):
        if path.name not in EMULATORS:
            path.unlink()
    (folder / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/bash\n")
    (folder / "etc/group").write_text("root:x:0:\n")
    disk(folder, image, ROOT_BYTES)
    shutil.rmtree(folder)
    made_of.write_text(wanted)
    return image


def disk(folder, image, size):
    """An ext4 image with a folder's contents."""
    image.unlink(missing_ok=True)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-b", "4096", "-d", folder, image,
                    f"{size >> 10}k"], check=True)


def bundle_image(folder):
    """The bundle as a disk."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    image = WORK / "bundle.ext4"
    disk(folder, image, size + size // 8 + (64 << 20))
    return image


def checked(page, root, checks, words):
    """Boots one machine; returns whether all its checks agreed."""
    version, variant = MACHINES[page]
    work = WORK / page
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    machine = LabGuest(work, built.tree_of(KERNELS, version, variant), variant, root, checks)
    commands = ["mount /dev/@1 ext4 /root", "mount /dev/@2 ext4 /root/mnt",
                " ".join(["enter /root /mnt/start /dev/@3", str(ROOT), *words])]
    began = time.monotonic()
    try:
        machine.boot(KERNELS / "probe" / "arm64", commands, machine.disks(), SECONDS)
        ended = "ended"
    except subprocess.TimeoutExpired:
        ended = f"did not end within {SECONDS} s"
    print(f"lab: {page} {ended}, {time.monotonic() - began:.0f} s", flush=True)
    archive = work / "results.tar.gz"
    (work / "result.img").rename(archive)
    try:
        return bundle.report(bundle.opened(archive, work), page)
    except (OSError, EOFError, tarfile.TarError, ValueError) as why:
        print(f"lab: {page}: no results ({why}); see {work / 'console.log'}", file=sys.stderr)
        return False
    finally:
        archive.unlink(missing_ok=True)


def has_kernel(page):
    """Whether a machine's kernel could be fetched or built."""
    try:
        built.tree_of(KERNELS, *MACHINES[page])
        return True
    except packages.Missing as why:
        arm64.skipped(f"the arm64 laboratory with {page} pages", why)
        return False


def lacking():
    """This machine's missing requirements, as a sentence, or None; packages are installed."""
    if os.geteuid() != 0:
        return "only root can make a Debian root. Run: sudo make lab"
    if missing := installed():
        return f"Run: apt-get install {' '.join(missing)}"
    return None if arm64.has_target() else f"Run: rustup target add {arm64.TARGET}"


def missing_packages():
    tools = [package for tool, package in TOOLS.items() if not shutil.which(tool)]
    return tools + [package for path, package in FILES.items() if not path.exists()]


def installed():
    """Installs missing packages; returns those that are still missing."""
    missing = missing_packages()
    if not missing or not shutil.which("apt-get"):
        return missing
    print(f"lab: installing {' '.join(missing)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
        subprocess.run(["apt-get", "-qq", *words], env=environment, check=False,
                       stdout=subprocess.DEVNULL)
    return missing_packages()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", action="append", choices=list(MACHINES))
    parser.add_argument("--only", default="", metavar="NAME,..", help="these checks alone")
    parser.add_argument("--folio", type=pathlib.Path, default=ROOT / "target" / "release" / "folio",
                        help="folio for this machine; its predictions are the reference")
    args = parser.parse_args()
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if remedy := lacking():
        arm64.skipped("the arm64 laboratory", remedy)
        return 0
    pages = args.page or list(MACHINES)
    WORK.mkdir(parents=True, exist_ok=True)
    probe = ["make", "-s", "-C", ROOT / "probe", f"OUT={KERNELS / 'probe'}", "arm64"]
    subprocess.run(probe, check=True)
    words = [f"--only={args.only}"] if args.only else []
    with concurrent.futures.ThreadPoolExecutor() as pool:
        kernels = pool.submit(lambda: [page for page in pages if has_kernel(page)])
        image = pool.submit(root_image)
        disk_of_checks = bundle_image(bundle.make(WORK / "bundle", arm64.TARGET, args.folio))
        root, pages = image.result(), kernels.result()
        agreed = list(pool.map(lambda page: checked(page, root, disk_of_checks, words), pages))
    return 0 if all(agreed) else 1


if __name__ == "__main__":
    sys.exit(main())
