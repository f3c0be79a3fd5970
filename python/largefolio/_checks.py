"""Types and ranges of arguments, with errors that name the argument."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterable
from typing import Any, TypeAlias

Path: TypeAlias = "str | os.PathLike[str]"
Size: TypeAlias = "int | str"

_U64_MAX = 2**64 - 1
# pathlib's form of `s3://bucket`.
_CUT_ADDRESS = re.compile(r"[a-z][a-z0-9+:-]*:/")


def file_path(value: Path, what: str) -> str:
    """A path as text."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{what}: expected a path, not {_kind(value)}")
    text = os.fspath(value)
    if not isinstance(text, str):
        raise TypeError(f"{what}: expected a path of str, not of bytes")
    if "\0" in text:
        raise ValueError(f"{what}: a path cannot contain a NUL character")
    if isinstance(value, pathlib.PurePath) and _CUT_ADDRESS.match(text) and not os.path.lexists(text):
        address = text.replace(":/", "://", 1)
        raise ValueError(
            f"{what}: there is no {text!r} here; pathlib shortens addresses, so pass a string: {address!r}"
        )
    return text


def text(value: str, what: str) -> str:
    """A string without NUL."""
    if not isinstance(value, str):
        raise TypeError(f"{what}: expected str, not {_kind(value)}")
    if "\0" in value:
        raise ValueError(f"{what}: {value!r} has a NUL character")
    return value


def switch(value: bool, what: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise TypeError(f"{what}: expected True or False, not {_kind(value)}")
    return value


def whole(value: int, what: str, high: int = _U64_MAX) -> int:
    """An integer from 0 to ``high``."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{what}: expected an integer, not {_kind(value)}")
    number = value.__index__()
    if not 0 <= number <= high:
        raise ValueError(f"{what}: expected 0 to {high}, not {number}")
    return number


def real(value: float, what: str) -> float:
    """A number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what}: expected a number, not {_kind(value)}")
    return float(value)


def size(value: Size, what: str) -> str:
    """Bytes, as an integer or as ``"16G"``, in the form the model reads."""
    if isinstance(value, str):
        return text(value, what)
    return str(whole(value, what))


def items(value: Any, what: str, single: tuple[type, ...]) -> list[Any]:
    """One item or several."""
    if isinstance(value, single):
        return [value]
    if value is None or isinstance(value, bytes) or not isinstance(value, Iterable):
        raise TypeError(f"{what}: expected one or several, not {_kind(value)}")
    return list(value)


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__
