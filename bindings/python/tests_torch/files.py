# SPDX-License-Identifier: Apache-2.0
"""Provides checkpoints of libzero for the tests of `python -m libzero` export and import."""

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
# The options that import a model without an optimizer, which then starts from the beginning.
ALONE = ("import", "--rule", "adamw", "--from")
# Settings that make a rule use all of its state.
SETTINGS: dict[str, dict[str, float]] = {
    "adamw": {"amsgrad": 1},
    "sgd": {"momentum": 0.9},
    "lars": {"momentum": 0.9},
    "rmsprop": {"momentum": 0.9, "centered": 1},
}


def save(directory: str, rule: str, *, second: Any = None, **settings: float) -> None:
    """Save a checkpoint after some steps. Its parameters have several dtypes and groups, and it has a buffer. The
    second group follows the rule `second` if that is given."""
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
        optimizer.register(memory.params[2:], lr=0.125, optimizer=second)
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
    """Rewrite an archive as zip programs do. `records` replace the records of the same names."""
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in held.items():
            archive.writestr(name, records.get(os.path.basename(name), data))


def break_header(path: str) -> None:
    """Damage the local header of the last tensor in a zip archive."""
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
        """Return the exit status and libzero's own messages on standard error."""
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
