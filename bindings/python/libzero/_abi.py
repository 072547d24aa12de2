# SPDX-License-Identifier: Apache-2.0
"""The functions of the C library. Errors of their calls use Python's names."""

from __future__ import annotations

import atexit
import ctypes as c
import signal
import threading
from typing import Any, TypeVar

from . import _load
from ._errors import ZeroError, error_of, pending, raise_failure
from ._handles import Status, Struct
from ._words import calls_of, constants_of, translator
from ._zero_h import (
    CHOICES,
    DEVICES,
    DTYPES,
    ERR_INTERRUPTED,
    ERR_UNSUPPORTED,
    MEMORIES,
    OPERATIONS,
    REDUCTIONS,
    SIGNATURES,
    STRUCTS,
    InterruptFn,
)

# The Python names that replace zero.h's names in messages.
CALLS = calls_of(SIGNATURES)
CONSTANTS = constants_of(
    (
        ("ZERO_", "", DTYPES),
        ("ZERO_", "operation", OPERATIONS),
        ("ZERO_DEVICE_", "device", DEVICES),
        ("ZERO_MEMORY_", "kind", MEMORIES),
        ("ZERO_REDUCE_", "reduction", REDUCTIONS),
        *((f"ZERO_{name.partition('_')[0].upper()}_", name, CHOICES[name]) for name in CHOICES),
    )
)
in_python = translator({**CALLS, **CONSTANTS}, (struct.c_name for struct in STRUCTS))

_lock = threading.Lock()
_loaded: tuple[Any, str] | None = None


def lib() -> Any:
    """Return the library, in which every function has its types. The first use loads it."""
    return (_loaded or _load_once())[0]


def library_path() -> str:
    return (_loaded or _load_once())[1]


def _load_once() -> tuple[Any, str]:
    global _loaded
    with _lock:
        if _loaded is None:
            library, path = _load.load()
            for name, (restype, argtypes) in SIGNATURES.items():
                _declare(library, path, name, restype, argtypes)
            _loaded = library, path
            interrupt_waits()
    return _loaded


# A C function of CPython, which the library calls with the GIL held. A Python function would not
# work: its first instruction runs the signal handlers, and the exceptions that they raise are lost.
_interrupted = InterruptFn()
if hasattr(c, "pythonapi"):  # only CPython has it
    _interrupted = InterruptFn(c.pythonapi.PyOS_InterruptOccurred)


def interrupt_waits(on: bool = True) -> None:
    """Let Ctrl-C, and a notebook's stop button, end a call of the main thread that waits for other
    ranks. This is the default. The comm of that call is aborted, and then the SIGINT handler runs.
    With False, waits are not interrupted, and the handler runs after the call has returned. Use
    False if your program's SIGINT handler only sets a flag.

    >>> interrupt_waits(False)
    >>> interrupt_waits()
    """
    lib().zero_set_interrupt_callback(_interrupted if on else InterruptFn(), None)
    # The library must not call into an interpreter that has shut down.
    atexit.unregister(interrupt_waits)
    atexit.register(interrupt_waits, False)


def _declare(library: c.CDLL, path: str, name: str, restype: Any, argtypes: list[Any]) -> None:
    try:
        function = getattr(library, name)
    except AttributeError:
        setattr(library, name, _missing(name, path))
        return
    function.argtypes = argtypes
    function.restype = c.c_int32 if restype is Status else restype
    if restype is Status:
        function.errcheck = _check


def _missing(name: str, path: str) -> Any:
    """Return a substitute for a function that an older library does not have."""

    def refuse(*_: object) -> None:
        message = f"{path} has no {name}: it is older than this package"
        raise ZeroError(ERR_UNSUPPORTED, "ZERO_ERR_UNSUPPORTED", message)

    return refuse


def _check(status: int, _function: Any, _arguments: Any) -> int:
    if status >= 0:
        pending.exception = None
        return status
    name = lib().zero_status_name(status).decode()
    message = in_python(lib().zero_last_error().decode("utf-8", "replace"))
    if status == ERR_INTERRUPTED:
        try:
            signal.raise_signal(signal.SIGINT)  # the library has consumed the signal
        except KeyboardInterrupt as interrupt:
            # The cause says whether a save can still appear.
            raise interrupt from error_of(status, name, message)
    raise_failure(error_of(status, name, message))
    return status


S = TypeVar("S", bound=Struct)


def create(struct: type[S]) -> S:
    """Return a struct filled with zeros, which select the defaults."""
    return struct(c.sizeof(struct))
