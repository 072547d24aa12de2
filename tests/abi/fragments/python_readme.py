# SPDX-License-Identifier: Apache-2.0
"""Runs the loops of README.md and bindings/python/README.md with a small engine."""

import shutil

import numpy as np

batches = range(3)


def forward_backward(data, grads, batch):
    for name, grad in grads.items():
        grad[...] = data[name] - batch


def initialize(data):
    data["w"][...] = 1


#include "readme/python-1.py"
assert optimizer.result().step == 3 and np.all(memory.data["w"] != 1)
optimizer.close()
shutil.rmtree("run")
#include "python/numpy-1.py"
assert optimizer.result().step == 3 and np.all(memory.data["b"] != 0)
