"""Separate Debian roots: of this machine's architecture, or of arm64 under QEMU user emulation.

Programs in a root run in separate mount and process namespaces and end with them, as do all mounts.
For arm64, each run has its own binfmt_misc (and a user namespace, Linux 6.7 or newer), so nothing
is registered on this machine. Needs root, mmdebstrap, and for arm64 the static QEMU of
`arm64.fetched_qemu`.
"""

import os
import pathlib
import platform
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "recordings"))

import arm64  # noqa: E402
import packages  # noqa: E402

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
FOLDER = ROOT / "target" / "roots"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Mounts that programs of this machine may need, as in a container.
OWN = """set -e
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --rbind /sys "$root/sys"
if [ -n "$local" ]; then
    mount --bind "$local" "$root/usr/local"
    mount -o remount,bind,ro "$root/usr/local"
fi
exec "$@"
"""
# ELF, 64 bits, little endian, any ABI; an executable or shared object; EM_AARCH64.
MAGIC = r"\x7fELF\x02\x01\x01" + r"\x00" * 9 + r"\x02\x00\xb7\x00"
MASK = r"\xff" * 7 + r"\x00" + r"\xff" * 8 + r"\xfe" + r"\xff" * 3
# F: the kernel opens QEMU now, so the root does not need it.
REGISTER = f"""set -e
mount -t proc proc /proc
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf %s ':largefolio:M::{MAGIC}:{MASK}:'"$LARGEFOLIO_QEMU"':F' >/proc/sys/fs/binfmt_misc/register
exec "$@"
"""
# A process without a user in its namespace loses its capabilities at exec, so exec twice.
WAIT = 'echo ready >&{ready}; read _ <&{go}; exec {go}<&- {ready}>&-; exec sh -c "$0" setup "$@"'


class Unable(Exception):
    """Why a root's programs cannot run here, with the remedy."""


class Root:
    """A Debian suite for one architecture, kept for later runs."""

    def __init__(self, suite, arch, label="fresh"):
        self.suite, self.arch = suite, arch
        self.is_own = MACHINES[arch] == platform.machine()
        self.path = FOLDER / f"{suite}-{arch}-{label}"

    def made(self, include):
        """Creates the root with these packages, again only if they changed."""
        if os.geteuid() != 0:
            raise Unable("only root can make a Debian root. Run: sudo scripts/fresh.py")
        if not shutil.which("mmdebstrap"):
            raise Unable("mmdebstrap is missing. Run: apt-get install mmdebstrap")
        if not self.is_own and self.arch != "arm64":
            raise Unable(f"{self.arch} programs run only on {MACHINES[self.arch]}")
        wanted = "\n".join(include)
        made_of = self.path.with_suffix(".list")
        if made_of.exists() and made_of.read_text() == wanted:
            return self
        made_of.unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        words = ["mmdebstrap", "--quiet", "--mode=root", "--skip=check/qemu,chroot/mount/sys",
                 f"--architectures={self.arch}", "--variant=essential",
                 f"--include={','.join(include)}", self.suite, self.path, packages.mirror()]
        make = subprocess.run if self.is_own else emulated
        done = make(words, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            remedy = "" if self.is_own else ". It needs Linux 6.7 or newer"
            raise Unable(f"mmdebstrap: {done.stderr.strip()[-500:]}{remedy}")
        made_of.write_text(wanted)
        return self

    def run(self, words, has_network=True, local=None, **how):
        """Runs a program in it; without a network, its loopback device is down.

        The directory `local` of this machine is its /usr/local, read-only.
        """
        words = ["chroot", self.path, *words]
        if not self.is_own:
            return emulated(words, **how)
        environment = {"HOME": "/root", "LANG": "C.UTF-8", "PATH": PATH, "root": str(self.path),
                       "local": str(local or "")}
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child",
                   *([] if has_network else ["--net"]), "--propagation", "private",
                   "sh", "-c", OWN, "setup", *map(str, words)]
        return subprocess.run(command, env=environment, **how)


def emulated(words, **how):
    """Runs a program of this machine that starts arm64 programs, with all users of this machine
    mapped.
    """
    go, start = os.pipe()
    said, ready = os.pipe()
    inside = WAIT.format(ready=ready, go=go)
    command = ["unshare", "--user", "--mount", "--pid", "--fork", "--kill-child",
               "sh", "-c", inside, REGISTER, *map(str, words)]
    environment = {**os.environ, "LARGEFOLIO_QEMU": arm64.fetched_qemu()}
    try:
        with subprocess.Popen(command, pass_fds=(go, ready), env=environment, **how) as child:
            os.close(ready)
            ready = None
            try:
                if os.read(said, 1):
                    for name in ("uid_map", "gid_map"):
                        pathlib.Path(f"/proc/{child.pid}/{name}").write_text("0 0 4294967295\n")
                    os.write(start, b"\n")
            except OSError:
                child.kill()
                raise
            out, err = child.communicate()
    finally:
        for number in (go, start, said, ready):
            if number is not None:
                os.close(number)
    return subprocess.CompletedProcess(words, child.returncode, out, err)
