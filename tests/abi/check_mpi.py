# SPDX-License-Identifier: Apache-2.0
"""Runs examples/c/mpi_comm under mpirun, and checks that three ranks over MPI give bitwise the same result as three
ranks of a local comm.

usage: check_mpi.py [mpi_comm]      (no argument if it was not built)
"""

import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mpi"))
import mpis  # noqa: E402

if len(sys.argv) == 1 or shutil.which("mpirun") is None:
    print("MPI is not here")
    sys.exit(77)
done = subprocess.run(["mpirun", *mpis.liberal("mpirun"), "-n", "3", sys.argv[1]], capture_output=True, text=True,
                      timeout=100, check=False, env=mpis.environment())
print(done.stdout, done.stderr)
ranks = sorted(re.findall(r"rank (\d) of 3 over MPI: weight\[0\] is (\S+)", done.stdout))
if done.returncode != 0 or "the bits of a local comm: yes" not in done.stdout:
    sys.exit(f"exit {done.returncode}")
if [rank for rank, _ in ranks] != ["0", "1", "2"] or len({weight for _, weight in ranks}) != 1:
    sys.exit(f"ranks and their weights: {ranks}")
