# SPDX-License-Identifier: Apache-2.0
"""Runs the training of docs/pytorch.md with libzero.torch.Optimizer."""

import torch

torch.set_num_threads(1)


def make_model():
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))


def loss_of(outputs, targets):
    return torch.nn.functional.mse_loss(outputs, targets)


def batches_of(rank, world, done):
    """Yield the batches up to the first step that is saved."""
    for number in range(done, 1000):
        inputs = torch.full((4, 4), number / 1000) + torch.eye(4)
        yield [(inputs, torch.ones(4, 3))] * (2 if number == 999 else 1)


#include "pytorch/without-distributeddataparallel-1.py"
assert done == 1000 and norm > 0 and os.path.isfile("run/step-1000/zero.json")
rates = schedule.get_last_lr()
optimizer.close()

# Start the same program again.
#include "pytorch/without-distributeddataparallel-1.py"
assert done == 1000 and schedule.last_epoch == 1000 and schedule.get_last_lr() == rates
assert [group["lr"] for group in optimizer.param_groups] == rates
