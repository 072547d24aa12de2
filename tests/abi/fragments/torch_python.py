# SPDX-License-Identifier: Apache-2.0
"""Runs the optimizer for PyTorch in bindings/python/README.md."""

import torch

model = torch.nn.Linear(4, 3)
#include "python/pytorch-1.py"
before = model.weight.detach().clone()
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
assert not torch.equal(before, model.weight)
