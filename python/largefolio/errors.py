"""Errors, with the same text as the command ``folio``."""


class FolioError(Exception):
    """The base of all errors of largefolio."""


class TraceError(FolioError):
    """A trace that is unreadable or damaged."""


class KernelError(FolioError, ValueError):
    """An unknown kernel, or rules that no kernel can have."""


class MachineError(FolioError, ValueError):
    """An unknown machine, or an invalid machine file."""


class RequestError(FolioError, ValueError):
    """An impossible prediction: too many cells, an unknown filesystem, an invalid size."""


class ReplayError(FolioError):
    """A cell that cannot continue, such as a machine without the kernel's base pages."""


class SweepError(FolioError):
    """A sweep that cannot continue, such as on a full disk. The same call continues it."""


class MapsError(FolioError):
    """Processes or files that do not exist, or that this kernel does not show."""


class ClusterError(SweepError):
    """A cluster that cannot run a sweep: its scheduler is gone, or workers lack this package."""


class CommandError(FolioError):
    """The command ``folio`` failed.

    Attributes:
        returncode: exit status of the command; negative: the signal that ended it.
    """

    def __init__(self, message: str, returncode: int = 2) -> None:
        super().__init__(message)
        self.returncode = returncode

    def __reduce__(self) -> tuple[type["CommandError"], tuple[str, int]]:
        return type(self), (str(self), self.returncode)


class FolioWarning(UserWarning):
    """A call that succeeded, but perhaps not as intended."""
