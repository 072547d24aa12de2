# SPDX-License-Identifier: Apache-2.0
"""Runs a rank that initializes MPI, creates a file in a folder, waits for the file `go` in that folder, and then
reports that it is alive.

usage: waiter.py FOLDER RANK      (RANK: the variable that has the rank)
"""

import ctypes
import os
import sys
import time

folder, rank = sys.argv[1], os.environ[sys.argv[2]]
ctypes.CDLL(os.environ["ZERO_TEST_MPI"], ctypes.RTLD_GLOBAL).MPI_Init(None, None)
open(f"{folder}/begun.{rank}", "w", encoding="utf-8").close()
while not os.path.exists(f"{folder}/go"):
    time.sleep(0.01)
open(f"{folder}/lives.{rank}", "w", encoding="utf-8").close()
# Sleep until the host ends. An exit without MPI_Finalize may end the other ranks, and MPI_Finalize waits for dead
# ranks.
time.sleep(1000)
