# SPDX-License-Identifier: Apache-2.0
"""Finds the program `zero`, which a wheel installs next to this package."""

from __future__ import annotations

import os
import shutil
import sysconfig


class NotFoundError(Exception):
    """The program was not found."""


def find() -> str:
    """Return the program of this environment, or else the first program of this name in PATH."""
    schemes = ("scripts", None), ("scripts", f"{os.name}_user")
    for key, scheme in schemes:
        folder = sysconfig.get_path(key) if scheme is None else sysconfig.get_path(key, scheme)
        path = os.path.join(folder, "zero")
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("zero")
    if found is None:
        raise NotFoundError(
            "the program zero is neither in this environment nor in PATH: install libzero's tools, which "
            "are built if CLI11 (libcli11-dev) is installed"
        )
    return found
