# SPDX-License-Identifier: Apache-2.0
"""Lets a framework train the small model and save it, as the documentation of the framework shows. An interpreter
that has the framework runs this program. frameworks.py FRAMEWORK FOLDER writes FOLDER/saved, FOLDER/order (the names
of the optimizer's parameters by group) and FOLDER/wanted (the weights at that time and after each of two more
steps)."""

from __future__ import annotations

import copy
import json
import pathlib
import sys
from typing import Any

import torch

from layouts import decayed, small_model, step


class Rows(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, number: int) -> dict[str, torch.Tensor]:
        return {"x": torch.full((4,), number / 8), "labels": torch.ones(3)}


class Net(torch.nn.Module):
    """A model in the form that the Hugging Face Trainer expects."""

    def __init__(self) -> None:
        super().__init__()
        self.net = small_model()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        out = self.net(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


def of_lightning(folder: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters({"lr": 0.03})
            self.net = small_model()

        def training_step(self, batch: Any) -> Any:
            return (self.net(batch["x"]) - batch["labels"]).square().mean()

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.03)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 100)]

    module = Module()
    trainer = lightning.Trainer(
        max_steps=3,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[lightning.pytorch.callbacks.ModelCheckpoint(folder, monitor=None)],
    )
    trainer.fit(module, torch.utils.data.DataLoader(Rows(), batch_size=2))
    trainer.save_checkpoint(f"{folder}/saved")
    return module, trainer.optimizers[0]


def of_trainer(folder: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    import transformers

    model = Net()
    arguments = transformers.TrainingArguments(
        output_dir=f"{folder}/run",
        max_steps=3,
        save_steps=3,
        per_device_train_batch_size=2,
        weight_decay=0.1,
        learning_rate=0.03,
        use_cpu=True,
        report_to=[],
        optim="adamw_torch",
        disable_tqdm=True,
    )
    trainer = transformers.Trainer(model=model, args=arguments, train_dataset=Rows())
    trainer.train()
    pathlib.Path(f"{folder}/run/checkpoint-3").rename(f"{folder}/saved")
    return model, trainer.optimizer.optimizer


def of_accelerate(folder: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    import accelerate

    accelerator = accelerate.Accelerator(cpu=True)
    model = small_model()
    optimizer = torch.optim.AdamW(decayed(model), lr=0.03)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    prepared, wrapped, scheduler = accelerator.prepare(model, optimizer, scheduler)
    for number in range(3):
        wrapped.zero_grad()
        accelerator.backward(prepared(torch.full((2, 4), number / 3)).square().mean())
        wrapped.step()
        scheduler.step()
    accelerator.save_state(f"{folder}/saved")
    wrapped.zero_grad()
    return model, optimizer


def of_peft(folder: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    import peft

    model = peft.get_peft_model(small_model(), peft.LoraConfig(r=2, target_modules=["0", "2"]))
    trained = [param for param in model.parameters() if param.requires_grad]
    for number, param in enumerate(trained):
        torch.nn.init.normal_(param, generator=torch.Generator().manual_seed(number))
    optimizer = torch.optim.AdamW(trained, lr=0.03)
    for number in range(3):
        step(model, optimizer, number)
    model.save_pretrained(f"{folder}/saved")
    torch.save(optimizer.state_dict(), f"{folder}/saved/optimizer.pt")
    return model, optimizer


def of_safetensors(folder: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Save a model with tied weights."""
    import safetensors.torch

    model: Any = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    model[1].weight = model[0].weight
    pathlib.Path(f"{folder}/saved").mkdir()
    safetensors.torch.save_model(model, f"{folder}/saved/model.safetensors")
    return model, torch.optim.AdamW(model.parameters(), lr=0.03)


def of_transformers(folder: str) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Save a model with tied weights in several files."""
    import transformers

    torch.manual_seed(2)
    config = transformers.GPT2Config(
        vocab_size=40, n_positions=8, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(config)
    model.save_pretrained(f"{folder}/saved", max_shard_size="3KB")
    return model, torch.optim.AdamW(model.parameters(), lr=0.03)


def main(framework: str, folder: str) -> None:
    model, optimizer = globals()[f"of_{framework}"](folder)
    names = {param: name for name, param in model.named_parameters()}
    order = [[names[param] for param in group["params"]] for group in optimizer.param_groups]
    pathlib.Path(f"{folder}/order").write_text(json.dumps(order))
    trained = {name: param for name, param in model.named_parameters() if param.requires_grad}
    weights = [copy.deepcopy({name: param.detach() for name, param in trained.items()})]
    for number in range(2):
        for name, param in trained.items():
            param.grad = gradient(name, param, number)
        optimizer.step()
        weights.append({name: param.detach().clone() for name, param in trained.items()})
    torch.save(weights, f"{folder}/wanted")


def gradient(name: str, param: torch.Tensor, number: int) -> torch.Tensor:
    seed = sum(name.encode()) + number
    return torch.randn(param.shape, generator=torch.Generator().manual_seed(seed))


if __name__ == "__main__":
    main(*sys.argv[1:])
