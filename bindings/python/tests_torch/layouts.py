# SPDX-License-Identifier: Apache-2.0
"""Provides a model that torch trained, and the dictionaries in which programs save such a model and its optimizer."""

from __future__ import annotations

import argparse
import copy
import json
import os
import struct
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict as dcp_state

Document = dict[str, Any]


def small_model() -> torch.nn.Sequential:
    """Return a model with tensors of equal shapes, so that shapes do not show a wrong order."""
    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 3)
    )


def step(model: torch.nn.Module, optimizer: Any, seed: int = 3) -> None:
    generator = torch.Generator().manual_seed(seed)
    dtype = next(model.parameters()).dtype
    model(torch.randn(8, 4, generator=generator).to(dtype)).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def trained(
    model: torch.nn.Module,
    optimizer_class: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW,
    groups: Any = None,
    **options: Any,
) -> torch.optim.Optimizer:
    optimizer = optimizer_class(groups or model.parameters(), **{"lr": 0.03, **options})
    for number in range(3):
        step(model, optimizer, number)
    return optimizer


def decayed(model: torch.nn.Module) -> list[dict[str, Any]]:
    """Return groups like those of nanoGPT."""
    params = list(model.parameters())
    return [
        {"params": [param for param in params if param.dim() >= 2], "weight_decay": 0.1},
        {"params": [param for param in params if param.dim() < 2], "weight_decay": 0.0},
    ]


def document(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Document:
    return copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})


# ---- Layouts, as their programs write them. Each returns what an import needs to be told.


def write_safetensors(path: str, tensors: Mapping[str, torch.Tensor], **metadata: str) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **metadata}}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": {torch.float32: "F32", torch.bfloat16: "BF16"}[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    head = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for tensor in tensors.values():
            file.write(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes())


def write_order(path: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Write the order of parameters as docs/tools.md describes."""
    names = {param: name for name, param in model.named_parameters()}
    with open(path, "w", encoding="utf-8") as file:
        print(
            *[names[param] for group in optimizer.param_groups for param in group["params"]],
            sep="\n",
            file=file,
        )
    return ["--order", path]


def lightning(path: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    torch.save(
        {
            "epoch": 1,
            "global_step": 3,
            "pytorch-lightning_version": "2.6.6",
            "state_dict": model.state_dict(),
            "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 1}}}},
            "callbacks": {"ModelCheckpoint{}": {"best_model_score": torch.tensor(0.5)}},
            "optimizer_states": [optimizer.state_dict()],
            "lr_schedulers": [{"last_epoch": 3, "_last_lr": [0.03]}],
            "hparams_name": "kwargs",
            "hyper_parameters": {"lr": 0.03},
        },
        path,
    )
    return []


def trainer(path: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    os.mkdir(path)
    write_safetensors(f"{path}/model.safetensors", model.state_dict())
    torch.save(optimizer.state_dict(), f"{path}/optimizer.pt")
    torch.save({"last_epoch": 3}, f"{path}/scheduler.pt")
    torch.save({"cpu": torch.get_rng_state()}, f"{path}/rng_state.pth")
    for name in ("config.json", "trainer_state.json"):
        with open(f"{path}/{name}", "w", encoding="utf-8") as file:
            file.write("{}")
    return write_order(f"{path}.names", model, optimizer)


def accelerate(path: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    os.mkdir(path)
    torch.save(model.state_dict(), f"{path}/pytorch_model.bin")
    torch.save(optimizer.state_dict(), f"{path}/optimizer.bin")
    torch.save({"last_epoch": 3}, f"{path}/scheduler.bin")
    torch.save({"step": 0}, f"{path}/random_states_0.pkl")
    return []


def save_distributed(path: str, given: Document) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save(given, checkpoint_id=path, no_dist=True)


def distributed(path: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Save as the tutorial of torch.distributed.checkpoint does."""
    weights, state = dcp_state.get_state_dict(model, optimizer)
    save_distributed(path, {"app": {"model": weights, "optim": state}})
    return []


def torchtitan(path: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    options = dcp_state.StateDictOptions(flatten_optimizer_state_dict=True)
    state = dcp_state.get_optimizer_state_dict(model, optimizer, options=options)
    save_distributed(
        path,
        {
            **dcp_state.get_model_state_dict(model),
            "optimizer": state,
            "lr_scheduler": {"last_epoch": 3},
            "train_state": {"step": torch.tensor(3), "ntokens_seen": torch.tensor(9)},
            "dataloader": {"dp_rank_0": b"bytes", "world_size": 1},
        },
    )
    return []


def megatron(path: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Save fp32 parameters. Parameters of 16 bits would also have master weights."""
    weights: dict[str, Any] = {}
    for name, tensor in model.state_dict().items():
        module, _, last = name.rpartition(".")
        weights.setdefault(module, {})[last] = tensor
    torch.save(
        {
            "args": argparse.Namespace(tensor_model_parallel_size=1),
            "checkpoint_version": 3.0,
            "iteration": 3,
            "model": weights,
            "optimizer": {"optimizer": optimizer.state_dict(), "fp32_from_fp16_params": []},
            "opt_param_scheduler": {"max_lr": 0.03, "num_steps": 24},
            "rng_state": [{"torch_rng_state": torch.get_rng_state()}],
            "num_floating_point_operations_so_far": 0,
        },
        path,
    )
    return []


def deepspeed(path: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    torch.save(
        {
            "module": model.state_dict(),
            "buffer_names": [],
            "optimizer": optimizer.state_dict(),
            "param_shapes": None,
            "lr_scheduler": None,
            "skipped_steps": 0,
            "global_steps": 3,
            "dp_world_size": 1,
            "mp_world_size": 1,
            "ds_config": {"train_batch_size": 8},
            "ds_version": "0.19.0",
        },
        path,
    )
    return []


# The format, the writer, and whether the optimizer has groups with and without decay, by name.
LAYOUTS: dict[str, tuple[str, Callable[..., list[str]], bool]] = {
    "lightning": ("torch", lightning, False),
    "trainer": ("torch", trainer, True),
    "accelerate": ("torch", accelerate, False),
    "distributed": ("dcp", distributed, True),
    "torchtitan": ("dcp", torchtitan, False),
    "megatron": ("torch", megatron, False),
    "deepspeed": ("torch", deepspeed, False),
}
