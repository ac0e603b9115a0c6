"""What Weir's calls raise. Every class is a WeirError, and a RuntimeError."""

from __future__ import annotations


class WeirError(RuntimeError):
    """Something that Weir refuses or could not do; the message says what."""


class InvalidArgument(WeirError, ValueError):
    """An option, a name, a shape or a dtype is wrong."""


class WrongLayout(WeirError):
    """The job has other tensors, or another mode or optimizer.

    The message names the first difference: "'fc.weight' is [10, 5] on the
    server, [10, 4] here".
    """


class NonFinite(WeirError, ArithmeticError):
    """A gradient has NaN or Inf. It was left out; the next push may follow."""


class Unavailable(WeirError, ConnectionError):
    """A parameter server does not answer; the message names it."""


class ServerLost(Unavailable):
    """A parameter server is gone, was started again or holds another job."""


class JobEnded(WeirError):
    """The chief ended the job, or is gone; the message says why."""


class Closed(WeirError):
    """The client was closed, or was asked too early."""


class Replaced(WeirError):
    """A newer process has this worker's place; this one must end."""


class Refused(WeirError, PermissionError):
    """A server or this process does not prove to be of the job."""


class Forked(WeirError):
    """A client was used in a process that was forked from its own."""


class DataLoss(WeirError, OSError):
    """A checkpoint's file is damaged, missing or foreign; names it."""


# The classes by gRPC's status codes; client/cc/weir.h says what each means.
_BY_CODE = {
    3: InvalidArgument,
    4: Unavailable,
    5: InvalidArgument,
    6: WrongLayout,
    7: Replaced,
    9: ServerLost,
    10: JobEnded,
    11: NonFinite,
    14: Unavailable,
    15: DataLoss,
    16: Refused,
}


def exception_for_code(code: int) -> type[WeirError]:
    """The class for a status code."""
    return _BY_CODE.get(code, WeirError)
