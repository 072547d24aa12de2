# SPDX-License-Identifier: Apache-2.0
"""The loop that README.md shows for PyTorch."""

import os

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")


def make_model():
    return torch.nn.Linear(4, 3)


def loss_of(outputs, targets):
    return torch.nn.functional.mse_loss(outputs, targets)


class Batches:
    def __iter__(self):
        return ((torch.ones(2, 4), torch.zeros(2, 3)) for _ in range(3))


batches = Batches()
#include "readme/pytorch-1.py"
assert optimizer.state_dict is not None and all(p.grad is not None for p in model.parameters())
torch.distributed.destroy_process_group()

#include "readme/pytorch-2.py"
before = model.weight.detach().clone()
loss_of(model(torch.ones(2, 4)), torch.zeros(2, 3)).backward()
optimizer.step()
assert not torch.equal(before, model.weight)
