# SPDX-License-Identifier: Apache-2.0
"""meson-python, for `pip install .` in the root of the checkout and in this folder, with a word before it where
nothing can be compiled, and with all files of a wheel where indexes want those of one platform."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import mesonpy

ROOT = Path(__file__).resolve().parents[2]


def _from_root(hook: str, folder: str, *arguments: Any) -> Any:
    folder = os.path.abspath(folder)
    os.chdir(ROOT)
    return getattr(mesonpy, hook)(folder, *arguments)


def _need_compiler() -> None:
    if "CXX" not in os.environ and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        raise SystemExit(
            "libzero is compiled here, and there is no C++ compiler: install g++ 12 or clang 14 or newer, or take "
            "a wheel of scripts/wheels, which needs none"
        )


def _as_platlib(wheel: Path) -> None:
    """Move the package to the root of the wheel. It serves every Python 3, so Meson installs it where pure Python
    goes; but the library inside is of one platform.
    """
    whole = wheel.with_suffix(".tmp")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as new:
        pure = f"{old.namelist()[0].split('.dist-info/')[0]}.data/purelib/"
        for entry in old.infolist():
            content = old.read(entry)
            if entry.filename.endswith(".dist-info/RECORD"):
                content = content.replace(pure.encode(), b"")
            entry.filename = entry.filename.replace(pure, "")
            new.writestr(entry, content)
    whole.replace(wheel)


def get_requires_for_build_wheel(settings: Any = None) -> Any:
    _need_compiler()
    return mesonpy.get_requires_for_build_wheel(settings)


def get_requires_for_build_editable(settings: Any = None) -> Any:
    _need_compiler()
    return mesonpy.get_requires_for_build_editable(settings)


def get_requires_for_build_sdist(settings: Any = None) -> Any:
    return mesonpy.get_requires_for_build_sdist(settings)


def build_wheel(folder: str, settings: Any = None, _metadata: Any = None) -> Any:
    folder = os.path.abspath(folder)  # before the working directory changes
    name = _from_root("build_wheel", folder, settings)
    _as_platlib(Path(folder) / name)
    return name


def build_editable(folder: str, settings: Any = None, _metadata: Any = None) -> Any:
    return _from_root("build_editable", folder, settings)


def build_sdist(folder: str, settings: Any = None) -> Any:
    return _from_root("build_sdist", folder, settings)
