# SPDX-License-Identifier: Apache-2.0
"""What the library refuses, as exceptions: one class, and a subclass where a caller acts on it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class ZeroError(Exception):
    """A call of the C library failed: `code` and its `name` of zero.h, and `message`, which says
    which call, what is wrong with what, and what to do. Classes derived of it are for errors that a
    program may act on; all others are this one, as ZERO_ERR_STATE (a right call at the wrong
    moment), ZERO_ERR_BUSY (another thread is inside), ZERO_ERR_UNSUPPORTED and ZERO_ERR_MEMORY."""

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(code, name, message)
        self.code = code
        self.name = name
        self.message = message

    def __str__(self) -> str:
        return f"{self.message or 'no text'} ({self.name})"


class ArgumentError(ZeroError, ValueError):
    """A wrong argument or setting; nothing has happened. It is a ValueError, too."""


class MismatchError(ZeroError):
    """This rank passed or registered something else than the others; the comm stays usable."""


class PeerError(ZeroError):
    """Another rank failed in this call; nothing has changed and the comm stays usable."""


class NonfiniteError(ZeroError, ArithmeticError):
    """Gradients were not finite, and nonfinite="error"; nothing has changed. An ArithmeticError,
    too."""


class CallbackError(ZeroError):
    """The update function of a CustomOptimizer wrote outside of its arrays; nothing has changed.
    (What such a function raises comes out as it is.)"""


class CheckpointError(ZeroError):
    """A checkpoint could not be written, is damaged, or is of another model."""


class CommError(ZeroError):
    """The group is broken, or never formed: make a new comm, load, and go on from there."""


class InterruptedCallError(CommError):
    """A signal ended a wait for other ranks, and its handler raised nothing."""


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
    """libzero.so is in none of the places tried, or is of another major or minor version."""


class _Pending(threading.local):
    exception: BaseException | None = None


# What a callback of this thread raised. C cannot carry it, so it waits here until the call that
# ran the callback returns.
pending = _Pending()


def guarded(run: Callable[[], object], failure: int) -> int:
    """Run a callback; keep what it raises for the call that is under way on this thread, and give
    C the status `failure` then."""
    before, pending.exception = pending.exception, None
    try:
        run()
    except BaseException as error:
        pending.exception = before or error
        return failure
    pending.exception = before
    return 0


def raise_failure(error: ZeroError) -> None:
    """Raise `error`, or in its place the callback's exception that caused it."""
    cause, pending.exception = pending.exception, None
    try:
        if cause is None:
            raise error
        raise cause from error
    finally:
        # The traceback has this frame: a local that is the exception would be a cycle, and keep the
        # callers' frames, with all that they refer to, until the garbage collector comes.
        del error, cause
