# SPDX-License-Identifier: Apache-2.0
"""What peer_defects.py runs: cases on fresh processes, on one side with the originals, on the other
with libzero's classes of the same names, and a plain torch optimizer in one process that says what
is right."""

import os

# One thread a rank, and none before ranks are forked: the libraries read it when they are loaded.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
