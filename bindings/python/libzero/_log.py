# SPDX-License-Identifier: Apache-2.0
"""Forwards messages of the library to the module logging."""

from __future__ import annotations

import atexit
import logging
import sys

from . import _abi, _values, _zero_h
from ._abi import lib
from ._zero_h import LogFn

_LEVELS = {
    _zero_h.LOG_ERROR: logging.ERROR,
    _zero_h.LOG_WARNING: logging.WARNING,
    _zero_h.LOG_INFO: logging.INFO,
}

_logger = logging.getLogger("libzero")


def _write(_ctx: object, level: int, message: bytes) -> None:
    try:
        text = _abi.in_python(message.decode("utf-8", "replace"))
        _logger.log(_LEVELS.get(level, logging.INFO), "%s", text)
    except BaseException:
        # This runs inside a C call, which cannot raise an exception.
        sys.excepthook(*sys.exc_info())


# This is created once and never freed, because a running call may still log after the callback has
# been changed.
_callback = LogFn(_write)
_off = LogFn()


# The level that this module last gave to the logger. If the program has set another level, that
# level is kept.
_shown = logging.NOTSET


def _show(level: int) -> None:
    global _shown
    if _logger.level == _shown:
        _logger.setLevel(level)
        _shown = level


def set_log_level(level: int | str | None = logging.INFO) -> None:
    """Send the library's messages of `level` and above to the logger "libzero", for the whole
    process. `level` is a level of the module logging. It is given as a number or as a name such as
    "info", in upper or lower case. Raises ValueError for any other name.

    If `level` is None, which is the initial state, no messages are sent to the logger. In that
    case, and only then, the library prints messages to standard error if the environment variable
    ZERO_LOG is set to "error", "warning" or "info". The logger is set to `level` unless it already
    has a level. Logging handlers, for example from logging.basicConfig, determine where messages
    are shown.

    >>> set_log_level("warning")
    >>> set_log_level(None)
    """
    if isinstance(level, str):
        level = _values.choice({"error": 40, "warning": 30, "info": 20}, level.lower(), "level")
    _show(logging.NOTSET if level is None else level)
    if level is None:
        lib().zero_set_log_callback(_off, None, 0)
        return
    most = max((number for number, python in _LEVELS.items() if python >= level), default=0)
    lib().zero_set_log_callback(_callback, None, most)
    # Other threads may outlive the interpreter, and must not call into it.
    atexit.unregister(set_log_level)
    atexit.register(set_log_level, None)
