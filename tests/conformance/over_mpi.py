# SPDX-License-Identifier: Apache-2.0
"""Suites of comms over each MPI that is here: three processes of the tests, which mpirun starts, are the ranks.

They are on one host, where a comm over MPI is made because the tests ask for one. Each MPI runs all tests of
comms, and another part of those that compare trainings with one process; with ZERO_TEST_NIGHTLY=1 all of them.

usage: over_mpi.py BUILD [FOLDER]      FOLDER: of MPIs of the standard ABI, beside the one of mpicc
"""

from __future__ import annotations

import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
from dataclasses import dataclass, field

RANKS = "3"
SUITES = ["comm", "comm_failure", "comm_memory"]
LAUNCHERS = re.compile(r"(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_|ZERO_(?!TEST)|OMPI_COMM_|PMI_|SLURM_)")


@dataclass
class Mpi:
    """What starts ranks, and the library that they open."""

    launcher: list[str]
    library: pathlib.Path
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, *command: str, **more: str) -> bool:
        environment = {key: value for key, value in os.environ.items() if not LAUNCHERS.match(key)}
        environment |= {"ZERO_TEST_MPI": str(self.library), **self.environment, **more}
        done = subprocess.run([*self.launcher, "-n", RANKS, *command], env=environment, check=False, timeout=600)
        print(*command, "over", self.library, "exit", done.returncode, flush=True)
        return done.returncode == 0


def standard(folder: pathlib.Path) -> list[Mpi]:
    """Those of the standard ABI, each installed in a folder of its own, where it looks for the rest of itself."""
    return [Mpi([str(library.parents[1] / "bin" / "mpiexec.hydra")], library, {"I_MPI_ROOT": str(library.parents[1])})
            for library in sorted(folder.glob("*/lib/libmpi_abi.so.1"))]


def of_its_own_abi(scratch: pathlib.Path) -> list[Mpi]:
    """The one whose compiler is on the way, with a shim."""
    if not all(map(shutil.which, ("mpicc", "mpirun"))):
        return []
    command = pathlib.Path(__file__).parents[2] / "tools" / "zero-mpi-shim"
    said = subprocess.run([str(command), "mpicc", str(scratch)], capture_output=True, text=True, check=True).stdout
    shim, library = re.fullmatch(r"(.*), for (.*)\n", said).groups()
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout
    # More ranks than cores, and as whoever runs the tests.
    liberal = ["--oversubscribe", "--allow-run-as-root"] if "Open MPI" in version else []
    return [Mpi(["mpirun", *liberal], pathlib.Path(library), {"ZERO_MPI_SHIM": shim})]


def main(build: str, folder: str = "/nowhere") -> int:
    mpis = standard(pathlib.Path(folder).resolve()) + of_its_own_abi(pathlib.Path(build).resolve() / "mpi-shim")
    if not mpis:
        print("no MPI is here")
        return 77
    tests = pathlib.Path(build).resolve() / "tests" / "conformance"
    nightly = os.environ.get("ZERO_TEST_NIGHTLY") == "1"
    sound = True
    for part, mpi in enumerate(mpis):
        shards = {} if nightly else {"GTEST_TOTAL_SHARDS": "3", "GTEST_SHARD_INDEX": str(part % 3)}
        for suite in SUITES:
            sound &= mpi.run(str(tests / f"{suite}_test"))
        sound &= mpi.run(str(tests / "mpi_test"), "--gtest_filter=-*funneled*")
        sound &= mpi.run(str(tests / "mpi_test"), "--gtest_filter=*funneled*", ZERO_TEST_MPI_LEVEL="1")
        sound &= mpi.run(str(tests / "equivalence_test"), "--gtest_filter=*OverMpi*", **shards)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{len(mpis)} MPIs, {used.ru_utime + used.ru_stime:.0f} s of CPU")
    return 0 if sound else 1


sys.exit(main(*sys.argv[1:]))
