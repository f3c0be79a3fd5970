"""Arguments of a prediction: one list of settings, converted to the model's form."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from largefolio._checks import file_path, items, size, switch, text, whole
from largefolio._policy import Policy, factory
from largefolio._rules import Rules

if TYPE_CHECKING:
    from typing_extensions import Unpack

Kernels: TypeAlias = "str | os.PathLike[str] | Rules | Iterable[str | os.PathLike[str] | Rules]"
Machines: TypeAlias = "str | os.PathLike[str] | Iterable[str | os.PathLike[str]]"
Seeds: TypeAlias = "int | Iterable[int]"

_U32_MAX = 2**32 - 1
_PATHS = (str, os.PathLike)
KERNELS = ("6.12", "6.18", "7.2")
"""Default kernels."""
MACHINES = ("altra",)
"""Machines where none are named."""
IDLE_SEEDS = (
    "seeds have no effect on unfragmented memory; add fragmentation, such as fragmentation=500"
)
"""The warning about seeds that make no difference."""


class Settings(TypedDict, total=False):
    """The settings that all cells share, as keyword arguments; see :func:`largefolio.predict`."""

    policy: str | os.PathLike[str] | Policy | type[Policy] | Iterable[Any] | None
    memory: int | str | Iterable[int | str]
    swap: int | str
    cgroup: int | str | Iterable[int | str] | Mapping[str, int | str] | None
    at: str | Iterable[str]
    fragmentation: int | str
    aged: int
    filesystem: str | None
    warm: bool
    annotate: str | Iterable[str] | Mapping[str, int | str] | None
    linked: int | str | Iterable[int | str] | Mapping[str, int | str | Iterable[int | str]] | None
    nested: bool
    reference_ns: int | None
    cpus: int | None
    numa: str | None
    max_work: int


def asked(
    kernels: Kernels, machines: Machines, seeds: Seeds, **settings: Unpack[Settings]
) -> dict[str, Any]:
    """Converts the settings that determine the cells for the native module, which looks up names.

    Raises:
        TypeError, ValueError: an argument of the wrong type or value, with its name.
    """
    known = Settings.__annotations__
    if unknown := [name for name in settings if name not in known]:
        raise TypeError(_no_such(unknown[0], ["kernels", "machines", "seeds", *known]))
    filesystem, reference_ns = settings.get("filesystem"), settings.get("reference_ns")
    cpus, numa = settings.get("cpus"), settings.get("numa")
    memory = items(settings.get("memory", "16G"), "memory", (Integral, str))
    return {
        "kernels": _kernels(kernels),
        "policies": _policies(settings.get("policy")),
        "machines": [file_path(one, "machines") for one in items(machines, "machines", _PATHS)],
        "seeds": [whole(seed, "seeds") for seed in _some(items(seeds, "seeds", (Integral,)), "seeds")],
        "memory": [size(one, "memory") for one in _some(memory, "memory")],
        "swap": size(settings.get("swap", 0), "swap"),
        "cgroup": _cgroups(settings.get("cgroup")),
        "at": [text(one, "at") for one in items(settings.get("at", ()), "at", (str,))],
        "fragmentation": _fragmentation(settings.get("fragmentation", 0)),
        "aged": whole(settings.get("aged", 0), "aged", _U32_MAX),
        "filesystem": None if filesystem is None else text(filesystem, "filesystem"),
        "warm": switch(settings.get("warm", False), "warm"),
        "annotate": _annotations(settings.get("annotate")),
        "linked": _linked(settings.get("linked")),
        "nested": switch(settings.get("nested", False), "nested"),
        "reference_ns": None if reference_ns is None else whole(reference_ns, "reference_ns"),
        "cpus": None if cpus is None else whole(cpus, "cpus", _U32_MAX),
        "numa": None if numa is None else text(numa, "numa"),
        "max_work": whole(settings.get("max_work", 1), "max_work"),
    }


def _some(found: list[Any], what: str) -> list[Any]:
    """Returns the value unless it is empty."""
    if not found:
        raise ValueError(f"{what}: none is given; name at least one, or omit the argument")
    return found


def _no_such(name: str, known: list[str]) -> str:
    """Returns the message for an unknown argument: a similar name, or all names."""
    if close := difflib.get_close_matches(name, known, n=1, cutoff=0.7):
        return f"{name}: no such argument; did you mean {close[0]}?"
    return f"{name}: no such argument; there are {', '.join(known)}"


def _fragmentation(value: Any) -> str:
    """``500`` or ``"64K:80%"``."""
    if isinstance(value, str):
        return text(value, "fragmentation")
    return str(whole(value, "fragmentation", _U32_MAX))


def _kernels(value: Any) -> list[Any]:
    found = items(value, "kernels", (str, os.PathLike, Rules, Real))
    numbers = [kernel for kernel in found if isinstance(kernel, Real)]
    if numbers:
        raise TypeError(f"kernels: expected a string such as '6.12', not the number {numbers[0]}")
    return [
        kernel._kernel if isinstance(kernel, Rules) else file_path(kernel, "kernels")
        for kernel in found
    ]


def _policies(value: Any) -> list[Any]:
    """Converts names and object files to text, and Python policies to their factories."""
    if value is None:
        return []
    kinds = (str, os.PathLike, Policy, type)
    found = items(value, "policy", kinds)
    return [
        factory(one) if isinstance(one, (Policy, type)) else file_path(one, "policy")
        for one in found
    ]


def _annotations(value: Any) -> list[str]:
    """``{"libc.so*": "64K"}``, ``"libc.so*=64K"`` or several of these."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        return _sized(value, "annotate")
    return [text(one, "annotate") for one in items(value, "annotate", (str,))]


def _cgroups(value: Any) -> list[str]:
    """``"24M"``, ``{"cc1": "24M"}``, ``"cc1=24M"`` or several of these."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        return _sized(value, "cgroup")
    return [size(one, "cgroup") for one in items(value, "cgroup", (Integral, str))]


def _sized(value: Mapping[str, int | str], what: str) -> list[str]:
    return [f"{text(pattern, what)}={size(bytes_, what)}" for pattern, bytes_ in value.items()]


def _linked(value: Any) -> list[str]:
    """``"2M"``, ``["4K", "2M"]`` (a cell each), ``{"libc.so*": "2M"}``, ``"libc.so*=2M"``."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [
            f"{text(pattern, 'linked')}={_sizes(sizes)}" for pattern, sizes in value.items()
        ]
    found = items(value, "linked", (Integral, str))
    plain = [one for one in found if not (isinstance(one, str) and "=" in one)]
    # Sizes without a name are the choices of one option. Put it at the first one's position: if two
    # match a file, the last one counts.
    given: list[str] = []
    for one in found:
        if isinstance(one, str) and "=" in one:
            given.append(one)
        elif plain:
            given.append(_sizes(plain))
            plain = []
    return given


def _sizes(value: Any) -> str:
    return ",".join(size(one, "linked") for one in items(value, "linked", (Integral, str)))
