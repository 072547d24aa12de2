# SPDX-License-Identifier: Apache-2.0
"""A character-level language model, trained by any number of ranks with libzero and numpy.

    PYTHONPATH=bindings/python zero-run -n 4 python3 examples/python/char_lm.py --steps 300

The model embeds the last CONTEXT characters, applies one tanh layer, and predicts the next one by a
softmax. It has the model, the data and the options of examples/c/char_lm.c, and ends with the same bits.
So it adds in the order of the loops there, because a matrix product would choose another order.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import Any

import libzero
import numpy as np

CONTEXT, EMBED, HIDDEN, SYMBOLS = 8, 16, 384, 256
INPUT = CONTEXT * EMBED

SHAPES = {
    "embedding": (SYMBOLS, EMBED),
    "hidden.weight": (INPUT, HIDDEN),
    "hidden.bias": (HIDDEN,),
    "output.weight": (HIDDEN, SYMBOLS),
    "output.bias": (SYMBOLS,),
}
FAN_IN = {"embedding": 1, "hidden.weight": INPUT, "output.weight": HIDDEN}

Arrays = dict[str, Any]


def mix(x: Any) -> Any:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def draw(seed: int, a: int, b: Any) -> Any:
    """Returns 64 random bits for each number in `b`, the same on every rank and in every language."""
    start = np.array([(seed + 0x9E3779B97F4A7C15) % (1 << 64)], np.uint64)
    return mix(mix(mix(start) + np.uint64(a)) + b.astype(np.uint64))


def initialize(params: Arrays, seed: int) -> None:
    """Draws weights uniformly in +-1/sqrt(fan in). Biases are zero."""
    for number, (name, param) in enumerate(params.items()):
        fan_in = FAN_IN.get(name)
        if fan_in is None:
            param[...] = 0
            continue
        unit = (draw(seed, number, np.arange(param.size)) >> np.uint64(11)) / 9007199254740992.0
        param[...] = ((2 * unit - 1) / np.sqrt(fan_in)).reshape(param.shape)


def exponential(x: Any) -> Any:
    """exp for x <= 0 with only + and *, because math libraries differ in the last bits: its series at
    x/1024, squared ten times."""
    y = x.astype(np.float64) / 1024
    value = 1 + y * (1 + y / 2 * (1 + y / 3 * (1 + y / 4 * (1 + y / 5 * (1 + y / 6)))))
    for _ in range(10):
        value *= value
    return np.where(x < -100, 0.0, value)


def hyperbolic_tangent(x: Any) -> Any:
    e = exponential(-2 * np.abs(x.astype(np.float64)))
    value = (1 - e) / (1 + e)
    return np.where(x < 0, -value, value).astype(np.float32)


def affine(bias: Any, inputs: Any, weights: Any) -> Any:
    """Returns bias + inputs @ weights, added in the order of the inputs."""
    out = np.repeat(bias[None, :], len(inputs), axis=0)
    for column, row in zip(inputs.T, weights):
        out += column[:, None] * row
    return out


def back(slopes: Any, weights: Any) -> Any:
    """Returns slopes @ weights.T, added as eight partial sums."""
    lanes = np.zeros((len(slopes), len(weights), 8), np.float32)
    for first in range(0, slopes.shape[1], 8):
        lanes += slopes[:, None, first : first + 8] * weights[None, :, first : first + 8]
    lanes = lanes[..., :4] + lanes[..., 4:]
    lanes = lanes[..., :2] + lanes[..., 2:]
    return lanes[..., 0] + lanes[..., 1]


def forward_backward(params: Arrays, grads: Arrays, text: Any, at: Any, weight: Any) -> float:
    """Returns the summed loss of the examples that begin at `at`, and adds its gradient times `weight` to `grads`."""
    context, target = text[at[:, None] + np.arange(CONTEXT)], text[at + CONTEXT]
    count = len(at)
    inputs = params["embedding"][context].reshape(count, INPUT)
    hidden = hyperbolic_tangent(affine(params["hidden.bias"], inputs, params["hidden.weight"]))
    out = affine(params["output.bias"], hidden, params["output.weight"])
    out = exponential(out - out.max(axis=1, keepdims=True)).astype(np.float32)
    out /= np.add.accumulate(out, axis=1)[:, -1:]  # adds from left to right, unlike sum()
    rows = np.arange(count)
    loss = -np.log(out[rows, target].astype(np.float64) + 1e-30).sum()  # only printed

    out[rows, target] -= 1  # now the gradient of the loss by the logits
    out *= weight
    slope = back(out, params["output.weight"]) * (1 - hidden * hidden)
    by_input = back(slope, params["hidden.weight"]).reshape(count, CONTEXT, EMBED)
    for gradient in grads.values():
        gradient[...] = 0
    for i in range(count):
        grads["output.bias"] += out[i]
        grads["output.weight"] += np.outer(hidden[i], out[i])
        grads["hidden.bias"] += slope[i]
        grads["hidden.weight"] += np.outer(inputs[i], slope[i])
        for symbol, gradient in zip(context[i], by_input[i]):
            grads["embedding"][symbol] += gradient
    return float(loss)


def checksum(data: bytes) -> int:
    """FNV-1a over the bytes of all parameters."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return value


