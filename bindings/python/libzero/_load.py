# SPDX-License-Identifier: Apache-2.0
"""Finds libzero.so through LIBZERO_PATH, in this package's folder, in the build folder of a
checkout, or through the system loader."""

from __future__ import annotations

import ctypes as c
import os
import re
from collections.abc import Iterator
from pathlib import Path

from ._errors import LibraryNotFoundError

MAJOR, MINOR = 0, 2
_SONAMES = ("libzero.so", f"libzero.so.{MAJOR}.{MINOR}")


def _candidates() -> Iterator[str]:
    """Yield paths and names for the loader, in order of preference. If LIBZERO_PATH is set, yield
    only its value."""
    chosen = os.environ.get("LIBZERO_PATH")
    if chosen:
        path = Path(chosen)
        yield str(path / _SONAMES[0] if path.is_dir() else path)
        return
    package = Path(__file__).resolve().parent
    for soname in _SONAMES:
        yield str(package / soname)
    # In a checkout, this package is bindings/python/libzero, and the build folders are three levels
    # up.
    if len(package.parents) > 2 and (package.parents[2] / "include" / "zero.h").is_file():
        checkout = package.parents[2]
        names = ("build*/src/libzero.so", "build/*/src/libzero.so")
        builds = [path for name in names for path in checkout.glob(name) if path.is_file()]
        yield from map(str, sorted(builds, key=lambda path: path.stat().st_mtime, reverse=True))
        yield str(checkout / "build" / _SONAMES[0])
    yield from reversed(_SONAMES)


def _check_version(library: c.CDLL, path: str) -> str:
    """Return the reason why `library` cannot be used, or '' if it can be used."""
    try:
        library.zero_version.restype = c.c_uint32
        version: int = library.zero_version()
    except AttributeError:
        return "has no zero_version, so it is another library with that name"
    # Before version 1.0, a minor version may break the ABI.
    if version // 100 != 100 * MAJOR + MINOR:
        return f"is version {version_text(version)}, but this package needs {MAJOR}.{MINOR}.x"
    return ""


def _why(error: OSError) -> str:
    """Return the reason why the system loader failed, and the remedy if one is known."""
    newer = re.search(r"version `GLIBC_([\d.]+)' not found", str(error))
    if newer is None:
        return str(error)
    return (
        f"needs glibc {newer[1]}, but this machine has {os.confstr('CS_GNU_LIBC_VERSION')}: it was "
        "built on a newer system. Install a wheel, or build it here: `pip install .` in a checkout"
    )


def version_text(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def load() -> tuple[c.CDLL, str]:
    """Return the library and its path. If no library can be used, LibraryNotFoundError lists each
    place that was searched, with the reason."""
    tried = []
    for candidate in dict.fromkeys(_candidates()):
        if "/" in candidate and not Path(candidate).exists():
            tried.append(f"{candidate}: no such file")
            continue
        try:
            # CDLL releases the GIL, so that other threads run while a rank waits for its peers.
            # PyDLL would hold it.
            library = c.CDLL(candidate)
        except OSError as error:
            tried.append(f"{candidate}: {_why(error)}")
            continue
        problem = _check_version(library, candidate)
        if not problem:
            return library, candidate
        tried.append(f"{candidate}: {problem}")
    advice = "set LIBZERO_PATH to the file or its folder"
    if os.environ.get("LIBZERO_PATH"):
        advice = "LIBZERO_PATH is set, so no other place is searched: correct or unset it"
    raise LibraryNotFoundError(
        f"no libzero.so was found that this package can use; {advice}. Tried:\n  "
        + "\n  ".join(tried)
    )
