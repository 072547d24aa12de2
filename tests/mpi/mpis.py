# SPDX-License-Identifier: Apache-2.0
"""Finds the installed MPIs, and defines how their launchers start test ranks and which tests these run."""

from __future__ import annotations

import functools
import os
import pathlib
import re
import shutil
import subprocess
import unittest
from dataclasses import dataclass
from typing import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
TESTS = pathlib.Path(os.environ.get("ZERO_TESTS", ROOT / "build" / "test" / "tests"))
NIGHTLY = os.environ.get("ZERO_TEST_NIGHTLY") == "1"
NAMES = ("mpicc", "mpich", "impi", *(("openmpi", "debian_mpich") if NIGHTLY else ()))
# For each MPI that needs a shim: the compiler, the launcher, and their folder if they are not in PATH.
COMPILERS = {"mpicc": ("mpicc", "mpirun", ""), "openmpi": ("mpicc", "mpirun", "openmpi*/bin"),
             "debian_mpich": ("mpicc.mpich", "mpirun.mpich", "")}
# A launcher or the tests' environment could make a test a rank of another job with these variables.
FOREIGN = re.compile(r"(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_|ZERO_(?!TEST|CLUSTER)|OMPI_COMM_|PMI_|SLURM_)")
# The tests of each program in which ranks of a launcher take part.
SUITES = {"comm": "*Conformance*", "comm_failure": "*Conformance*", "comm_memory": "*Conformance*",
          "equivalence": "*OverMpi*"}


@dataclass
class Mpi:
    """An MPI. `rank` is the variable that has a rank's number, and `variables` are the variables that its ranks
    need."""

    launcher: str
    library: pathlib.Path
    rank: str
    variables: dict[str, str]

    def environment(self, **more: str) -> dict[str, str]:
        return {**environment(), "ZERO_TEST_MPI": str(self.library), **self.variables, **more}

    def run(self, ranks: int, program: list[str], **more: str) -> tuple[int, str]:
        """Run ranks on this host. Return the exit status and the output."""
        done = subprocess.run([self.launcher, *liberal(self.launcher), "-n", str(ranks), *program], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.environment(**more),
                              timeout=600, check=False)
        return done.returncode, done.stdout


def environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not FOREIGN.match(key)}


@functools.lru_cache(None)
def open_mpi(launcher: str) -> int:
    """Return the major version of Open MPI, or 0 for another MPI."""
    said = subprocess.run([launcher, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"Open MPI\) (\d+)", said)
    return int(found.group(1)) if found else 0


def liberal(launcher: str) -> list[str]:
    """Return the options that allow more ranks than cores, and any user."""
    return ["--oversubscribe", "--allow-run-as-root"] if open_mpi(launcher) else []


@functools.lru_cache(None)
def find(name: str) -> Mpi | None:
    """Find one of NAMES, which is an MPI by its compiler or an MPI with the standard ABI. MPIs from the Python index
    have separate folders in ZERO_TEST_MPIS (scripts/test --with-mpi), in which each finds its other files."""
    folder = pathlib.Path(os.environ.get("ZERO_TEST_MPIS", ROOT / "build" / "mpi")).resolve()
    if name in COMPILERS:
        compiler, launcher, below = COMPILERS[name]
        path = os.pathsep.join(str(one) for one in folder.glob(below)) if below else None
        return of_compiler(shutil.which(compiler, path=path), shutil.which(launcher, path=path),
                           TESTS.parent / f"{name}-shim")
    for library in sorted(folder.glob(f"{name}*/lib/libmpi_abi.so.1")):
        root = library.parents[1]
        return Mpi(str(root / "bin" / "mpiexec.hydra"), library, "PMI_RANK", {"I_MPI_ROOT": str(root)})
    return None


def of_compiler(compiler: str | None, launcher: str | None, folder: pathlib.Path) -> Mpi | None:
    """Return an MPI with a shim, which is made in the folder."""
    if compiler is None or launcher is None:
        return None
    command = TESTS.parent / "tools" / "zero-mpi-shim"
    said = subprocess.run([str(command), compiler, str(folder)], capture_output=True, text=True, check=True).stdout
    shim, library = said.strip().split(", for ")
    rank = "OMPI_COMM_WORLD_RANK" if open_mpi(launcher) else "PMI_RANK"
    return Mpi(launcher, pathlib.Path(library), rank, {"ZERO_MPI_SHIM": shim})


def of_each(tests: type) -> dict[str, type]:
    """Return a class of the tests for each of NAMES, with that name as `name`."""
    made = {f"{tests.__name__}_{name}": {"name": name} for name in NAMES}
    return {one: type(one, (tests, unittest.TestCase), parts) for one, parts in made.items()}


def why_not(name: str) -> str:
    return f"the MPI of {name} is not here"


def program(test: str, tests: str) -> list[str]:
    return [str(TESTS / "conformance" / f"{test}_test"), f"--gtest_filter={tests}", "--gtest_brief=1",
            "--gtest_color=no"]


def suites(trainings: int, number: int) -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Yield each of SUITES, with its variables. By day, this includes only one in `trainings` of the trainings,
    beginning with `number`."""
    for test, tests in SUITES.items():
        some = {"GTEST_TOTAL_SHARDS": str(trainings), "GTEST_SHARD_INDEX": str(number)}
        yield test, program(test, tests), some if test == "equivalence" and not NIGHTLY else {}


def failure(ranks: int, said: str) -> str:
    """Return the output if a rank failed or ran no tests, and "" otherwise."""
    passed = said.count("PASSED  ]") == ranks and "FAILED" not in said and " 0 tests" not in said
    return "" if passed else said
