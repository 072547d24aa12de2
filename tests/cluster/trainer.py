# SPDX-License-Identifier: Apache-2.0
"""Runs one rank, which loads a checkpoint if there is one, trains a few steps, saves, and continues training. The sum
of its gradients does not depend on the number of ranks. Prints a digest of the parameters at the end.

usage: trainer.py FOLDER STEPS
"""

import hashlib
import os
import sys

import libzero

folder, steps = sys.argv[1], int(sys.argv[2])
comm = libzero.Comm.from_env()
memory = libzero.allocate(comm, {"w": (3000,), "b": (7,)})
optimizer = libzero.Optimizer(comm, "adamw", lr=0.01)
optimizer.register(memory.params)
if os.path.exists(folder):
    comm.barrier()
    optimizer.load(folder)
else:
    optimizer.broadcast_params()
for step in range(steps):
    for grads in memory.grads.values():
        view = memoryview(grads)
        for i in range(len(view)):
            view[i] = (i % 9 - 4) / 8
    optimizer.step()
    if step == 1:
        optimizer.save(folder)
digest = hashlib.sha256(b"".join(bytes(memoryview(values)) for values in memory.data.values())).hexdigest()
os.write(1, f"digest {digest}\n".encode())
