# SPDX-License-Identifier: Apache-2.0
"""Exceptions for the errors of the library. All are ZeroError, and errors that a program may act on
have a subclass."""

from __future__ import annotations

import threading
from collections.abc import Callable


class ZeroError(Exception):
    """A call of the C library failed. `code` is the status, and `name` is the name of the status in
    zero.h. `message` names the call, the argument and the fault, and says how to fix it.

    Errors that a program may act on have subclasses. All other errors have this class, for example
    ZERO_ERR_STATE (a valid call at the wrong time), ZERO_ERR_BUSY (another thread is inside a
    call), ZERO_ERR_UNSUPPORTED and ZERO_ERR_MEMORY.
    """

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(code, name, message)
        self.code = code
        self.name = name
        self.message = message

    def __str__(self) -> str:
        return f"{self.message or 'no text'} ({self.name})"


class ArgumentError(ZeroError, ValueError):
    """An argument or a setting is wrong. Nothing has changed. This class is also a ValueError."""


class MismatchError(ZeroError):
    """This rank's arguments or registrations differ from the other ranks'. The comm stays
    usable."""


class PeerError(ZeroError):
    """Another rank failed in this call. Nothing has changed, and the comm stays usable."""


class NonfiniteError(ZeroError, ArithmeticError):
    """Gradients were not finite, and the optimizer has nonfinite="error". Nothing has changed. This
    class is also an ArithmeticError."""


class CallbackError(ZeroError):
    """The update function of a CustomOptimizer wrote outside its arrays. Nothing has changed.
    (Exceptions that the function raises are passed on unchanged.)"""


class CheckpointError(ZeroError):
    """A checkpoint could not be written, is damaged, or belongs to another model."""


class CommError(ZeroError):
    """The group is broken, or was never formed. Create a new comm, load a checkpoint, and continue
    from there."""


class InterruptedCallError(CommError):
    """A signal ended a wait for other ranks, and the signal handler did not raise an exception."""


_CLASSES: dict[int, type[ZeroError]] = {
    -1: ArgumentError,
    -7: MismatchError,
    -8: PeerError,
    -20: NonfiniteError,
    -21: CallbackError,
    -22: InterruptedCallError,
    **dict.fromkeys(range(-12, -8), CheckpointError),
    **dict.fromkeys(range(-18, -12), CommError),
}


def error_of(code: int, name: str, message: str) -> ZeroError:
    return _CLASSES.get(code, ZeroError)(code, name, message)


class LibraryNotFoundError(ImportError):
    """libzero.so was not found in any of the places searched, or its major or minor version differs
    from this package's."""


class _Pending(threading.local):
    exception: BaseException | None = None


# The exception that a callback raised on this thread. C cannot pass it on, so it is kept here until
# the call that ran the callback returns.
pending = _Pending()


def guarded(run: Callable[[], object], failure: int) -> int:
    """Run a callback. If it raises an exception, keep the exception for the call in progress on
    this thread, and return the status `failure` to C."""
    before, pending.exception = pending.exception, None
    try:
        run()
    except BaseException as error:
        pending.exception = before or error
        return failure
    pending.exception = before
    return 0


def raise_failure(error: ZeroError) -> None:
    """Raise the exception of the callback that caused `error`. If no callback caused it, raise
    `error`."""
    cause, pending.exception = pending.exception, None
    try:
        if cause is None:
            raise error
        raise cause from error
    finally:
        # The traceback refers to this frame. If a local variable still held the exception, they
        # would form a cycle that keeps the frames of all callers alive until the garbage collector
        # runs.
        del error, cause
