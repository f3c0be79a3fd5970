"""Names to choose from."""

from __future__ import annotations

from typing import NamedTuple

from largefolio import _native


class Edit(NamedTuple):
    """An edit of a kernel, such as ``exec-block=64K``."""

    name: str
    """The part before the ``=``."""
    value: str
    """The form of the part after it, in words."""
    help: str
    """Its settings."""


def kernels() -> list[str]:
    """Names of the built-in kernels, oldest first; ``recorded/..`` are kernels of recordings.

    Use a name alone, or with edits: ``"7.2+page=64K"``.
    """
    return [name for name, _ in _native.kernels()]


def machines() -> list[str]:
    """Names of the built-in machines.

    Paths of machine files and ``"this"``, written by ``folio calibrate``, are also valid.
    """
    return [name for name, _ in _native.machines()]


def edits() -> list[Edit]:
    """Every edit of a kernel, with its value's form and its effect."""
    return [Edit(*edit) for edit in _native.edits()]


def filesystems() -> list[str]:
    """Filesystems with large folios under some kernel, for ``predict(filesystem=..)``."""
    return _native.filesystems()
