# SPDX-License-Identifier: Apache-2.0
"""A small Keras model on TensorFlow: libzero keeps the parameters, and the loop assigns them to the variables."""

import keras
import libzero
import numpy as np
import tensorflow as tf

WORDS, LENGTH = 50, 6


def batches_of(rank, world, steps=20, batch=8):
    """Yields this rank's rows of each batch. Every rank has the same number of rows."""
    for step in range(steps):
        words = np.random.default_rng(step).integers(0, WORDS, (batch, LENGTH))
        targets = (words % 7).sum(1, keepdims=True).astype(np.float32) / 20
        yield words[rank::world], targets[rank::world]


keras.utils.set_random_seed(0)
model = keras.Sequential([
    keras.layers.Input((LENGTH,)),
    keras.layers.Embedding(WORDS, 8),
    keras.layers.Flatten(),
    keras.layers.Dense(1),
])
comm = libzero.Comm.from_env()
variables = {variable.path: variable for variable in model.trainable_variables}
memory = libzero.allocate(comm, {name: tuple(variable.shape) for name, variable in variables.items()})
if comm.rank == 0:
    for name, variable in variables.items():
        memory.data[name][...] = variable.numpy()
optimizer = libzero.Optimizer(comm, "adamw", lr=1e-2)
optimizer.register(memory.params)
optimizer.broadcast_params()
for inputs, targets in batches_of(comm.rank, comm.world):
    for name, variable in variables.items():
        variable.assign(memory.data[name].copy())  # TensorFlow may keep the memory
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(inputs) - targets) ** 2)
    grads = tape.gradient(loss, [variable.value for variable in variables.values()])
    optimizer.step([tf.convert_to_tensor(grad) for grad in grads])  # makes IndexedSlices dense
print(f"loss {comm.all_reduce(float(loss)) / comm.world:.5f}")
