# SPDX-License-Identifier: Apache-2.0
"""Runs the loop for PyTorch in README.md, and the drop-in class below it."""

import os

import torch
from torch.nn.parallel import DistributedDataParallel

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")


def make_model():
    return torch.nn.Linear(4, 3)


def loss_of(outputs, targets):
    return torch.nn.functional.mse_loss(outputs, targets)


class Batches:
    def __iter__(self):
        return ((torch.ones(2, 4), torch.zeros(2, 3)) for _ in range(3))


def batches_of(rank, world):
    assert (rank, world) == (0, 1)
    return batches


batches = Batches()
#include "readme/pytorch-1.py"
assert optimizer.result().step == 3

torch.distributed.init_process_group("gloo")
#include "readme/pytorch-2.py"
before = [p.detach().clone() for p in model.parameters()]
for inputs, targets in batches:
    optimizer.zero_grad()
    loss_of(model(inputs), targets).backward()
    optimizer.step()
assert optimizer.state_dict is not None and all(p.grad is not None for p in model.parameters())
assert not any(torch.equal(old, new) for old, new in zip(before, model.parameters()))
torch.distributed.destroy_process_group()
