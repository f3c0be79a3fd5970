"""Arguments of a prediction become those of the model."""

from __future__ import annotations

import os
from typing import Any

from largefolio._checks import file_path, items, size, text, whole
from largefolio._rules import Rules

_U32_MAX = 2**32 - 1


def kernel_list(value: Any) -> list[Any]:
    """Kernels by name or by value, as the native module takes them."""
    found = items(value, "kernels", (str, os.PathLike, Rules))
    return [
        kernel._kernel if isinstance(kernel, Rules) else file_path(kernel, "kernels")
        for kernel in found
    ]


def machine_list(value: Any) -> list[str]:
    """Machines by name or path."""
    return [file_path(machine, "machines") for machine in items(value, "machines", (str, os.PathLike))]


def seed_list(value: Any) -> list[int]:
    """Seeds."""
    return [whole(seed, "seeds") for seed in items(value, "seeds", (int,))]


def size_list(value: Any, what: str) -> list[str]:
    """Sizes in bytes."""
    return [size(one, what) for one in items(value, what, (int, str))]


def annotation_list(value: Any) -> list[str]:
    """``{"libc.so*": "64K"}``, ``"libc.so*=64K"`` or several of these."""
    if value is None:
        return []
    if isinstance(value, dict):
        return [
            f"{text(pattern, 'annotate')}={size(bytes_, 'annotate')}"
            for pattern, bytes_ in value.items()
        ]
    return [text(one, "annotate") for one in items(value, "annotate", (str,))]


def permille(value: int, what: str) -> int:
    """Thousandths: the model says what is too much."""
    return whole(value, what, _U32_MAX)


def reference_ns(value: int | None) -> int | None:
    """Nanoseconds, or ``None`` for those of the model."""
    return None if value is None else whole(value, "reference_ns")
