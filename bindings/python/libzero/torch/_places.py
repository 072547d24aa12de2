# SPDX-License-Identifier: Apache-2.0
"""Writes the targets of exports, either completely or not at all, and opens the files that imports
read."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from typing import IO, Optional

from ._streams import RefusedError

_NEW, _EXCHANGE = 1, 2  # RENAME_NOREPLACE and RENAME_EXCHANGE of renameat2


def open_regular(path: str, *, links: bool) -> IO[bytes]:
    """Open a file for reading. The file must not be a pipe, because a pipe could block. It must not
    be a link unless `links` is set."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW)
    try:
        number = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RefusedError(f"{os.path.basename(path)!r} is a link") from None
        raise
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise RefusedError(f"{os.path.basename(path)!r} is not a regular file")
    return open(number, "rb")


@contextlib.contextmanager
def new_file(target: str, replace: bool) -> Iterator[str]:
    """Yield a hidden name next to `target`, and rename that file to `target` at the end. If the
    block raises an exception, no file is left."""
    if os.path.lexists(target):
        if not os.path.isfile(target):
            raise RefusedError("it is not a regular file: name a file that can be created")
        _check_replace(replace)
    folder = os.path.dirname(os.path.abspath(target))
    if os.path.lexists(target) and os.path.lexists(os.path.join(folder, "zero.json")):
        raise RefusedError("it is a file in a checkpoint: write elsewhere")
    path = _hidden_name(folder)
    try:
        with open(path, "xb"):
            pass
        with _unwrapped():
            yield path
        if replace:
            os.rename(path, target)
        else:
            _rename_to_new(path, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
        raise
    _sync(folder)


@contextlib.contextmanager
def new_directory(target: str, replace: bool, names: str) -> Iterator[str]:
    """Yield a hidden directory next to `target`, and rename it to `target` at the end. An existing
    directory is replaced only if all of its entries are regular files whose names match the regular
    expression `names`."""
    before = os.path.lexists(target)
    if before:
        if not _holds_only(target, names):
            raise RefusedError(
                "it is not a directory of this kind, or holds other files: name another one"
            )
        _check_replace(replace)
    folder = os.path.dirname(os.path.abspath(target))
    path = _hidden_name(folder)
    try:
        with _unwrapped():
            yield path
        _sync(path)
        if not before:
            _rename_to_new(path, target)
        elif not _rename(path, target, _EXCHANGE):
            raise RefusedError("this file system cannot exchange it atomically: remove it")
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    _sync(folder)
    if before:
        for name in os.listdir(path):
            if re.fullmatch(names, name):
                os.remove(os.path.join(path, name))
        os.rmdir(path)  # fails if another program has added a file in the meantime


@contextlib.contextmanager
def _unwrapped() -> Iterator[None]:
    """Raise the failure or the signal that ended a write. A writer of torch that cannot finish a
    file for that reason raises an error about the file instead."""
    try:
        yield
    except RuntimeError as error:
        cause: Optional[BaseException] = error
        while cause is not None and not isinstance(cause, (OSError, KeyboardInterrupt, SystemExit)):
            cause = cause.__context__
        raise cause or error from None


def _check_replace(replace: bool) -> None:
    if not replace:
        raise RefusedError("it exists: remove it, or give --replace")


def _holds_only(path: str, names: str) -> bool:
    if os.path.islink(path) or not os.path.isdir(path):
        return False
    with os.scandir(path) as entries:
        return all(
            one.is_file(follow_symlinks=False) and re.fullmatch(names, one.name) for one in entries
        )


def _hidden_name(folder: str) -> str:
    """Return a unique name for an incomplete file. A pid is not unique, because processes in two
    containers may have the same pid."""
    return os.path.join(folder, f".zero-{os.urandom(8).hex()}.tmp")


def _rename_to_new(source: str, target: str) -> None:
    try:
        if not _rename(source, target, _NEW):
            os.rename(source, target)
    except FileExistsError:
        raise RefusedError("it was created in the meantime: remove it, or give --replace") from None


def _rename(source: str, target: str, flag: int) -> bool:
    """Rename a file with renameat2(2). Returns False if the kernel or the file system does not
    support the flag."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    here = -100  # AT_FDCWD
    if call is None:
        return False
    if call(here, os.fsencode(source), here, os.fsencode(target), flag) == 0:
        return True
    error = ctypes.get_errno()
    if error in (errno.EINVAL, errno.ENOSYS):
        return False
    raise OSError(error, os.strerror(error), target)


def _sync(folder: str) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
