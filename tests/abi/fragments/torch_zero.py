# SPDX-License-Identifier: Apache-2.0
"""In docs/pytorch.md a program keeps torch's ZeroRedundancyOptimizer, and changes one line."""

import torch
import torch.distributed

torch.distributed.init_process_group("gloo", "file:///proc/self/cwd/store", rank=0, world_size=1)
ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 3))
#include "pytorch/from-pytorch-1.py"
ddp(torch.ones(2, 4)).sum().backward()
optimizer.step()
torch.distributed.destroy_process_group()
