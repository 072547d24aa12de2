# SPDX-License-Identifier: Apache-2.0
"""Provides the program that ZERO_TOOL names, and checkpoints that the Python package saves, for the tests of zero."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

ZERO = os.environ.get("ZERO_TOOL", "zero")
ZERO_RUN = os.environ.get("ZERO_RUN", "zero-run")
# Commands that read a checkpoint and write something else.
WRITERS = (["merge"], ["reshard", "--world", "3"], ["export", "--to", "hf"])

# Saves some steps of a small model in the directory that the first argument gives. With "nudge", one bit is changed.
SAVE = """
import sys
import libzero

directory, steps, *words = sys.argv[1:]
shapes = {"h.0.weight": (50, 70), "h.0.bias": (3000,), "none": (0,), "h.1.half": (999,), "wide": (2, 3)}
dtypes = {"h.1.half": "bfloat16", "wide": "float64"}
codes = {"h.1.half": "H", "wide": "d"}
comm = libzero.Comm.from_env()
params = [libzero.Param(name, shape=shape, dtype=dtypes.get(name)) for name, shape in shapes.items()]
memory = libzero.allocate(comm, params)

def flat(array, name):
    return memoryview(array).cast("B").cast(codes.get(name, "f"))

optimizer = libzero.Optimizer(comm, "adamw", lr=0.5 if "lr" in words else 0.25)
if "half" in words:  # the state of a group is stored in bf16
    optimizer.register([param for param in memory.params if param.name != "wide"], state_dtype="bfloat16")
optimizer.register([param for param in memory.params if "half" not in words or param.name == "wide"])
buffers = {"seen": bytearray(8)}
optimizer.register_buffers([libzero.ModelBuffer("seen", memoryview(buffers["seen"]).cast("q"))])
for name, shape in shapes.items():
    if name != "none":
        if comm.rank == 0:
            values = flat(memory.data[name], name)
            for i in range(len(values)):
                values[i] = 0x3f80 + i % 7 if name == "h.1.half" else i % 11 - 5
        grads = flat(memory.grads[name], name)
        for i in range(len(grads)):
            grads[i] = 0x3f00 if name == "h.1.half" else (i % 5 - 2) / 4
optimizer.broadcast_params()
for _ in range(int(steps)):
    optimizer.step()
if "nudge" in words:
    values = flat(memory.data["h.0.weight"], "").cast("B").cast("I")
    values[17] ^= 8
if "extras" in words:
    optimizer.state_extra_set("random", bytes(100 + comm.rank))
optimizer.save(directory)
"""


def zero(*arguments, **options):
    return subprocess.run([ZERO, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False,
                          stdin=subprocess.DEVNULL, **options)


def save(directory, world, *words):
    subprocess.run([ZERO_RUN, "-n", str(world), sys.executable, "-c", SAVE, directory, *words], timeout=60, check=True)


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 64]))


def read_tensors(path):
    """Return the tensors by name (dtype, shape and bytes) and the metadata, read as the safetensors format
    specifies."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__")
    begin = 8 + length
    return metadata, {name: (entry["dtype"], entry["shape"], data[begin + entry["data_offsets"][0] :
                                                                  begin + entry["data_offsets"][1]])
                      for name, entry in header.items()}


class ZeroTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name

    def checkpoint(self, name, world=1, *words):
        """Return the directory of a checkpoint, which is saved only once."""
        directory = os.path.join(self.folder, name)
        if not os.path.exists(directory):
            save(directory, world, *(words or ("2",)))
        return directory

    def own(self, *words):
        """Return a checkpoint that a test may damage."""
        folder = tempfile.mkdtemp(dir=self.folder)
        return self.checkpoint(os.path.join(os.path.basename(folder), "mine"), 2, *words)

    def refused(self, words, *arguments, **options):
        done = zero(*arguments, **options)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, rf"^zero \w+: .*{words}.*\n$")
        return done
