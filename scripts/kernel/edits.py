"""The changes of `make kernel` to a distribution's configuration, and the progress of a build."""

import re

LOCALVERSION = "-largefolio"
KEY = '"certs/signing_key.pem"'         # the build makes it, if it does not exist
DEBUG_INFO = ["DEBUG_INFO_BTF", "DEBUG_INFO_BTF_MODULES", "DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT",
              "DEBUG_INFO_DWARF4", "DEBUG_INFO_DWARF5"]
# Lines such as `  CC [M]  fs/xfs/xfs_file.o`, which make prints for a file that it makes.
MADE = re.compile(r" {2}([A-Z][A-Z0-9_]*)(?: \[M\])? +(\S+)$")
COMPILED = {"CC", "AS"}


class Unfit(Exception):
    """A configuration that cannot have largefolio, with the remedy."""


def value(config, option):
    """An option's value as the file has it; "n" if it is off or unknown."""
    found = re.findall(rf"^CONFIG_{option}=(.*)$", config, re.M)
    return found[-1] if found else "n"


def replaced(config, values):
    """A configuration with these values; "n" turns an option off."""
    names = "|".join(values)
    kept = re.sub(rf"^(?:CONFIG_(?:{names})=.*|# CONFIG_(?:{names}) is not set)\n", "", config,
                  flags=re.M)
    lines = [f"# CONFIG_{name} is not set" if given == "n" else f"CONFIG_{name}={given}"
             for name, given in values.items()]
    return kept.rstrip("\n") + "\n" + "\n".join(lines) + "\n"


def options(names):
    """The options of these features of kernel/."""
    return ["LARGEFOLIO", *(f"LARGEFOLIO_{name.upper()}" for name in sorted(names))]


def private(config, names):
    """A distribution's configuration for a build of our own, with these features.

    Debug information would double the time and the space, and no feature reads it. The
    distribution's keys are not ours: a key made by this build signs the modules.
    """
    values = {option: "y" for option in options(names)}
    values |= {"LOCALVERSION": f'"{LOCALVERSION}"', "LOCALVERSION_AUTO": "n"}
    values |= {"SYSTEM_TRUSTED_KEYS": '""', "SYSTEM_REVOCATION_KEYS": '""'}
    values |= {option: "n" for option in DEBUG_INFO} | {"DEBUG_INFO_NONE": "y"}
    if value(config, "MODULE_SIG") == "y":
        values |= {"MODULE_SIG_ALL": "y", "MODULE_SIG_KEY": KEY}
    return replaced(config, values)


def accepted(config, names):
    """The features that a settled configuration has, and those that it cannot have."""
    if value(config, "LARGEFOLIO") != "y":
        raise Unfit("this configuration cannot have LARGEFOLIO: it needs TRANSPARENT_HUGEPAGE=y "
                    "and SYSFS=y")
    has = [name for name in sorted(names) if value(config, f"LARGEFOLIO_{name.upper()}") == "y"]
    return has, sorted(set(names) - set(has))


def nr_modules(config):
    return len(re.findall(r"^CONFIG_\w+=m$", config, re.M))


class Progress:
    """The progress of a build, by the lines that make prints."""

    def __init__(self):
        self.nr_compiled, self.last = 0, ""

    def read(self, line):
        if match := MADE.match(line):
            self.nr_compiled += match[1] in COMPILED
            self.last = match[2]

    def text(self, seconds):
        where = self.last.rpartition("/")[0].rpartition("/build/")[2]     # tools have whole paths
        return f"{clock(seconds)}: {self.nr_compiled:,} files compiled" + \
            (f", now in {where}" if where else "")


def clock(seconds):
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


def errors(log, nr_max=3):
    """The lines of a failed build that say why."""
    lines = [line for line in log.splitlines() if line.strip()]
    said = [line for line in lines
            if re.search(r"\berror\b:|\*\*\*|No space left|undefined reference", line)]
    own = [line for line in said if not re.match(r"make(\[\d+\])?: \*\*\* ", line)]
    return (own or said or lines[-nr_max:])[:nr_max]
