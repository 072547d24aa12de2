# SPDX-License-Identifier: Apache-2.0
"""Runs the code in docstrings of libzero.torch."""

import libzero.torch
import torch
import torch.distributed
from libzero.torch import OSS, ShardedDataParallel, ZeroRedundancyOptimizer, hook_with_zero_step
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("gloo", "file:///proc/self/cwd/store", rank=0, world_size=1)
batches = [(torch.ones(2, 4), torch.ones(2, 3))] * 2
loss_of = torch.nn.functional.mse_loss


def train(model):
    loss_of(model(batches[0][0]), batches[0][1]).backward()


model = torch.nn.Linear(4, 3)
#include "libzero.torch/Optimizer-1.py"
assert optimizer.result().step == 2

ddp = DistributedDataParallel(torch.nn.Linear(4, 3))
#include "libzero.torch/ZeroRedundancyOptimizer-1.py"
train(ddp)
optimizer.step()

ddp = DistributedDataParallel(torch.nn.Linear(4, 3))
zero = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.1, overlap_with_ddp=True)
#include "libzero.torch/hook_with_zero_step-1.py"
before = ddp.module.weight.detach().clone()
train(ddp)
assert not torch.equal(before, ddp.module.weight)

model = torch.nn.Linear(4, 3)
#include "libzero.torch/ShardedDataParallel-1.py"
train(model)
optimizer.step()

model = torch.nn.Linear(4, 3)
#include "libzero.torch/OSS-1.py"
train(model)
optimizer.step()
torch.distributed.destroy_process_group()
