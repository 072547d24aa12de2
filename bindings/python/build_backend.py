# SPDX-License-Identifier: Apache-2.0
"""Extends meson-python for `pip install .` in the root of the checkout and in this folder. It provides metadata
without a build, reports clearly if nothing can be compiled, and puts all files of a wheel where an index expects
those of one platform."""

from __future__ import annotations

import os
import re
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import mesonpy

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]


def _from_root(hook: str, folder: str, *arguments: Any) -> Any:
    folder = os.path.abspath(folder)
    os.chdir(ROOT)
    return getattr(mesonpy, hook)(folder, *arguments)


def _need_compiler() -> None:
    if sys.platform != "linux":
        raise SystemExit(
            f"libzero runs on Linux, but this system is {sys.platform}: install it on a Linux machine, container or WSL 2"
        )
    if "CXX" not in os.environ and not any(map(shutil.which, ("c++", "g++", "clang++"))):
        raise SystemExit(
            "libzero is compiled here, but there is no C++ compiler: install GCC 11 or Clang 14 or newer "
            "(apt install g++, dnf install gcc-c++), or use a wheel from scripts/wheels, which needs none"
        )


def _as_platlib(wheel: Path) -> None:
    """Move the package to the root of the wheel. The package works with every Python 3, so Meson installs it as pure
    Python, but the library inside is built for one platform. Manual pages and completions are moved to share, which
    meson-python maps to the root of the environment."""
    whole = wheel.with_suffix(".tmp")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as new:
        folder = f"{old.namelist()[0].split('.dist-info/')[0]}.data"
        places = {f"{folder}/purelib/": "", f"{folder}/data/": f"{folder}/data/share/"}
        for entry in old.infolist():
            content = old.read(entry)
            for place, moved in places.items():
                if entry.filename.endswith(".dist-info/RECORD"):
                    content = content.replace(place.encode(), moved.encode())
                entry.filename = entry.filename.replace(place, moved)
            new.writestr(entry, content)
    whole.replace(wheel)


def prepare_metadata_for_build_wheel(folder: str, _settings: Any = None) -> str:
    """Write the metadata that a wheel would have. This needs no compiler."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    meson = (ROOT / "meson.build").read_text(encoding="utf-8")
    project["project"] |= {"version": re.search(r"^  version: '(.*)'", meson, re.MULTILINE)[1], "dynamic": []}
    metadata = mesonpy.Metadata.from_pyproject(project, ROOT)
    target = Path(folder) / f"{metadata.distribution_name}-{metadata.version}.dist-info"
    target.mkdir()
    (target / "METADATA").write_bytes(bytes(metadata.as_rfc822()))
    for notice in metadata.license_files:
        copy = target / "licenses" / notice
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / notice, copy)
    return target.name


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel
get_requires_for_build_wheel = mesonpy.get_requires_for_build_wheel
get_requires_for_build_editable = mesonpy.get_requires_for_build_editable
get_requires_for_build_sdist = mesonpy.get_requires_for_build_sdist


def build_wheel(folder: str, settings: Any = None, _metadata: Any = None) -> Any:
    _need_compiler()
    folder = os.path.abspath(folder)  # the working directory changes below
    name = _from_root("build_wheel", folder, settings)
    _as_platlib(Path(folder) / name)
    return name


def build_editable(folder: str, settings: Any = None, _metadata: Any = None) -> Any:
    _need_compiler()
    return _from_root("build_editable", folder, settings)


def build_sdist(folder: str, settings: Any = None) -> Any:
    return _from_root("build_sdist", folder, settings)
