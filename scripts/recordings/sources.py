"""The distribution's source packages, fetched and unpacked without changes to this machine's apt."""

import pathlib
import subprocess

from . import packages

SUITE = "bookworm"


def unpacked(package, folder):
    """The tree of a source package, with the distribution's patches, in `folder`."""
    root = pathlib.Path(folder) / "apt-source"
    (root / "lists/partial").mkdir(parents=True, exist_ok=True)
    line = f"deb-src [signed-by={packages.KEYRING}] {packages.mirror()} {SUITE} main\n"
    (root / "sources.list").write_text(line)
    options = {
        "Dir::Etc::sourcelist": root / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": root / "lists",
        "Acquire::Languages": "none",
        "APT::Sandbox::User": "root",
    }
    flags = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    for words in (["update"], ["source", "--download-only", package]):
        done = subprocess.run(["apt-get", *flags, *words], cwd=root, capture_output=True, text=True)
        if done.returncode:
            raise packages.Missing(f"apt-get {' '.join(words)}: {done.stderr.strip()[-300:]}")
    tree = pathlib.Path(folder) / package
    described = next(root.glob(f"{package}_*.dsc"))
    subprocess.run(["dpkg-source", "--extract", described, tree], stdout=subprocess.DEVNULL, check=True)
    return tree
