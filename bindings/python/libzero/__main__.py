# SPDX-License-Identifier: Apache-2.0
"""`python -m libzero` shows the library that this package found, and the features of that library.
With arguments, it runs the program `zero`, or an export or import that needs torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import libzero

from . import _program

BY_TORCH = ("torch", "dcp")


def show() -> int:
    print(f"python package: {libzero.__version__}")
    try:
        print(f"library: {libzero.library_version()}, {libzero.library_path()}")
    except libzero.LibraryNotFoundError as error:
        print(f"library: none\n{error}", file=sys.stderr)
        return 1
    for key, value in libzero.build_info().items():
        print(f"{key}: {value}")
    return 0


def needs_torch(arguments: Sequence[str]) -> bool:
    """Return whether the arguments ask for an export to, or an import from, one of torch's
    formats."""
    if arguments[0] not in ("export", "import") or {"-h", "--help"} & set(arguments):
        return False
    words = [word for argument in arguments for word in argument.split("=", 1)]
    return any(
        option in ("--to", "--from") and value in BY_TORCH
        for option, value in zip(words, words[1:])
    )


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        return show()
    try:
        # The conversion to or from torch's formats also needs the program, and importing torch
        # takes long.
        program = _program.find()
        if needs_torch(arguments):
            from .torch import _commands

            return _commands.main(arguments)
        os.execv(program, [program, *arguments])
    except _program.NotFoundError as error:
        print(f"python -m libzero: {error}", file=sys.stderr)
    except ImportError as error:
        print(f"python -m libzero: torch's formats need torch: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
