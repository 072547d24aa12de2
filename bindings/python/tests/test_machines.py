# SPDX-License-Identifier: Apache-2.0
"""Tests that training on machines that lack a feature gives bitwise the same results as on any
other machine."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import libzero

# Ranks are threads and do not use numpy, because numpy may itself need more than the machine has.
TRAIN = """
import ctypes, os, sys, threading
sys.modules["numpy"] = None
import libzero

def train(rank):
    comm = libzero.Comm.solo()
    if world > 1:
        comm = libzero.Comm.local(f"machine-{os.getpid()}", rank, world, late_ms=20000)
    memory = libzero.allocate(comm, {"w": (199,)})
    with libzero.Optimizer(comm, "adamw", lr=0.1, max_grad_norm=1) as optimizer:
        optimizer.register(memory.params)
        optimizer.broadcast_params()
        for step in range(3):
            for at in range(199):
                memory.grads["w"][at] = (at * 37 + rank * 11 + step) % 101 / 100 - 0.5
            optimizer.step()
        optimizer.save("checkpoint")
        optimizer.load("checkpoint")
        if rank == 0:
            print(libzero.build_info()["isa"])
            print(bytes(memory.data["w"].cast("B")).hex())
        comm.barrier()

world = int(sys.argv[1])
threads = [threading.Thread(target=train, args=[rank]) for rank in range(world)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def trained(world: int, *prefix: str, **environment: str) -> str:
    """Return the output of a Python process that is started with `prefix` and saves into a separate
    folder."""
    inside = {"LIBZERO_PATH": libzero.library_path(), "PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*prefix, os.path.realpath(sys.executable), "-B", "-c", TRAIN, str(world)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=folder,
            env={**os.environ, **inside, **environment},
        )
    if done.returncode != 0 or done.stderr:  # a thread that raises an exception prints it
        raise AssertionError(done.stderr)
    return done.stdout


def in_namespace(commands: str) -> list[str]:
    """Return a command prefix that runs `commands` first, in a mount namespace that only the
    command sees."""
    return ["unshare", "--map-root-user", "--mount", "sh", "-ec", f'{commands}\nexec "$@"', "-"]


def can_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    command = [*in_namespace("mount -t tmpfs none /proc"), "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_mount = unittest.skipUnless(can_mount(), "no mount namespaces here")


class MachineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.elsewhere = trained(2)

    @unittest.skipUnless(
        platform.machine() == "x86_64" and shutil.which("qemu-x86_64"), "qemu-x86_64 is not here"
    )
    def test_a_processor_without_vectors_trains_with_the_same_bits(self) -> None:
        old = ["qemu-x86_64", "-cpu", "Nehalem"]
        # Use one rank, because qemu lacks the robust futexes with which ranks detect a death.
        loops, values = trained(1, *old).splitlines()
        self.assertEqual(loops.partition(" of ")[0], "scalar")
        self.assertEqual(values, trained(1).splitlines()[1])

    @needs_mount
    def test_ranks_train_and_save_where_there_is_no_proc(self) -> None:
        commands = "mount -t tmpfs none /proc && test ! -e /proc/self"
        self.assertEqual(trained(2, *in_namespace(commands)), self.elsewhere)

    @needs_mount
    def test_nothing_is_written_at_home_nor_into_caches(self) -> None:
        with tempfile.TemporaryDirectory() as home:
            commands = 'mount -t tmpfs -o ro none "$HOME" && ! touch "$HOME/x" 2>/dev/null'
            places = {"HOME": home, "XDG_CACHE_HOME": home, "XDG_CONFIG_HOME": home, "TMPDIR": home}
            self.assertEqual(trained(2, *in_namespace(commands), **places), self.elsewhere)
            self.assertEqual(trained(2, **places), self.elsewhere)
            self.assertEqual(list(Path(home).iterdir()), [])


if __name__ == "__main__":
    unittest.main()
