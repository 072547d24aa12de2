# SPDX-License-Identifier: Apache-2.0
"""One thread a rank, and one before ranks are forked. Libraries read this when they are loaded, so
it is imported before any module that loads torch."""

import os

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
