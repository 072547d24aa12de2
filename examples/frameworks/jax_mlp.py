# SPDX-License-Identifier: Apache-2.0
"""A small network in JAX: libzero keeps the parameters, and each step makes new arrays from them."""

import jax
import jax.numpy as jnp
import libzero
from flax.traverse_util import flatten_dict, unflatten_dict

SIZES = (16, 32, 4)


def init(key):
    keys = jax.random.split(key, len(SIZES) - 1)
    return {
        f"layer{i}": {"kernel": 0.3 * jax.random.normal(one, (rows, columns)), "bias": jnp.zeros(columns)}
        for i, (one, rows, columns) in enumerate(zip(keys, SIZES, SIZES[1:]))
    }


def loss_of(params, inputs, targets):
    hidden = jnp.tanh(inputs @ params["layer0"]["kernel"] + params["layer0"]["bias"])
    return jnp.mean((hidden @ params["layer1"]["kernel"] + params["layer1"]["bias"] - targets) ** 2)


def batches_of(rank, world, steps=20, batch=8):
    """Yields this rank's rows of each batch. Every rank has the same number of rows."""
    for step in range(steps):
        inputs = jax.random.normal(jax.random.key(1 + step), (batch, SIZES[0]))
        targets = jnp.stack([inputs[:, i] * inputs[:, i + 1] for i in range(SIZES[-1])], axis=1)
        yield inputs[rank::world], targets[rank::world]


comm = libzero.Comm.from_env()
flat = flatten_dict(init(jax.random.key(0)), sep=".")  # "layer0.kernel" and so on
memory = libzero.allocate(comm, {name: value.shape for name, value in flat.items()})
if comm.rank == 0:
    for name, value in flat.items():
        memory.data[name][...] = value
optimizer = libzero.Optimizer(comm, "adamw", lr=1e-2)
optimizer.register(memory.params)
optimizer.broadcast_params()
loss_and_grads = jax.jit(jax.value_and_grad(loss_of))
for inputs, targets in batches_of(comm.rank, comm.world):
    # jnp.asarray might not copy the memory, which the next step changes.
    params = unflatten_dict({name: jnp.array(value) for name, value in memory.data.items()}, sep=".")
    loss, grads = loss_and_grads(params, inputs, targets)
    optimizer.step(flatten_dict(grads, sep="."))  # only read
print(f"loss {comm.all_reduce(float(loss)) / comm.world:.5f}")
