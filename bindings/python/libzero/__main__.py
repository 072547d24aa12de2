# SPDX-License-Identifier: Apache-2.0
"""`python -m libzero`: which library this package found, and what it can do."""

from __future__ import annotations

import sys

import libzero


def main() -> int:
    print(f"python package: {libzero.__version__}")
    try:
        print(f"library: {libzero.library_version()}, {libzero.library_path()}")
    except libzero.LibraryNotFoundError as error:
        print(f"library: none\n{error}", file=sys.stderr)
        return 1
    for key, value in libzero.build_info().items():
        print(f"{key}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
