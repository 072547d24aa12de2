# SPDX-License-Identifier: Apache-2.0
"""What tests of `python -m libzero` export and import have in common: checkpoints that libzero saves."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest
import zipfile
from typing import Any
from unittest import mock

import torch

import libzero
from libzero.torch import _commands

ZERO = os.environ.get("ZERO_TOOL", "zero")
FORMATS = ("torch", "dcp")
# A model without an optimizer, which begins.
ALONE = ("import", "--rule", "adamw", "--from")
# Settings with which a rule has all of its state.
SETTINGS: dict[str, dict[str, float]] = {
    "adamw": {"amsgrad": 1},
    "sgd": {"momentum": 0.9},
    "lars": {"momentum": 0.9},
    "rmsprop": {"momentum": 0.9, "centered": 1},
}


def save(directory: str, rule: str, **settings: float) -> None:
    """A checkpoint of some steps with parameters of several types and groups, and a buffer."""
    shapes = {
        "a.weight": (30, 7),
        "a.bias": (7,),
        "none": (0, 3),
        "b.half": (99,),
        "b.wide": (3, 2),
    }
    dtypes = {"b.half": "bfloat16", "b.wide": "float64"}
    with libzero.Comm.solo() as comm:
        params = [
            libzero.Param(name, shape=shape, dtype=dtypes.get(name))
            for name, shape in shapes.items()
        ]
        memory = libzero.allocate(comm, params)
        optimizer = libzero.Optimizer(comm, rule, **settings)
        optimizer.register(memory.params[:2])
        optimizer.register(memory.params[2:], lr=0.125)
        optimizer.register_buffers(
            [libzero.ModelBuffer("seen", memoryview(bytearray(range(8))).cast("q"))]
        )
        for number, name in enumerate(shapes):
            for held, seed in ((memory.data[name], number), (memory.grads[name], number + 99)):
                if 0 not in shapes[name]:
                    bits = memoryview(held).cast("B")
                    values = torch.frombuffer(
                        bits, dtype=getattr(torch, dtypes.get(name, "float32"))
                    )
                    torch.manual_seed(seed)
                    values.copy_(torch.randn(len(values)))
        optimizer.broadcast_params()
        for _ in range(3):
            optimizer.step()
        optimizer.save(directory)
        optimizer.close()


def zip_again(path: str, compression: int = zipfile.ZIP_STORED, **records: bytes) -> None:
    """Write a zip archive again as zip programs do, with `records` in place of those of that name."""
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in held.items():
            archive.writestr(name, records.get(os.path.basename(name), data))


def break_header(path: str) -> None:
    """Break what stands before the bytes of the last tensor of a zip archive, or of several."""
    whole = pathlib.Path(path).read_bytes()
    place = whole.rindex(b"PK\3\4", 0, whole.rindex(b"data/0", 0, whole.rindex(b"PK\1\2")))
    pathlib.Path(path).write_bytes(whole[:place] + b"Pk" + whole[place + 2 :])


class FilesTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        path = os.pathsep.join([os.path.dirname(os.path.abspath(ZERO)), os.environ["PATH"]])
        patched = mock.patch.dict(os.environ, {"PATH": path})
        patched.start()
        self.addCleanup(patched.stop)

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def run_main(self, *arguments: str) -> tuple[int, str]:
        """What it returns, and its own words on the error stream."""
        errors = io.StringIO()
        taken = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            status = _commands.main(arguments)
        for number, handler in taken.items():
            signal.signal(number, handler)
        return status, errors.getvalue()

    def done(self, *arguments: str) -> None:
        self.assertEqual(self.run_main(*arguments), (0, ""))

    def refused(self, words: str, *arguments: str) -> None:
        before = sorted(os.listdir(self.folder))
        status, errors = self.run_main(*arguments)
        self.assertEqual(status, 1)
        self.assertRegex(errors, rf"^python -m libzero \w+: .*{words}.*\n$")
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def same(self, one: str, other: str) -> None:
        done = subprocess.run(
            [ZERO, "diff", one, other], capture_output=True, text=True, timeout=60, check=False
        )
        self.assertEqual((done.stdout, done.stderr), ("no difference\n", ""))

    def inspected(self, checkpoint: str) -> Any:
        done = subprocess.run(
            [ZERO, "inspect", "--json", checkpoint], capture_output=True, timeout=60, check=True
        )
        return json.loads(done.stdout)
