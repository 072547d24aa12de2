# SPDX-License-Identifier: Apache-2.0
"""Runs the first programs of docs/pytorch.md. One replaces torch's ZeroRedundancyOptimizer by changing one line, and
one has no DDP."""

import torch
import torch.distributed

torch.distributed.init_process_group("gloo", "file:///proc/self/cwd/store", rank=0, world_size=1)
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 3))
#include "pytorch/from-pytorch-1.py"
ddp(torch.ones(2, 4)).sum().backward()
optimizer.step()
torch.distributed.destroy_process_group()


def make_model():
    return torch.nn.Linear(4, 3)


def loss_of(outputs, targets):
    return torch.nn.functional.mse_loss(outputs, targets)


batches = [(torch.ones(2, 4), torch.zeros(2, 3))] * 2
#include "pytorch/from-pytorch-2.py"
assert optimizer.result().step == 2
