# SPDX-License-Identifier: Apache-2.0
"""Code that mypy --strict must accept or reject. mypy also reports an ignore comment on a correct
line."""

from __future__ import annotations

import array
import ctypes
from typing import Any

import numpy as np

from libzero import Comm, CustomOptimizer, Optimizer, Param, allocate, partition_plan, set_log_level
from libzero.typing import Dtype, Settings


def right(comm: Comm, custom: CustomOptimizer, dtype: Dtype) -> None:
    settings: Settings = {"lr": 1e-3, "beta1": 0.8}
    optimizer = Optimizer(comm, "adamw", "greedy", nonfinite="skip", **settings)
    group = optimizer.register([Param("w", shape=3, dtype=dtype)], lr=2, weight_decay=0)
    group.update(eps=1e-6, amsgrad=True)
    group["lr"] = group["lr"] * 0.5
    optimizer.step(reduction="sum")
    optimizer.read_loss_scale_from(None, "float64")
    own = Optimizer(comm, custom, lr=1, wire_dtype="bfloat16", share_dtype=None)
    own.register({}).update(**{"a setting of its own": 2.0})
    comm.all_reduce(comm.arena((3,), "per_rank", dtype="float16"), "max")
    allocate(comm, {"w": 3, "v": (3, 2)}, "lion", dtype="bfloat16", grad_dtype={"w": "float32"})
    partition_plan({"w": 3}, 2, custom, "manual", master="remainder")
    Comm.from_env(device="cuda")
    set_log_level("info")


class SpeaksDLPack:
    def __dlpack__(self, *, stream: int | None = None) -> object:
        return stream

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def arrays(comm: Comm, optimizer: Optimizer, values: np.ndarray[Any, Any]) -> None:
    floats = (ctypes.c_float * 3)()
    optimizer.register({"w": values, "v": np.zeros(2)}, grads={"w": array.array("f")})
    optimizer.register({"w": np.zeros((3, 2), np.float32), "v": np.zeros(2, np.float64)})
    optimizer.register([("w", SpeaksDLPack()), ("v", values, floats), ("u", (4096, (2, 3)))])
    optimizer.register_buffers([("mean", values), ("half", values, "bfloat16")])
    optimizer.register({"w": values}.items())
    optimizer.step([values, None])
    optimizer.step({"w": None, "v": memoryview(floats)})
    optimizer.grad_ready("w", SpeaksDLPack())
    optimizer.state_gather("w").sum()
    optimizer.state_get("w", "exp_avg").sum()
    comm.all_reduce(values).sum()
    comm.broadcast(bytearray(3))


def no_arrays(comm: Comm, optimizer: Optimizer) -> None:
    optimizer.register({"w": [1.0]})  # type: ignore[dict-item]
    optimizer.register({"w": 1.0})  # type: ignore[dict-item]
    optimizer.step([[1.0]])  # type: ignore[list-item]
    optimizer.state_gather("w", to=1).sum()  # type: ignore[union-attr]
    comm.broadcast(1.0)  # type: ignore[arg-type]
    comm.broadcast((4096, "w"), 0)  # type: ignore[arg-type]


def misspelt_settings(comm: Comm, optimizer: Optimizer) -> None:
    Optimizer(comm, learning_rate=1)  # type: ignore[call-arg]
    Optimizer(comm, "adamw", betas=(0.9, 0.999))  # type: ignore[call-arg]
    Optimizer(comm, max_grad_nrom=1)  # type: ignore[call-arg]
    Optimizer(comm, lr="1")  # type: ignore[arg-type]
    optimizer.register({}, weight_decya=1)  # type: ignore[call-arg]
    optimizer.settings.update(learning_rate=1)  # type: ignore[call-arg]
    partition_plan({}, 2, momentun=0.9)  # type: ignore[call-arg]


def misspelt_words(comm: Comm, optimizer: Optimizer) -> None:
    Optimizer(comm, "adamm")  # type: ignore[arg-type]
    Optimizer(comm, "adamw", "whole")  # type: ignore[arg-type]
    Optimizer(comm, nonfinite="raise")  # type: ignore[arg-type]
    Optimizer(comm, master="fp32")  # type: ignore[arg-type]
    Optimizer(comm, wire_dtype="float32")  # type: ignore[arg-type]
    Optimizer(comm, share_dtype="bf16")  # type: ignore[arg-type]
    Optimizer(comm, uneven_inputs="on")  # type: ignore[arg-type]
    optimizer.step(reduction="avg")  # type: ignore[arg-type]
    optimizer.reduce_grads(reduction="avg")  # type: ignore[arg-type]
    optimizer.step_begin("avg")  # type: ignore[arg-type]
    optimizer.read_loss_scale_from(None, "float16")  # type: ignore[arg-type]
    optimizer.settings.read_from("lr", None, "float16")  # type: ignore[arg-type]
    Param("w", dtype="f4")  # type: ignore[arg-type]
    Param("w", grad_dtype="int32")  # type: ignore[arg-type]
    allocate(comm, {}, dtype="half")  # type: ignore[arg-type]
    allocate(comm, {}, grad_dtype={"w": "int32"})  # type: ignore[dict-item]
    partition_plan({}, 2, "adamm")  # type: ignore[arg-type]
    partition_plan({}, 2, "adam", "whole")  # type: ignore[arg-type]
    comm.arena(3, "mine")  # type: ignore[arg-type]
    comm.arena((3,), dtype="float8")  # type: ignore[arg-type]
    comm.all_reduce(1, "mean")  # type: ignore[call-overload]
    Comm.solo(device="gpu")  # type: ignore[arg-type]
    Comm.local("run", 0, 1, device="gpu")  # type: ignore[arg-type]
    Comm.from_env(device="gpu")  # type: ignore[arg-type]
