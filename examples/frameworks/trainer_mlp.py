# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer, on the ranks that torchrun starts, with libzero's optimizer. It saves, and resumes."""

import os
import sys

import torch
from libzero.torch import ZeroRedundancyOptimizer
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainingArguments


class Model(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4))
        self.post_init()

    def forward(self, inputs, labels):
        found = self.layers(inputs)
        return {"loss": torch.nn.functional.mse_loss(found, labels), "logits": found}


class Examples(torch.utils.data.Dataset):
    def __init__(self):
        self.inputs = torch.randn(64, 16, generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, i):
        return {"inputs": self.inputs[i], "labels": self.inputs[i, :4] * self.inputs[i, 1:5]}


class WithLibzero(Trainer):
    def create_optimizer(self, *_):
        if self.optimizer is None:
            self.optimizer = ZeroRedundancyOptimizer(
                self.model.parameters(), optimizer_class=torch.optim.AdamW, lr=self.args.learning_rate)
        return self.optimizer

    def _save_optimizer_and_scheduler(self, output_dir):
        self.optimizer.optimizer.consolidate_state_dict()  # on every rank
        super()._save_optimizer_and_scheduler(output_dir)


def trainer(epochs):
    torch.manual_seed(0)
    arguments = TrainingArguments(sys.argv[1], num_train_epochs=epochs, per_device_train_batch_size=8 // world, learning_rate=1e-2,
                                  save_strategy="epoch", logging_strategy="epoch", use_cpu=True, report_to=[], disable_tqdm=True)
    return WithLibzero(Model(PretrainedConfig()), arguments, train_dataset=Examples())


world = int(os.environ["WORLD_SIZE"])
trainer(2).train()
second = trainer(4)
second.train(resume_from_checkpoint=True)
print(f"loss {second.state.log_history[-2]['loss']:.5f}")
