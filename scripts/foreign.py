"""A Debian root of arm64 whose programs run on this machine, under QEMU user emulation.

The kernel starts them by binfmt_misc. Each run has user, mount and process namespaces of its own,
and in them a binfmt_misc of its own (Linux 6.7 or newer): nothing is registered on this machine, and
what runs ends with the namespaces. Needs root, mmdebstrap, and the static QEMU of
`arm64.fetched_qemu`.
"""

import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "recordings"))

import arm64  # noqa: E402
import packages  # noqa: E402

SUITE = "trixie"
# ELF, 64 bits, little endian, any ABI; an executable or shared object; EM_AARCH64.
MAGIC = r"\x7fELF\x02\x01\x01" + r"\x00" * 9 + r"\x02\x00\xb7\x00"
MASK = r"\xff" * 7 + r"\x00" + r"\xff" * 8 + r"\xfe" + r"\xff" * 3
# F: the kernel opens QEMU now, so that it need not be in the root.
REGISTER = f"""set -e
mount -t proc proc /proc
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
printf %s ':largefolio:M::{MAGIC}:{MASK}:'"$LARGEFOLIO_QEMU"':F' >/proc/sys/fs/binfmt_misc/register
exec "$@"
"""
# A process without a user in its namespace loses what it may do when it executes: so twice.
WAIT = 'echo ready >&{ready}; read _ <&{go}; exec {go}<&- {ready}>&-; exec sh -c "$0" setup "$@"'


class Unable(Exception):
    """Why programs of arm64 cannot run here, with the remedy."""


def run(words, **how):
    """Runs a program of this machine or of a root, with all users of this machine mapped."""
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
            if os.read(said, 1):
                for name in ("uid_map", "gid_map"):
                    pathlib.Path(f"/proc/{child.pid}/{name}").write_text("0 0 4294967295\n")
                os.write(start, b"\n")
            out, err = child.communicate()
    finally:
        for number in (go, start, said, ready):
            if number is not None:
                os.close(number)
    return subprocess.CompletedProcess(words, child.returncode, out, err)


def made(folder, include):
    """The root with these packages, made anew only if they or the suite changed."""
    if os.geteuid() != 0:
        raise Unable("a Debian root is made by root. Run: sudo scripts/package.py check")
    if not shutil.which("mmdebstrap"):
        raise Unable("mmdebstrap is missing. Run: apt-get install mmdebstrap")
    wanted = "\n".join([SUITE, *include])
    made_of = folder.with_suffix(".list")
    if made_of.exists() and made_of.read_text() == wanted:
        return folder
    made_of.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    done = run(["mmdebstrap", "--quiet", "--mode=root", "--skip=check/qemu,chroot/mount/sys",
                "--architectures=arm64", "--variant=essential", f"--include={','.join(include)}",
                SUITE, folder, packages.mirror()], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise Unable(f"mmdebstrap: {done.stderr.strip()[-500:]}. It needs Linux 6.7 or newer")
    made_of.write_text(wanted)
    return folder

