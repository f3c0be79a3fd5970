"""Arguments of a prediction become those of the model."""

from __future__ import annotations

import os
from typing import Any

from largefolio._checks import file_path, items, size, switch, text, whole
from largefolio._rules import Rules

_U32_MAX = 2**32 - 1
KERNELS = ("6.12", "6.18", "7.2")
"""Kernels where none are named."""
IDLE_SEEDS = (
    "seeds change nothing in unfragmented memory; add fragmentation, such as fragmentation=500"
)
"""What is said of seeds that are all the same."""


def asked(
    *,
    kernels: Any,
    machines: Any,
    seeds: Any,
    memory: Any,
    swap: Any,
    fragmentation: Any,
    filesystem: Any,
    warm: Any,
    annotate: Any,
    nested: Any,
    reference_ns: Any,
    max_work: Any,
) -> dict[str, Any]:
    """What decides the cells, as the native module takes it."""
    return {
        "kernels": _kernels(kernels),
        "machines": [file_path(one, "machines") for one in items(machines, "machines", _PATHS)],
        "seeds": [whole(seed, "seeds") for seed in items(seeds, "seeds", (int,))],
        "memory": [size(one, "memory") for one in items(memory, "memory", (int, str))],
        "swap": size(swap, "swap"),
        "fragmentation": whole(fragmentation, "fragmentation", _U32_MAX),
        "filesystem": None if filesystem is None else text(filesystem, "filesystem"),
        "warm": switch(warm, "warm"),
        "annotate": _annotations(annotate),
        "nested": switch(nested, "nested"),
        "reference_ns": None if reference_ns is None else whole(reference_ns, "reference_ns"),
        "max_work": whole(max_work, "max_work"),
    }


_PATHS = (str, os.PathLike)


def _kernels(value: Any) -> list[Any]:
    found = items(value, "kernels", (str, os.PathLike, Rules))
    return [
        kernel._kernel if isinstance(kernel, Rules) else file_path(kernel, "kernels")
        for kernel in found
    ]


def _annotations(value: Any) -> list[str]:
    """``{"libc.so*": "64K"}``, ``"libc.so*=64K"`` or several of these."""
    if value is None:
        return []
    if isinstance(value, dict):
        return [
            f"{text(pattern, 'annotate')}={size(bytes_, 'annotate')}"
            for pattern, bytes_ in value.items()
        ]
    return [text(one, "annotate") for one in items(value, "annotate", (str,))]
