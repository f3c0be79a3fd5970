"""What can go wrong. The text of an error is the one the command ``folio`` prints."""


class FolioError(Exception):
    """Anything largefolio refuses or fails at."""


class TraceError(FolioError):
    """A trace that cannot be read, or is damaged."""


class KernelError(FolioError, ValueError):
    """A kernel that is not known, or rules that no kernel can have."""


class MachineError(FolioError, ValueError):
    """A machine that is not known, or a machine file that is none."""


class RequestError(FolioError, ValueError):
    """A prediction that cannot be made: too many cells, an unknown filesystem, a size that is none."""


class ReplayError(FolioError):
    """A cell that cannot go on, such as a machine without the kernel's base pages."""


class SweepError(FolioError):
    """A sweep that cannot go on, such as a full disk. What is done is kept: the same call goes on."""


class MapsError(FolioError):
    """Processes or files that this kernel does not show, or that are not there."""


class StudyError(FolioError):
    """A study that is not known, a study file that is none, or a trace it cannot use."""


class RecordingError(FolioError):
    """A recording of a kernel that cannot be read, or not be replayed under these rules."""


class ClusterError(SweepError):
    """A cluster that cannot sweep: its scheduler is gone, or its workers lack this package."""


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
    """Something that is done, but perhaps not as meant."""
