# SPDX-License-Identifier: Apache-2.0
"""Tests Comm.mpi with communicators of the mpi4py wheel over each MPI from the Python index. The wheel loads
libmpi.so.12 or libmpi.so.40, which need a shim, even if the same MPI also provides the standard ABI."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import mpis

FOLDER = pathlib.Path(os.environ.get("ZERO_TEST_MPIS", mpis.ROOT / "build" / "mpi")).resolve()
# For each MPI: its folder, its launcher, the folder whose mpicc makes the shim, and the name of its library. Intel's
# mpicc is not on the index, and its libmpi.so.12 has the ABI of MPICH.
MPIS = {"mpich": ("mpiexec.hydra", "mpich", "libmpi.so.12"),
        **({"impi-rt": ("mpiexec.hydra", "mpich", "libmpi.so.12"),
            "openmpi": ("mpirun", "openmpi", "libmpi.so.40")} if mpis.NIGHTLY else {})}
TRAIN = """
import ctypes
from mpi4py import MPI
import libzero
weight, grad = (ctypes.c_float * 1)(1), (ctypes.c_float * 1)(1 + MPI.COMM_WORLD.rank)
with libzero.Comm.mpi(MPI.COMM_WORLD) as comm, libzero.Optimizer(comm, "sgd", lr=1.0) as optimizer:
    optimizer.register({"w": weight}, grads={"w": grad})
    optimizer.broadcast_params()
    optimizer.step()
    print(f"rank {comm.rank} of {comm.world}: {weight[0]}\\n", end="", flush=True)
"""


def root_of(name: str) -> pathlib.Path:
    for folder in FOLDER.glob(f"{name}==*"):
        return folder
    raise unittest.SkipTest(f"{name} is not here: scripts/test --with-mpi brings it")


def as_for_development(root: pathlib.Path, library: str, folder: pathlib.Path) -> pathlib.Path:
    """Copy the MPI, and name the library as for compiling programs, because the wheel looks for this name first."""
    for of in (root, root / "lib"):
        made = folder / of.relative_to(root)
        made.mkdir()
        for one in of.iterdir():
            if one.name not in ("lib", "libmpi.so"):
                (made / one.name).symlink_to(one)
    alias = folder / "lib" / "libmpi.so"
    alias.symlink_to(root / "lib" / library)
    return alias


class Mpi4Py(unittest.TestCase):
    def run_with(self, name: str, **more: str) -> tuple[int, str]:
        root, launcher = root_of(name), MPIS[name][0]
        package = next(root_of("mpi4py").glob("lib*/python*/site-packages"))
        paths = {"LD_LIBRARY_PATH": root / "lib", "PYTHONPATH": package}
        environment = mpis.environment() | {
            key: os.pathsep.join((str(path), os.environ.get(key, ""))) for key, path in paths.items()}
        program = str(root / "bin" / launcher)
        command = [program, *mpis.liberal(program), "-n", "2", sys.executable, "-c", TRAIN]
        done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False,
                              env=environment | {"I_MPI_ROOT": str(root), **more})
        return done.returncode, done.stdout

    def assert_trains(self, name: str, **more: str) -> None:
        status, said = self.run_with(name, **more)
        self.assertEqual(status, 0, said)
        for rank in range(2):
            self.assertIn(f"rank {rank} of 2: -0.5", said)

    def test_its_communicators_make_comms_with_a_shim_and_are_told_of_it_without(self) -> None:
        for name, (_, compiler, library) in MPIS.items():
            with self.subTest(name), tempfile.TemporaryDirectory(prefix="zero-mpi4py-") as folder:
                root, mpicc = root_of(name), str(root_of(compiler) / "bin" / "mpicc")
                made = mpis.TESTS.parent / "tools" / "zero-mpi-shim"
                home = {"XDG_DATA_HOME": folder}
                subprocess.run([str(made), mpicc], capture_output=True, check=True, env=os.environ | home)
                shim = pathlib.Path(folder, "libzero", f"libzero_mpi-{library}")
                self.assert_trains(name, ZERO_MPI_SHIM=str(shim))
                self.assert_trains(name, **home)
                alias = str(as_for_development(root, library, pathlib.Path(folder, "mpi")))
                self.assert_trains(name, MPI4PY_LIBMPI=alias, **home)
                for loaded in (library, alias):
                    status, said = self.run_with(name, MPI4PY_LIBMPI=loaded, XDG_DATA_HOME=f"{folder}/none")
                    self.assertNotEqual(status, 0)
                    self.assertIn("does not have MPI's standard ABI, and libzero has no shim for it", said)
                    self.assertIn(f"/none/libzero/{shim.name}: cannot open", said)


if __name__ == "__main__":
    unittest.main()
