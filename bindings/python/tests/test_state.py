# SPDX-License-Identifier: Apache-2.0
"""Tests that state moves to a plain torch optimizer and back, on two and three ranks, and that both
then train identically. Also tests each call separately."""

from __future__ import annotations

import unittest
from typing import Any

from libzero import ArgumentError, Comm, MismatchError, Optimizer, Param, PeerError, ZeroError
from support import needs_numpy, needs_torch, run_ranks

SHAPES = {"wte": (67, 31), "scale": (), "bias": (1025,), "head": (31, 67)}
GROUPS = (("wte", "scale"), ("bias", "head"))
KINDS: dict[str, tuple[str, dict[str, float], dict[str, Any], tuple[str, ...]]] = {
    "adamw": (
        "AdamW",
        {"lr": 0.01, "weight_decay": 0.1},
        {"lr": 0.01, "weight_decay": 0.1},
        ("exp_avg", "exp_avg_sq"),
    ),
    "sgd": (
        "SGD",
        {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
        {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01},
        ("momentum_buffer",),
    ),
}


def start(name: str) -> Any:
    import numpy as np

    drawn = np.random.default_rng(len(name)).normal(size=SHAPES[name])
    return np.array(drawn, np.float32)


def gradient(name: str, step: int, rank: int) -> Any:
    import numpy as np

    drawn = np.random.default_rng(1000 * step + 10 * rank + len(name)).normal(size=SHAPES[name])
    return np.array(drawn, np.float32)


def mean(name: str, step: int, world: int) -> Any:
    return sum(gradient(name, step, rank) for rank in range(world)) / world


class Sharded:
    """An optimizer of libzero with its parameters."""

    def __init__(self, comm: Comm, kind: str, partition: str) -> None:
        self.comm = comm
        self.params = {name: start(name) for name in SHAPES}
        self.optimizer = Optimizer(comm, kind, partition, bucket_bytes=8192, **KINDS[kind][1])
        for names in GROUPS:
            self.optimizer.register({name: self.params[name] for name in names})
        self.optimizer.broadcast_params()

    def step(self, number: int) -> None:
        rank = self.comm.rank
        self.optimizer.step({name: gradient(name, number, rank) for name in SHAPES})


def plain(kind: str, params: dict[str, Any]) -> Any:
    import torch

    tensors = {name: torch.tensor(value, requires_grad=True) for name, value in params.items()}
    rule = getattr(torch.optim, KINDS[kind][0])
    groups = [{"params": [tensors[name] for name in names]} for names in GROUPS]
    return rule(groups, **KINDS[kind][2]), tensors


def plain_step(optimizer: Any, tensors: dict[str, Any], number: int, world: int) -> None:
    import torch

    for name, tensor in tensors.items():
        tensor.grad = torch.tensor(mean(name, number, world), dtype=torch.float32)
    optimizer.step()


def expect_alike(params: dict[str, Any], tensors: dict[str, Any]) -> None:
    import numpy as np

    for name, value in params.items():
        wanted = tensors[name].detach().numpy()
        np.testing.assert_allclose(value, wanted, rtol=1.3e-6, atol=1e-6, err_msg=name)


def to_torch(comm: Comm, kind: str, partition: str) -> None:
    import torch

    run = Sharded(comm, kind, partition)
    for step in range(3):
        run.step(step)
    optimizer, tensors = plain(kind, run.params)
    gathered = run.optimizer
    state: dict[int, dict[str, Any]] = {}
    for number, name in enumerate(SHAPES):
        found = gathered.state_names(name)
        if found != KINDS[kind][3]:
            raise AssertionError(f"{name} has {found}")
        state[number] = {key: torch.tensor(gathered.state_gather(name, key)) for key in found}
        if kind == "adamw":
            state[number]["step"] = torch.tensor(gathered.state_get_scalar(name, "step"))
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    for step in range(3, 6):
        run.step(step)
        plain_step(optimizer, tensors, step, comm.world)
    expect_alike(run.params, tensors)
    comm.barrier()


def from_torch(comm: Comm, kind: str, partition: str) -> None:
    run = Sharded(comm, kind, partition)
    optimizer, tensors = plain(kind, run.params)
    for step in range(3):
        plain_step(optimizer, tensors, step, comm.world)
    run.optimizer.state_set_scalar(None, "step", 3)
    state = optimizer.state_dict()["state"]
    for number, name in enumerate(SHAPES):
        run.optimizer.state_set(name, None, tensors[name].detach())
        for key, value in state[number].items():
            if key == "step":
                run.optimizer.state_set_scalar(number, key, float(value))
            else:
                run.optimizer.state_set(number, key, value)
    run.optimizer.share_params(keep_masters=True)
    for step in range(3, 6):
        run.step(step)
        plain_step(optimizer, tensors, step, comm.world)
    expect_alike(run.params, tensors)
    if run.optimizer.result().step != 6:
        raise AssertionError("steps are counted on from those of torch")
    comm.barrier()


@needs_torch
class TorchTest(unittest.TestCase):
    def test_state_is_exchanged_with_torch_both_ways(self) -> None:
        for body in (to_torch, from_torch):
            for kind in KINDS:
                for world, partition in ((2, "even"), (3, "greedy"), (3, "even")):
                    with self.subTest(body.__name__, kind=kind, world=world):
                        run_ranks(world, lambda comm: body(comm, kind, partition))


@needs_numpy
class StateTest(unittest.TestCase):
    def test_a_tensor_is_taken_set_and_gathered_in_its_type(self) -> None:
        import numpy as np

        def body(comm: Comm) -> None:
            params = [
                Param("w", np.zeros((40, 50), np.float32)),
                Param("d", np.zeros(7)),
                Param("h", np.zeros(33, np.float16)),
            ]
            with Optimizer(comm, "sgd", momentum=0.5) as optimizer:
                optimizer.register(params)
                optimizer.seal()
                self.assertEqual(optimizer.state_names("w"), ())
                self.assertEqual(optimizer.state_names("h"), ("master",))
                values = {p.name: np.arange(p.data.size).reshape(p.data.shape) for p in params}
                for name, value in values.items():
                    optimizer.state_set(name, "momentum_buffer", value)
                for name, value in values.items():
                    got = optimizer.state_gather(name, "momentum_buffer")
                    self.assertEqual(got.dtype, np.float64 if name == "d" else np.float32)
                    np.testing.assert_array_equal(got, value)
                only = optimizer.state_gather("d", "momentum_buffer", to=1)
                self.assertEqual(only is not None, comm.rank == 1)
                for param, first, count in optimizer.owned_ranges():
                    flat = values[params[param].name].reshape(-1)[first : first + count]
                    got = optimizer.state_get(param, "momentum_buffer", first, count)
                    np.testing.assert_array_equal(got, flat)
                with self.assertRaises(ArgumentError):
                    optimizer.state_get("w", "momentum_buffer")  # the other rank owns half of it
                with self.assertRaises(IndexError):
                    optimizer.state_get(-1, "momentum_buffer")
                comm.barrier()

        run_ranks(2, body)

    def test_ranks_that_set_other_steps_are_told(self) -> None:
        import numpy as np

        def body(comm: Comm) -> None:
            with Optimizer(comm, "sgd") as optimizer:
                optimizer.register({"w": np.zeros(9, np.float32)})
                optimizer.seal()
                optimizer.state_set_scalar("w", "step", comm.rank)
                with self.assertRaises(MismatchError if comm.rank == 1 else PeerError) as caught:
                    optimizer.state_gather("w")
                self.assertIn("'w':, step 1", str(caught.exception))
                comm.barrier()

        run_ranks(2, body)

    def test_a_step_by_hand(self) -> None:
        import numpy as np

        def body(comm: Comm) -> None:
            w = np.zeros(5000, np.float32)
            with Optimizer(comm, "sgd") as optimizer:
                optimizer.register({"w": w})
                optimizer.reduce_grads([np.full(5000, comm.rank + 1, np.float32)], "sum")
                for _, first, count in optimizer.owned_ranges():
                    w[first : first + count] -= optimizer.grad_get("w", first, count)
                optimizer.share_params()
                np.testing.assert_array_equal(w, -3)
                with self.assertRaises(ZeroError):
                    optimizer.grad_get("w", 0, 0)
                comm.barrier()

        run_ranks(2, body)


if __name__ == "__main__":
    unittest.main()
