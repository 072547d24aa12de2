# SPDX-License-Identifier: Apache-2.0
"""examples/c/mpi_comm under mpirun: three ranks over MPI end with the bits of three ranks of a local comm.

usage: check_mpi.py [mpi_comm]      (none where it was not built)
"""

import os
import re
import shutil
import subprocess
import sys

if len(sys.argv) == 1 or shutil.which("mpirun") is None:
    print("MPI is not here")
    sys.exit(77)
version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=False).stdout
# More ranks than cores, and as whoever runs the tests.
liberal = ["--oversubscribe", "--allow-run-as-root"] if "Open MPI" in version else []
launchers = re.compile(r"(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_|ZERO_|OMPI_COMM_|PMI_|SLURM_)")
environment = {key: value for key, value in os.environ.items() if not launchers.match(key)}
done = subprocess.run(["mpirun", *liberal, "-n", "3", sys.argv[1]], capture_output=True, text=True,
                      timeout=100, check=False, env=environment)
print(done.stdout, done.stderr)
ranks = sorted(re.findall(r"rank (\d) of 3 over MPI: weight\[0\] is (\S+)", done.stdout))
if done.returncode != 0 or "the bits of a local comm: yes" not in done.stdout:
    sys.exit(f"exit {done.returncode}")
if [rank for rank, _ in ranks] != ["0", "1", "2"] or len({weight for _, weight in ranks}) != 1:
    sys.exit(f"ranks and their weights: {ranks}")
