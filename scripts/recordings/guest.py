"""A recording machine: initramfs, disks, one QEMU run, and its results."""

import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys

import packages

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RESULT_BYTES = 512 << 20
DISK_BYTES = 640 << 20
SLOW_DISK_BYTES = 128 << 20
SLOW_REQUESTS = 80                           # per second: one request takes 12.5 ms
THP = "/sys/kernel/mm/transparent_hugepage"
# khugepaged would collapse a program's pages at random; since 7.2 also file pages.
KHUGEPAGED_ASLEEP = [f"set {THP}/khugepaged/{name}_sleep_millisecs 4000000"
                     for name in ("scan", "alloc")]
WANTED_MODULES = ["nvme", "ext4", "xfs", "btrfs"]     # unless built in


def folio():
    """The program that lists workloads and programs."""
    return os.environ.get("FOLIO", ROOT / "target" / "release" / "folio-lab")


# The programs that a recording needs, and their Debian packages.
TOOLS = {"make": "make", "gcc": "gcc", "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu",
         "apt-get": "apt", "dpkg-deb": "dpkg", "mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs",
         "mkfs.btrfs": "btrfs-progs"}
MACHINES = {"amd64": ("qemu-system-x86_64", "qemu-system-x86"),
            "arm64": ("qemu-system-aarch64", "qemu-system-arm")}


def missing(variants, own=(), which=shutil.which):
    """What a recording of these variants needs and this machine lacks, one line each. `own` are
    programs of this project."""
    tools = dict(TOOLS, **dict(MACHINES[arch_of(variant)] for variant in variants))
    lines = [f"{tool} is missing: sudo apt-get install {package}"
             for tool, package in tools.items() if not which(tool)]
    return lines + [f"{program} is missing: make build, or set FOLIO to a folio-lab"
                    for program in own if not which(str(program))]


def require(variants, *own):
    """Ends the program if a tool is missing, before anything is downloaded or booted."""
    if lines := missing(variants, own):
        sys.exit("\n".join(lines))


def page_of(variant):
    """Base page size in bytes."""
    return {"arm64_16k": 16384, "arm64_64k": 65536}.get(variant, 4096)


def arch_of(variant):
    return variant.partition("_")[0]


