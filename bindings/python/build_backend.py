# SPDX-License-Identifier: Apache-2.0
"""`pip install bindings/python` does what `pip install .` does in the root of the checkout, where meson.build
is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import mesonpy

ROOT = Path(__file__).resolve().parents[2]


def _from_root(hook: str, folder: str, *arguments: Any) -> Any:
    folder = os.path.abspath(folder)
    os.chdir(ROOT)
    return getattr(mesonpy, hook)(folder, *arguments)


def get_requires_for_build_wheel(settings: Any = None) -> Any:
    return mesonpy.get_requires_for_build_wheel(settings)


def get_requires_for_build_editable(settings: Any = None) -> Any:
    return mesonpy.get_requires_for_build_editable(settings)


def get_requires_for_build_sdist(settings: Any = None) -> Any:
    return mesonpy.get_requires_for_build_sdist(settings)


def build_wheel(folder: str, settings: Any = None, _metadata: Any = None) -> Any:
    return _from_root("build_wheel", folder, settings)


def build_editable(folder: str, settings: Any = None, _metadata: Any = None) -> Any:
    return _from_root("build_editable", folder, settings)


def build_sdist(folder: str, settings: Any = None) -> Any:
    return _from_root("build_sdist", folder, settings)