def train(options: argparse.Namespace) -> None:
    text = np.frombuffer(Path(options.text).read_bytes(), np.uint8)
    if len(text) <= CONTEXT:
        raise SystemExit(f"char_lm: {options.text}: is too short to train on")
    # The logger "libzero" prints warnings to stderr, for example that the other ranks have waited ten seconds for one.
    libzero.set_log_level(logging.WARNING)
    with libzero.Comm.from_env() as comm:
        memory = libzero.allocate(comm, SHAPES)
        with libzero.Optimizer(comm, lr=options.lr) as optimizer:
            optimizer.register(memory.params)
            if options.load:
                optimizer.load(options.load)
                if comm.rank == 0:
                    step = optimizer.result().step
                    print(f"loaded={options.load} step={step} world={comm.world}", flush=True)
            else:
                if comm.rank == 0:
                    initialize(memory.data, options.seed)
                optimizer.broadcast_params()
            run(options, text, comm, optimizer, memory)


def run(
    options: argparse.Namespace,
    text: Any,
    comm: libzero.Comm,
    optimizer: libzero.Optimizer,
    memory: libzero.Allocation,
) -> None:
    # This rank's part of the batch. Gradients are weighted so that their mean over ranks is the mean
    # over the batch, even if the number of ranks does not divide it.
    rank, world, batch = comm.rank, comm.world, options.batch
    mine = np.arange(batch * rank // world, batch * (rank + 1) // world)
    every = 1 if options.progress else (options.steps + 9) // 10
    for step in range(optimizer.result().step + 1, options.steps + 1):
        chance = draw(options.seed + 1, step, mine)
        at = (chance % np.uint64(len(text) - CONTEXT)).astype(np.int64)
        weight = np.float32(world) / np.float32(batch)
        loss = forward_backward(memory.data, memory.grads, text, at, weight)
        optimizer.step()
        loss = comm.all_reduce(loss / batch)
        if rank == 0 and (step % every == 0 or step == options.steps):
            print(f"step={step} loss={loss:.4f}", flush=True)
    if options.save:
        optimizer.save(options.save, replace=True)
    if rank == 0:
        data = b"".join(array.tobytes() for array in memory.data.values())
        print(f"checksum={checksum(data):016X}", flush=True)
        if options.dump:
            Path(options.dump).write_bytes(data)
    stats = optimizer.stats()
    print(
        f"stats rank={rank} world={world} parameters={stats.parameter_elements} "
        f"owned={stats.owned_elements} state_bytes={stats.state_bytes} "
        f"staging_bytes={stats.staging_bytes} copied_bytes={stats.copied_bytes}",
        flush=True,
    )
    comm.barrier()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a character-level language model.")
    parser.add_argument("--text", default="LICENSE", metavar="FILE")
    parser.add_argument("--steps", type=int, default=200, help="also counts those of --load")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=192)
    parser.add_argument("--save", metavar="DIR")
    parser.add_argument("--load", metavar="DIR")
    parser.add_argument("--dump", metavar="FILE", help="write the final parameters")
    parser.add_argument("--progress", action="store_true", help="print the loss of every step")
    options = parser.parse_args()
    if options.batch < 1 or options.steps < 0:
        parser.error("--batch is at least 1, --steps at least 0")
    train(options)


if __name__ == "__main__":
    main()