def cpio_entry(name, data, mode):
    """One file of a `newc` archive."""
    raw = name.encode() + b"\0"
    fields = [1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + raw
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


def with_libraries(programs):
    """Files of the initramfs for programs of this machine, by path, and their folders."""
    files = {}
    for name, path in programs.items():
        found = [(name, pathlib.Path(path))]
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
        found += [(each.lstrip("/"), pathlib.Path(each))
                  for each in re.findall(r"(/\S+) \(0x", listed)]
        for inside, outside in found:
            parents = reversed(pathlib.PurePath(inside).parents[:-1])
            files.update({str(parent): None for parent in parents if str(parent) not in files})
            files[inside] = outside.read_bytes()
    return files


class Modules:
    """The modules of an unpacked kernel, by name, with their dependencies."""

    def __init__(self, tree):
        paths = [path for path in tree.rglob("*.ko*")]
        self.paths = {path.name.split(".ko")[0].replace("-", "_"): path for path in paths}

    def data(self, name):
        raw = self.paths[name].read_bytes()
        return lzma.decompress(raw) if self.paths[name].suffix == ".xz" else raw

    def closure(self, names):
        """`names` and their dependencies, dependencies first; names not packaged are left out."""
        ordered = {}

        def add(name):
            name = name.replace("-", "_")
            if name in ordered or name not in self.paths:
                return
            data = self.data(name)
            depends = re.search(rb"\0depends=([^\0]*)\0", b"\0" + data)
            for other in (depends[1].decode().split(",") if depends and depends[1] else []):
                add(other)
            ordered[name] = data

        # crc32c is found by its algorithm, not by a symbol.
        for name in ["crc32c_generic", "crc32c_cryptoapi", *names]:
            add(name)
        return ordered


class Complained(RuntimeError):
    """A kernel reported a defect of its own."""


class Guest:
    """One kernel with the probe and its disks."""

    memory_mb = 1536
    cpus = 1
    result_disk = 2          # index of the result disk in `disks`
    options = ""             # for the kernel's command line
    slow = 1                 # a kernel that checks itself gets so many times the time

    def __init__(self, work, tree, variant):
        self.work = pathlib.Path(work)
        self.variant = variant
        self.name = tree.name
        self.image = packages.image_of(tree)
        self.modules = Modules(tree).closure(WANTED_MODULES)
        # A kernel built here has no modules: everything it needs is built in.
        if Modules(tree).paths and "xfs" not in self.modules:
            raise packages.Missing(f"{tree.name} has no XFS")
        self.files = {}      # additional files: path to bytes, None for a folder
        self.programs = {}   # additional programs of this machine, with their libraries
        self.probe = None    # the program that `run` starts; default: the folder's probe

    def under_policy(self, policy, program, commands):
        """The commands with `folio run --policy` around each run of `program`; adds both programs
        to the machine.
        """
        self.probe = pathlib.Path(folio()).with_name("folio")
        self.programs = {"probe": self.probe, "workload": program}
        words = f"run --quiet --text off --policy {policy} -- /workload"
        return [re.sub(r"^run (\S+)", rf"run \1 {words}", command) for command in commands]

    def initramfs(self, probe, commands):
        parts = [cpio_entry("dev", b"", 0o040755), cpio_entry("proc", b"", 0o040755),
                 cpio_entry("sys", b"", 0o040755), cpio_entry("modules", b"", 0o040755)]
        for name, path in (("init", probe / "init"), ("probe", self.probe or probe / "probe")):
            parts.append(cpio_entry(name, path.read_bytes(), 0o100755))
        for name, data in self.files.items():
            mode = 0o040755 if data is None else 0o100644
            parts.append(cpio_entry(name, data or b"", mode))
        for name, data in with_libraries(self.programs).items():
            parts.append(cpio_entry(name, data or b"", 0o040755 if data is None else 0o100755))
        for name, data in self.modules.items():
            parts.append(cpio_entry(f"modules/{name}.ko", data, 0o100644))
        loads = [f"module /modules/{name}.ko" for name in self.modules]
        text = "\n".join(loads + commands) + "\n"
        parts.append(cpio_entry("list", text.encode(), 0o100644))
        parts.append(cpio_entry("TRAILER!!!", b"", 0))
        path = self.work / "initramfs.cpio"
        path.write_bytes(b"".join(parts))
        return path

    def kinds(self):
        """Disks by namespace: name, bytes, and what makes a filesystem on it. 1 ext4, 2 XFS,
        3 results, 4 ext4 without large folios, 5 the same but slow, 6 btrfs."""
        ext4 = ["mkfs.ext4", "-q", "-F", "-b", "4096"]
        encrypt = [*ext4, "-O", "encrypt"]
        slow = [*encrypt, "-E", "lazy_itable_init=0,lazy_journal_init=0"]
        xfs = ["mkfs.xfs", "-q", "-f", "-m", "rmapbt=0,bigtime=0", "-i", "nrext64=0"]
        return [("ext4", DISK_BYTES, ext4), ("xfs", DISK_BYTES, xfs),
                ("result", RESULT_BYTES, None), ("ext4-encrypt", DISK_BYTES, encrypt),
                ("ext4-slow", SLOW_DISK_BYTES, slow),
                ("btrfs", DISK_BYTES, ["mkfs.btrfs", "-q", "-f"])]

    def disks(self):
        paths = []
        for name, size, make in self.kinds():
            path = self.work / f"{name}.img"
            path.unlink(missing_ok=True)
            with path.open("wb") as image:
                image.truncate(size)
            if make:
                subprocess.run([*make, path], check=True, capture_output=True)
            paths.append(path)
        return paths

    def command(self, initramfs, disks):
        if arch_of(self.variant) == "amd64":
            # No cx16: with the emulated cmpxchg16b, 6.12 crashes in its slab allocator.
            machine = ["qemu-system-x86_64", "-machine", "q35", "-cpu", "qemu64,-cx16"]
            # On a busy machine, the guest's timer can seem not to work.
            console = "ttyS0 no_timer_check"
        else:
            is_old = "6.1_" in str(self.image)
            cpu = "cortex-a57" if is_old else "max,pauth-impdef=on"
            machine = ["qemu-system-aarch64", "-machine", "virt", "-cpu", cpu]
            console = "ttyAMA0"
        # CPUs take turns at any instruction; in threads of their own they hang.
        words = ["nice", "-n", "5", *machine, "-accel", "tcg,thread=single", "-smp", self.cpus,
                 "-m", self.memory_mb, "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio",
                 "-kernel", self.image, "-initrd", initramfs,
                 "-append", f"console={console} quiet panic=-1 mitigations=off nokaslr "
                 f"module.sig_enforce=1 {self.options}",
                 "-device", "nvme,id=disks,serial=recordings"]
        for nr, path in enumerate(disks, 1):
            words += ["-drive", f"if=none,id=d{nr},format=raw,cache=unsafe,file={path}"
                      f"{self.drive_options(path)}",
                      "-device", f"nvme-ns,drive=d{nr},nsid={nr}"]
        return [str(word) for word in words]

    def drive_options(self, path):
        return f",throttling.iops-total={SLOW_REQUESTS}" if "slow" in path.name else ""

    def console(self):
        """The file for the console's text."""
        return self.work / f"console_{self.name}.log"

    def boot(self, probe, commands, disks, seconds):
        """Boots with these disks, runs the list of commands and waits for the end."""
        initramfs = self.initramfs(probe, commands)
        with self.console().open("wb") as console:
            subprocess.run(self.command(initramfs, disks), stdout=console, stdin=subprocess.DEVNULL,
                           stderr=subprocess.STDOUT, timeout=seconds * self.slow, check=False)

    def result(self, disks):
        """The file with the results."""
        return disks[self.result_disk]

    def run(self, probe, commands, seconds):
        """Boots, waits for the end, and returns the results by name: (status, text).

        A kernel that complained is an error, whatever it recorded.
        """
        disks = self.disks()
        try:
            self.boot(probe, commands, disks, seconds)
        except subprocess.TimeoutExpired:
            self.check_console()          # a report may be the reason
            raise
        self.check_console()
        return results_of(self.result(disks))

    def check_console(self):
        if lines := complaints(self.console().read_text(errors="replace")):
            raise Complained(f"{self.console()}: {lines[0]}")


def complaints(console):
    """The lines in which a kernel reports a defect of its own."""
    return [line for line in console.splitlines()
            if re.search(r"\b(BUG|WARNING|INFO): |Oops|Kernel panic|general protection", line)]


def results_of(path):
    """Splits the result device: `=== NAME STATUS BYTES`, then the bytes."""
    found = {}
    with path.open("rb") as device:
        while (line := device.readline(4096)).startswith(b"=== "):
            words = line.split()
            if words[1] == b"end":
                return found
            found[words[1].decode()] = int(words[2]), device.read(int(words[3])).decode()
    raise RuntimeError(f"the machine did not finish ({len(found)} workloads): see its console log")
