# SPDX-License-Identifier: Apache-2.0
"""Runs the code in docstrings of libzero with a small engine."""

import numpy as np
from libzero import Comm, CustomOptimizer, Optimizer, allocate

comm = Comm.from_env()
batches = range(3)
wte, wpe = np.ones((5, 4), np.float32), np.ones(3, np.float32)
dwte, dwpe = np.ones_like(wte), np.ones_like(wpe)


def forward_backward(batch):
    dwte[...] = batch + 1
    dwpe[...] = batch - 1


#include "libzero/Optimizer-1.py"
assert optimizer.result().step == 3 and np.all(wte < 1)

#include "libzero/CustomOptimizer-1.py"
optimizer.register({"w": wpe}, grads={"w": dwpe})
optimizer.step()
assert "momentum" in optimizer.state_names("w")

optimizer = Optimizer(comm, uneven_inputs="world")
optimizer.register({"wte": wte}, grads={"wte": dwte})
#include "libzero/join-1.py"
assert optimizer.result().step == 3

optimizer = Optimizer(comm)
#include "libzero/allocate-1.py"
memory.data["w"][...] = 0x3F80
assert memory.data["w"].shape == (784, 10)
