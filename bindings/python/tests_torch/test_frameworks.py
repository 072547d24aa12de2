# SPDX-License-Identifier: Apache-2.0
"""Tests that files written by the frameworks are imported, and that training then continues as it would in the
framework. These tests run only at night, and install the frameworks in a separate environment."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest
from typing import Any

import torch

import libzero.torch

from files import ZERO, FilesTest
from frameworks import gradient

PACKAGES = ("lightning", "transformers", "accelerate", "peft", "safetensors")


def environment() -> str:
    """Return an interpreter that has the frameworks and the torch of this interpreter."""
    told = os.environ.get("ZERO_FRAMEWORKS_PYTHON")
    if told:
        return told
    folder = tempfile.mkdtemp()
    unittest.addModuleCleanup(shutil.rmtree, folder)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    (site,) = pathlib.Path(folder).glob("lib/python*/site-packages")
    (site / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [f"{folder}/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*install, *PACKAGES], check=True, timeout=900)
    return f"{folder}/bin/python"


@unittest.skipUnless(os.environ.get("ZERO_TEST_NIGHTLY"), "frameworks are installed at night")
class Frameworks(FilesTest):
    python: str

    @classmethod
    def setUpClass(cls) -> None:
        cls.python = environment()

    def made(self, framework: str) -> list[list[str]]:
        """Train with a framework, which writes the files. Return the names of each group of its optimizer."""
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "frameworks.py")
        done = subprocess.run(
            [self.python, script, framework, self.folder],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        order: list[list[str]] = json.loads(pathlib.Path(self.path("order")).read_text())
        return order

    def goes_on(self, order: list[list[str]], *, steps: int = 2, renamed: Any = str) -> None:
        wanted = torch.load(self.path("wanted"))
        said = self.inspected(self.path("back"))
        self.assertEqual(len(said["groups"]), len(order))
        params = {name: torch.nn.Parameter(torch.zeros_like(one)) for name, one in wanted[0].items()}
        groups = [{"params": [(renamed(name), params[name]) for name in mine]} for mine in order]
        with libzero.torch.Optimizer(groups, "adamw") as optimizer:  # type: ignore[arg-type]
            optimizer.load(self.path("back"))
            for number in range(steps + 1):
                for name, value in wanted[number].items():
                    torch.testing.assert_close(params[name].detach(), value, rtol=1e-5, atol=1e-6)
                    params[name].grad = gradient(name, value, number)
                if number < steps:
                    optimizer.step()

    def taken(self, *options: str) -> str:
        status, told = self.run_main("import", *options, self.path("saved"), self.path("back"))
        self.assertEqual(status, 0, told)
        return told

    def write_names(self, order: list[list[str]]) -> str:
        pathlib.Path(self.path("names")).write_text("\n".join(sum(order, [])))
        return self.path("names")

    def test_lightning(self) -> None:
        order = self.made("lightning")
        self.assertIn("'loops'", self.taken("--from", "torch"))
        self.goes_on(order)

    def test_trainer(self) -> None:
        order = self.made("trainer")
        self.assertEqual(len(order), 2)
        self.refused("without names", "import", "--from", "torch", self.path("saved"), self.path("back"))
        self.taken("--from", "torch", "--order", self.write_names(order))
        self.goes_on(order)

    def test_accelerate(self) -> None:
        order = self.made("accelerate")
        told = ("import", "--from", "torch", "--order", "dimensions", self.path("saved"), self.path("back"))
        self.refused("in no order of registration", *told)  # safetensors sorts names
        self.taken("--from", "torch", "--order", self.write_names(order))
        self.goes_on(order)

    def test_peft(self) -> None:
        order = self.made("peft")
        names = [[in_file(name) for name in mine] for mine in order]
        self.taken("--from", "torch", "--order", self.write_names(names))
        self.goes_on(order, renamed=in_file)

    def test_tied_weights(self) -> None:
        for framework in ("safetensors", "transformers"):
            with self.subTest(framework):
                shutil.rmtree(self.path("saved"), ignore_errors=True)
                (names,) = self.made(framework)
                command = [ZERO, "import", "--replace", "--from", "hf", self.path("saved")]
                subprocess.run([*command, self.path("back")], check=True, timeout=60)
                self.goes_on([names], steps=0)


def in_file(name: str) -> str:
    """Return the name in the file, from which PEFT omits the name of the adapter."""
    return name.replace(".default.", ".")


if __name__ == "__main__":
    unittest.main()
