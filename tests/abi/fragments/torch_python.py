# SPDX-License-Identifier: Apache-2.0
"""The optimizer that bindings/python/README.md shows for PyTorch."""

import torch

model = torch.nn.Linear(4, 3)
#include "python/pytorch-1.py"
before = model.weight.detach().clone()
model(torch.ones(2, 4)).sum().backward()
optimizer.step()
assert not torch.equal(before, model.weight)
