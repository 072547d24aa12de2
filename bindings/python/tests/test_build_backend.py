# SPDX-License-Identifier: Apache-2.0
"""Tests what pip reports before anything is compiled. scripts/check-wheel compares this metadata with the metadata of
a wheel."""

from __future__ import annotations

import importlib.util
import os
import sys
import unittest
from pathlib import Path
from types import ModuleType
from unittest import mock

BACKEND = Path(__file__).resolve().parents[1] / "build_backend.py"


def backend(mesonpy: object) -> ModuleType:
    """Return the module with a stand-in for meson-python, which these tests do not need."""
    spec = importlib.util.spec_from_file_location("build_backend", BACKEND)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    tomli = {} if sys.version_info >= (3, 11) else {"tomli": mock.MagicMock()}
    with mock.patch.dict(sys.modules, {"mesonpy": mesonpy, **tomli}):  # type: ignore[dict-item]
        spec.loader.exec_module(module)
    return module


class RefusalTest(unittest.TestCase):
    def build(self, platform: str, **environment: str) -> str:
        mesonpy = mock.MagicMock()
        with mock.patch.object(sys, "platform", platform), mock.patch.dict(os.environ, environment, clear=True):
            module = backend(mesonpy)
            for hook in (module.build_wheel, module.build_editable):
                with self.assertRaises(SystemExit) as raised:
                    hook("/nowhere")
        mesonpy.build_wheel.assert_not_called()
        mesonpy.build_editable.assert_not_called()
        return str(raised.exception)

    def test_another_system_is_named_before_a_compiler_is_looked_for(self) -> None:
        for platform in ("darwin", "win32"):
            self.assertIn(f"libzero runs on Linux, but this system is {platform}: ", self.build(platform, PATH="/nowhere"))

    def test_without_a_compiler_the_least_ones_and_their_packages_are_named(self) -> None:
        said = self.build("linux", PATH="/nowhere")
        self.assertIn("GCC 11 or Clang 14", said)
        self.assertIn("apt install g++, dnf install gcc-c++", said)

    def test_metadata_need_no_compiler(self) -> None:
        """Resolvers ask for metadata on any system."""
        mesonpy = mock.MagicMock()
        mesonpy.Metadata.from_pyproject.side_effect = StopIteration
        with mock.patch.object(sys, "platform", "darwin"), mock.patch.dict(os.environ, {"PATH": "/nowhere"}):
            module = backend(mesonpy)
            with self.assertRaises(StopIteration):
                module.prepare_metadata_for_build_wheel("/nowhere")


if __name__ == "__main__":
    unittest.main()
