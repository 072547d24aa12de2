# SPDX-License-Identifier: Apache-2.0
"""Runs the program of docs/pytorch.md that uses fairscale's classes and changes one line."""

import torch
import torch.distributed

torch.distributed.init_process_group("gloo", "file:///proc/self/cwd/store", rank=0, world_size=1)
model = torch.nn.Linear(4, 3)
#include "pytorch/change-one-import-1.py"
scaler = ShardedGradScaler(enabled=False)
scaler.scale(model(torch.ones(2, 4)).sum()).backward()
scaler.step(optimizer)
torch.distributed.destroy_process_group()
