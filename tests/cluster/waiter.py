# SPDX-License-Identifier: Apache-2.0
"""A rank that begins MPI, says so by a file in a folder, waits there for another, `go`, and says that it lives.

usage: waiter.py FOLDER RANK      RANK: the variable that has it
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
time.sleep(1000)  # until the host ends: an end without MPI's may end the others, and MPI's waits for the dead
