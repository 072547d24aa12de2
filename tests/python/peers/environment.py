# SPDX-License-Identifier: Apache-2.0
"""Sets one thread for each rank, and for the process that forks ranks. Libraries read these
variables when they are loaded, so import this before any module that loads torch."""

import os

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
