"""Kernels that no distribution packages: configured and built from a packaged source.

`built/kernels.toml` lists them. A kernel is `allnoconfig` plus the options of `built/*.config` and
its own, so it builds in minutes and has no modules. One with `attach` also has the features of
kernel/ that know its version. One with `kernel` is another one's build with `settings` of those
features, which are written at boot.
"""

import hashlib
import lzma
import os
import pathlib
import shutil
import subprocess
import tarfile
import tomllib

import packages

BUILT = pathlib.Path(__file__).resolve().parent / "built"
FEATURES = BUILT.parent.parent.parent / "kernel"
SETTINGS = "/sys/kernel/mm/largefolio"
# `make`'s architecture name, image and compiler.
ARCHES = {
    "amd64": ("x86_64", "arch/x86/boot/bzImage", ""),
    "arm64": ("arm64", "arch/arm64/boot/Image", "aarch64-linux-gnu-"),
}
TOOLS = ["bc", "bison", "flex"]          # their packages have the same names
FILESYSTEMS = {"BTRFS_FS": "btrfs", "EXT4_FS": "ext4", "XFS_FS": "xfs"}
PAGE_OPTIONS = {"amd64": [], "arm64": ["ARM64_4K_PAGES"], "arm64_64k": ["ARM64_64K_PAGES"]}


def with_checks(kernels):
    """Adds what `checks` stands for: NAME-CHECK for each kernel NAME with settings, on a build that
    checks itself.
    """
    more = {}
    for check, base in kernels.items():
        suffix = check.rpartition("-")[2]
        for name, entry in kernels.items():
            variants = [each for each in entry["variants"] if each in base["variants"]]
            if variants and entry.get("kernel") in base.get("checks", []):
                more[f"{name}-{suffix}"] = entry | {"kernel": check, "variants": variants}
    return kernels | more


KERNELS = with_checks(tomllib.loads((BUILT / "kernels.toml").read_text()))


def fragment(name, variant):
    """The initial configuration of a kernel."""
    arch = "amd64" if variant == "amd64" else "arm64"
    options = KERNELS[name]["options"] + PAGE_OPTIONS[variant]
    without = {f"CONFIG_{option}=y\n" for option in KERNELS[name].get("without", [])}
    parts = KERNELS[name].get("config", ["common", arch])
    lines = [line for part in parts
             for line in (BUILT / f"{part}.config").read_text().splitlines(keepends=True)]
    lines += [f"CONFIG_{option}=y\n" for option in options]
    return "".join(line for line in lines if line not in without)


def lacking(wanted, config):
    """Requested options that the kernel lacks (or has, if `=n`)."""
    has = set(config.splitlines())
    lines = [line for line in wanted.splitlines() if line.startswith("CONFIG_")]
    return [line for line in lines
            if (f"{line[:-2]}=y" in has if line.endswith("=n") else line not in has)]


def source(work, version):
    """A version's unpacked source."""
    tree = work / "sources" / f"linux-source-{version}"
    if (tree / "complete").exists():
        return tree
    debs = work / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    deb = packages.cached(packages.Apt(work, "amd64"), f"linux-source-{version}", debs)
    tree.parent.mkdir(parents=True, exist_ok=True)
    unpacked = tree.parent / f"deb-{version}"
    subprocess.run(["dpkg", "-x", deb, unpacked], check=True)
    archive = next((unpacked / "usr/src").glob("linux-source-*.tar.xz"))
    with lzma.open(archive) as plain, tarfile.open(fileobj=plain, mode="r|") as files:
        files.extractall(tree.parent, filter="tar")
    (tree / "complete").touch()
    return tree


