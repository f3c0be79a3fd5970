"""Rules: a kernel's behaviour as a value."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from numbers import Integral
from typing import Any

from largefolio import _native
from largefolio._checks import file_path, text
from largefolio.errors import KernelError

_SEPARATOR = "."


class Rules(Mapping[str, Any]):
    """A kernel's rules: a preset, a kernel file, or either with edits.

        >>> rules = Rules("7.2+page=64K")
        >>> rules["fault.exec_miss"]
        'balanced'
        >>> mine = rules.set({"fault.exec_miss": "counted"}, name="7.2, misses counted")
        >>> table = largefolio.predict(trace, kernels=[rules, mine])

    A mapping from dotted names, as in the kernel files (``kernels/*.toml``), to values: words,
    integers (bytes, pages or milliseconds: ``_bytes``, ``_pages``, ``_ms`` in the name), booleans,
    and words with a number (``{"block": {"bytes": 65536}}``). It is immutable: :meth:`set` and
    :meth:`edit` return new rules, checked as on the command line. Rules can be compared (name and
    values), hashed, pickled and sent to other hosts.

    Raises:
        KernelError: an unknown name, with similar names; or impossible rules.
    """

    __slots__ = ("_flat", "_kernel")

    def __init__(self, kernel: str | os.PathLike[str]) -> None:
        self._init(_native.Kernel.parse(file_path(kernel, "kernel")))

    def _init(self, kernel: _native.Kernel) -> None:
        self._kernel = kernel
        self._flat: dict[str, Any] | None = None

    @classmethod
    def _of(cls, kernel: _native.Kernel) -> Rules:
        rules = cls.__new__(cls)
        rules._init(kernel)
        return rules

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Rules:
        """Loads a kernel file (TOML); it may be ``based-on`` a preset or another file."""
        return cls._of(_native.Kernel.parse(file_path(path, "path")))

    @classmethod
    def from_toml(cls, name: str, toml: str) -> Rules:
        """Parses the kernel file ``toml`` and names it ``name``."""
        return cls._of(_native.Kernel.from_toml(text(name, "name"), text(toml, "toml")))

    @classmethod
    def from_dict(cls, name: str, rules: Mapping[str, Any]) -> Rules:
        """The same of a kernel file as a dictionary: ``{"based-on": "7.2", "description": "..",
        "fault": {"exec_miss": "counted"}}``.
        """
        if not isinstance(rules, Mapping):
            raise TypeError(f"rules: expected a dictionary, not {type(rules).__name__}")
        try:
            as_json = json.dumps(dict(rules), allow_nan=False, default=_plain)
        except ValueError as error:
            raise KernelError(f"kernel file {name}: {error}") from None
        return cls._of(_native.Kernel.from_json(text(name, "name"), as_json))

    @property
    def name(self) -> str:
        """Name in results."""
        return self._kernel.name

    @property
    def description(self) -> str:
        """One line for the reader."""
        return self._kernel.description

    def edit(self, *edits: str, name: str | None = None) -> Rules:
        """New rules with command-line edits: ``rules.edit("exec-block=64K")``.

        :func:`largefolio.edits` lists them. Unless a name is given, it contains the edits.
        """
        kernel = self._kernel
        for edit in edits:
            kernel = kernel.edited(text(edit, "edit").removeprefix("+"))
        return self._of(kernel if name is None else kernel.renamed(text(name, "name")))

    def set(self, changes: Mapping[str, Any], *, name: str | None = None) -> Rules:
        """New rules with other values: ``rules.set({"fault.exec_miss": "counted"})``.

        ``None`` removes a key that a kernel file may omit (``"sizes.machine"``). Unless a name is
        given, it contains the changes.
        """
        nested = self.to_dict()
        for key, value in changes.items():
            if not isinstance(key, str):
                raise TypeError(f"changes: expected names of rules, not {type(key).__name__}")
            if key == "based-on":
                raise KernelError("based-on is not a rule: take that kernel's Rules and set the differences")
            parent, dot, name_there = key.partition(_SEPARATOR)
            table = nested.setdefault(parent, {}) if dot else nested
            if not isinstance(table, dict):
                raise KernelError(f"{parent} is not a table of rules, so there is no {key!r}")
            _put(table, name_there or parent, value)
        if name is None:
            said = ", ".join(f"{key}={value}" for key, value in changes.items())
            name = f"{self.name} with {said}" if said else self.name
        return self.from_dict(name, nested)

    def to_dict(self) -> dict[str, Any]:
        """The kernel file as a dictionary; :meth:`from_dict` restores the rules."""
        rules: dict[str, Any] = json.loads(self._kernel.to_json())
        return rules

    def to_toml(self) -> str:
        """A complete kernel file without a base."""
        return self._kernel.to_toml()

    def diff(self, other: Rules) -> dict[str, tuple[Any, Any]]:
        """The differences: name -> (value here, value there); ``None`` for a missing rule."""
        keys = [*self, *(key for key in other if key not in self)]
        pairs = {key: (self.get(key), other.get(key)) for key in keys}
        return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}

    def _values(self) -> dict[str, Any]:
        if self._flat is None:
            nested = self.to_dict()
            nested.pop("description", None)
            self._flat = dict(_flatten(nested))
        return self._flat

    def __getitem__(self, key: str) -> Any:
        return self._values()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def __eq__(self, other: object) -> bool:
        return self._kernel == other._kernel if isinstance(other, Rules) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._kernel)

    def __repr__(self) -> str:
        return f"<Rules {self.name!r}: {len(self)} rules>"

    def __reduce__(self) -> tuple[Any, tuple[str, str]]:
        return Rules.from_toml, (self.name, self.to_toml())


def _plain(value: object) -> Any:
    """Converts a number that is not an ``int``, such as a NumPy integer, for JSON."""
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"rules: no rule has a value of type {type(value).__name__}")


def _put(table: dict[str, Any], key: str, value: Any) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _flatten(nested: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Flattens tables of rules to dotted names; a table below them is one value (``{"block":
    ..}``).
    """
    for key, value in nested.items():
        if isinstance(value, dict):
            yield from ((key + _SEPARATOR + name, rule) for name, rule in value.items())
        else:
            yield key, value
