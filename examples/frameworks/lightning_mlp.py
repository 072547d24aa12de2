# SPDX-License-Identifier: Apache-2.0
"""A small Lightning module, on the ranks that torchrun starts: DDP reduces the gradients."""

import os
import sys

import lightning
import torch
from libzero.torch import ZeroRedundancyOptimizer
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))

    def training_step(self, batch, _):
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.layers(inputs), targets)
        self.log("loss", loss, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return ZeroRedundancyOptimizer(self.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-2)


def data():
    inputs = torch.randn(64, 16, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, inputs[:, :4] * inputs[:, 1:5])


def trainer(epochs):
    return lightning.Trainer(accelerator="cpu", strategy="ddp", devices=int(os.environ["WORLD_SIZE"]), max_epochs=epochs,
                             logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)


lightning.seed_everything(0)
loader = DataLoader(data(), batch_size=8 // int(os.environ["WORLD_SIZE"]))
first = trainer(2)
first.fit(Model(), loader)
first.save_checkpoint(sys.argv[1])  # with the whole state, of any number of ranks
second = trainer(4)
second.fit(Model(), loader, ckpt_path=sys.argv[1])
print(f"loss {second.callback_metrics['loss']:.5f}")