def attached(work, version):
    """A version's source with the features of kernel/."""
    copy = work / "sources" / f"attached-{version}"
    done = subprocess.run([FEATURES / "attach.py", source(work, version), copy, version],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        raise packages.Missing(done.stderr.strip())
    return copy


def features_digest(version):
    """A hash of what attach.py adds to a version."""
    folders = {path.parent for path in FEATURES.glob(f"*/{version}.toml")} | {FEATURES / "settings"}
    paths = [path for folder in folders for path in folder.iterdir()
             if path.name != "ABI" and path.suffix != ".toml"]
    digest = hashlib.sha256()
    for path in sorted([FEATURES / "attach.py", *paths, *FEATURES.glob(f"*/{version}.toml")]):
        digest.update(f"{path.relative_to(FEATURES)} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def command(tree, out, arch):
    """The words that begin each call of make, whatever it makes: others would build all again."""
    name, _, compiler = ARCHES[arch]
    return ["make", "-s", "-C", tree, f"O={out}", f"ARCH={name}", f"CROSS_COMPILE={compiler}"]


def make(tree, out, arch, *words):
    done = subprocess.run([*command(tree, out, arch), *words], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        first = [line for line in lines if "error:" in line][:3] or lines[-6:]
        raise packages.Missing(f"{out.name}: make {' '.join(words)}: " + "\n".join(first))


def build(work, name, variant):
    """Builds one kernel unless it exists with these inputs; returns the folder with its image
    below `boot`.
    """
    name = KERNELS[name].get("kernel", name)
    tree = work / "kernels" / f"{name}_{variant}"
    wanted = fragment(name, variant)
    is_attached = KERNELS[name].get("attach", False)
    version = KERNELS[name]["source"]
    inputs = wanted + (f"# kernel/: {features_digest(version)}\n" if is_attached else "")
    complete = tree / "complete"
    if complete.exists() and complete.read_text() == inputs:
        return tree
    if lost := [tool for tool in TOOLS if not shutil.which(tool)]:
        raise packages.Missing(f"to build a kernel: sudo apt-get install {' '.join(lost)}")
    arch = "amd64" if variant == "amd64" else "arm64"
    out = work / "build" / f"{name}_{variant}"
    out.mkdir(parents=True, exist_ok=True)
    asked = out / "asked.config"
    asked.write_text(wanted)
    sources = (attached if is_attached else source)(work, version)
    make(sources, out, arch, f"KCONFIG_ALLCONFIG={asked}", "allnoconfig")
    if lost := lacking(wanted, (out / ".config").read_text()):
        raise packages.Missing(f"{name} {variant} cannot have {', '.join(lost)}")
    _, image, _ = ARCHES[arch]
    print(f"{name} {variant}: building", flush=True)
    make(sources, out, arch, f"-j{os.cpu_count()}", pathlib.PurePath(image).name)
    (tree / "boot").mkdir(parents=True, exist_ok=True)
    (tree / "boot" / "vmlinuz").write_bytes((out / image).read_bytes())
    complete.write_text(inputs)
    return tree


def is_built(name):
    return name in KERNELS


def variants(name):
    return KERNELS[name]["variants"]


def tree_of(work, name, variant):
    """The folder of a kernel that is packaged or built here."""
    return build(work, name, variant) if is_built(name) else packages.unpack(work, name, variant)


def settings(name):
    """The init's commands for a kernel's settings; the guest ends if it lacks one."""
    entry = KERNELS.get(name, {})
    pairs = [setting.split("=") for setting in entry.get("settings", [])]
    return [f"require {SETTINGS}/{key} {value}" for key, value in pairs]


def boot_options(name):
    """A kernel's additions to its command line."""
    entry = KERNELS.get(name, {})
    return KERNELS.get(entry.get("kernel"), entry).get("boot", "")


def equip(machine, name):
    """Gives a machine the options and the time that a kernel needs."""
    entry = KERNELS.get(name, {})
    machine.options = boot_options(name)
    machine.slow = KERNELS.get(entry.get("kernel"), entry).get("slow", 1)


def lacks(name, filesystem):
    """Whether a kernel was built without a filesystem (`ext4-encrypt` is an ext4)."""
    entry = KERNELS.get(name, {})
    without = KERNELS.get(entry.get("kernel"), entry).get("without", [])
    return filesystem.partition("-")[0] in {FILESYSTEMS.get(option) for option in without}


def policy(name):
    """The policy that decides while a workload runs: a name, or None."""
    return KERNELS.get(name, {}).get("policy")


def rules_name(name, variant):
    """What a recording calls its kernel, which is the name of the model's file
    (`kernels/recorded/`). One that checks itself (`NAME-CHECK`) has the rules of NAME.
    """
    is_other = "kernel" in KERNELS.get(name, {})
    return name.partition("-")[0] if is_other else archive_name(name, variant)


def own_rules(name, variant):
    """What the header of a recording says about the rules of a kernel that is built here."""
    rules = {"variant": rules_name(name, variant)}
    return rules | ({"edits": f"policy={policy(name)}"} if policy(name) else {})


def own_words(name, variant):
    """The same as words for the probe."""
    rules = own_rules(name, variant) if is_built(name) else {}
    return "".join(f" {key}={value}" for key, value in rules.items())


def archive_name(name, variant):
    return f"{'built' if is_built(name) else 'deb'}_{name}_{variant}"
