# SPDX-License-Identifier: Apache-2.0
"""A loop with accelerate, on the ranks that torchrun starts: prepare, save_state, load_state."""

import sys

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from libzero.torch import ZeroRedundancyOptimizer
from torch.utils.data import DataLoader, TensorDataset


def data():
    inputs = torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, inputs[:, :4] * inputs[:, 1:5])


def prepared(accelerator):
    set_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-2)
    return accelerator.prepare(model, optimizer)


def train(accelerator, model, optimizer, loader, epochs):
    for _ in range(epochs):
        losses = []
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
    return accelerator.reduce(torch.stack(losses).mean(), "mean").item()


accelerator = Accelerator(cpu=True)
loader = accelerator.prepare(DataLoader(data(), batch_size=8 // accelerator.num_processes))
model, optimizer = prepared(accelerator)
# save_state asks every rank for the whole state.
accelerator.register_save_state_pre_hook(lambda *_: optimizer.optimizer.consolidate_state_dict(to=None))
train(accelerator, model, optimizer, loader, 2)
accelerator.save_state(sys.argv[1])
accelerator.wait_for_everyone()
accelerator.load_state(sys.argv[1])
accelerator.print(f"loss {train(accelerator, model, optimizer, loader, 2):.5f}")
