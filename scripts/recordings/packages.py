"""Packaged kernels: finds, fetches and unpacks them.

Uses the mirror of this machine's apt sources, with private lists and a private cache; the machine's
apt is unchanged.
"""

import pathlib
import re
import subprocess

SUITES = ["bookworm", "bookworm-updates", "trixie", "trixie-backports"]
UNSTABLE = "sid"                              # only for exact releases
FLAVOURS = {"amd64": "cloud-amd64", "arm64": "cloud-arm64", "arm64_16k": "arm64-16k"}
# For scripts/recordings/zswap.py: the cloud kernels have no zswap.
FULL = {"amd64_full": "amd64"}
VERSIONS = ["6.1", "6.12", "6.16", "6.17", "6.18", "6.19", "7.0", "7.1", "7.2", "7.3"]
NOT_PACKAGED = {("6.1", "arm64_16k")}         # Debian 12 has no kernel with 16K pages
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Missing(Exception):
    """A kernel or a part of it that no suite of the mirror has."""


def mirror():
    """Address of the distribution's mirror in this machine's apt configuration."""
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(COMPONENT)"],
        check=True, capture_output=True, text=True).stdout
    for line in targets.splitlines():
        address, suite, component = line.split()
        if component == "main" and suite in ("bookworm", "trixie", "forky", "sid"):
            return address
    raise Missing("no Debian suite among this machine's apt sources")


class Apt:
    """One private apt directory for one architecture, with `more` suites than SUITES."""

    def __init__(self, root, arch, *more):
        self.root = pathlib.Path(root) / "-".join(["apt", arch, *more])
        self.arch = arch
        for folder in ("lists/partial", "cache/archives/partial", "state"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        (self.root / "state/status").touch()
        address = mirror()
        lines = [f"deb [signed-by={KEYRING}] {address} {suite} main\n"
                 for suite in [*SUITES, *more]]
        (self.root / "sources.list").write_text("".join(lines))
        if not any((self.root / "lists").glob("*Packages*")):
            self.run("apt-get", "update")

    def run(self, program, *words, cwd=None):
        options = {
            "Dir::Etc::sourcelist": self.root / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::State::lists": self.root / "lists",
            "Dir::State::status": self.root / "state/status",
            "Dir::Cache": self.root / "cache",
            "APT::Architecture": self.arch,
            "APT::Architectures": self.arch,
            "Acquire::Languages": "none",
            "APT::Sandbox::User": "root",
        }
        flags = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        done = subprocess.run([program, *flags, *words], cwd=cwd, capture_output=True, text=True)
        if done.returncode:
            raise Missing(f"{program} {' '.join(words)}: {done.stderr.strip()[-300:]}")
        return done.stdout

    def names(self):
        return self.run("apt-cache", "pkgnames", "linux-").split()

    def version(self, package):
        """The version of a package in the index."""
        shown = self.run("apt-cache", "show", package)
        return re.search(r"^Version: (\S+)$", shown, re.M)[1]

    def download_unlisted(self, package, version, folder):
        """A package built from `linux` that has left the index but is still on the mirror."""
        deb = folder / f"{package}_{version}_{self.arch}.deb"
        if not deb.exists():
            address = f"{mirror()}pool/main/l/linux/{deb.name}"
            self.run("/usr/lib/apt/apt-helper", "download-file", address, deb)
        return deb

    def download(self, package, folder):
        self.run("apt-get", "download", package, cwd=folder)
        return next(folder.glob(f"{package}_*.deb"))


def is_release(version):
    """Whether it is an exact release, like 7.2.13, and not a version, like 7.2."""
    return version.count(".") > 1


def apt_for(root, version, variant):
    """The apt that finds a kernel. Only exact releases are looked for in UNSTABLE: a version names
    the newest release of a stable suite.
    """
    arch = variant.partition("_")[0]
    return Apt(root, arch, UNSTABLE) if is_release(version) else Apt(root, arch)


def newest(names, prefix, version, flavour):
    """The package with this prefix and the highest release of this version, or exactly this
    release; None if there is none.
    """
    number = re.escape(version) + ("" if is_release(version) else r"(?:\.\d+)+") + r"(?:-\d+)?"
    shape = re.compile(rf"linux-{prefix}-({number})(?:\+\w+)?-{flavour}$")
    found = [(numbers(match[1]), name) for name in names if (match := shape.match(name))]
    return max(found)[1] if found else None


def numbers(text):
    return [int(digits) for digits in re.findall(r"\d+", text)]


def fetch(apt, version, flavour, debs):
    """The packages of one kernel: its image, and its modules if packaged separately.

    The index no longer lists the modules of 6.19, 7.0 and 7.1, so only the kernel itself verifies
    those packages: the guest loads only modules signed by its build.
    """
    names = apt.names()
    binary = newest(names, "binary", version, flavour)
    if not binary:
        image = newest(names, "image", version, flavour)
        if not image:
            raise Missing(f"{version} {flavour} is not packaged")
        unsigned = image + "-unsigned"
        return [cached(apt, unsigned if unsigned in names else image, debs)]
    modules = binary.replace("-binary-", "-modules-")
    if modules in names:
        return [cached(apt, binary, debs), cached(apt, modules, debs)]
    unlisted = apt.download_unlisted(modules, apt.version(binary), debs)
    return [cached(apt, binary, debs), unlisted]


def fetch_config(apt, version, flavour, debs):
    """The package with one kernel's configuration: its image's, or that of its base files, which
    leave the index with the modules.
    """
    names = apt.names()
    binary = newest(names, "binary", version, flavour)
    if not binary:
        return fetch(apt, version, flavour, debs)[0]
    base = binary.replace("-binary-", "-base-")
    if base in names:
        return cached(apt, base, debs)
    return apt.download_unlisted(base, apt.version(binary), debs)


def cached(apt, package, debs):
    return next(debs.glob(f"{package}_*.deb"), None) or apt.download(package, debs)


def unpack(work, version, variant):
    """Fetches one kernel; returns the folder with its image and (if packaged) modules."""
    flavour = (FLAVOURS | FULL)[variant]
    tree = work / "kernels" / f"{version}_{variant}"
    if (tree / "complete").exists():
        return tree
    apt = apt_for(work, version, variant)
    debs = work / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    tree.mkdir(parents=True, exist_ok=True)
    for deb in fetch(apt, version, flavour, debs):
        subprocess.run(["dpkg", "-x", deb, tree], check=True)
    (tree / "complete").touch()
    return tree


def image_of(tree):
    """The kernel image of an unpacked tree."""
    found = [*tree.glob("boot/vmlinu*"), *tree.glob("usr/lib/modules/*/vmlinuz")]
    if not found:
        raise Missing(f"no kernel image below {tree}")
    return found[0]
