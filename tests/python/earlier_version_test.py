# SPDX-License-Identifier: Apache-2.0
"""Compares trainings and checkpoints with those of an earlier version. Steps, including steps that are skipped or
rejected, must give bitwise identical results. Checkpoints must load on any number of ranks and continue with bitwise
identical results.

tests/data/earlier was written by version 0.1.0 of 2026-11-23, with this program and --write. It changes only if
docs/bits.md or docs/checkpoint-format.md change. The test needs numpy, the library and the package libzero.
"""

import base64
import contextlib
import hashlib
import itertools
import json
import pathlib
import sys
import tempfile
import threading
import unittest
import zlib

try:
    import numpy
except ImportError:
    numpy = None

import libzero

DATA = pathlib.Path(__file__).parents[1] / "data/earlier"
SHAPES = {"embedding": (13, 7), "scalar": (), "empty": (0, 3), "bias": (130,), "weight": (33, 5)}
STEPS, BAD_STEP, STEPS_AFTER_LOAD = 4, 2, 2
RULES = {"adamw": {}, "adam": {"amsgrad": 1}, "sgd": {"momentum": 0.5, "nesterov": 1}, "rmsprop": {"centered": 1},
         "adagrad": {}, "lion": {}, "adamax": {}, "adadelta": {}, "radam": {}, "nadam": {}, "rprop": {}, "lamb": {},
         "lars": {"momentum": 0.5}}
# The dtypes of parameters and of gradients, and other options.
DTYPES = {"float32": ("float32", "float32", {}), "float64": ("float64", "float64", {}),
          "bfloat16": ("bfloat16", "bfloat16", {}), "float16": ("float16", "float16", {}),
          "bfloat16 remainder": ("bfloat16", "bfloat16", {"master": "remainder"}),
          "float16 no master": ("float16", "float32", {"master": "none"}),
          "float32 shared as bfloat16": ("float32", "float32", {"share_dtype": "bfloat16"})}
# The options that determine what a step does with gradients that are not finite.
ENDINGS = {"skips": {"nonfinite": "skip"}, "backs off": {"loss_scale": 8.0, "growth_interval": 2, "growth_factor": 2.0,
                                                         "backoff_factor": 0.5},
           "refuses": {"nonfinite": "error"}, "skips, clips": {"nonfinite": "skip", "max_grad_norm": 0.5}}
PARTITIONS = ("even", "greedy", "greedy_in_order")


def name_of(rule, dtype, ending, world, partition):
    return f"{rule}, {dtype}, {ending}, {world}, {partition}"


def cases():
    """Yield every rule with every ending. The other axes are cycled at the same time, each with a different
    period."""
    dtypes = itertools.cycle(DTYPES)
    worlds, partitions = itertools.cycle((1, 2, 3, 5, 4)), itertools.cycle(PARTITIONS)
    return [(rule, next(dtypes), ending, next(worlds), next(partitions)) for ending in ENDINGS for rule in RULES]


def values(shape, seed):
    """Return multiples of 1/64 in [-2, 2], which every dtype can represent."""
    count = int(numpy.prod(shape))
    at = (numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(seed)) * numpy.uint64(2654435761)
    return (((at >> numpy.uint64(7)) % numpy.uint64(257)).astype(numpy.float64) - 128).reshape(shape) / 64


def stored(array, dtype):
    """Return the array in the dtype of numpy. For bfloat16, which numpy lacks, return the upper halves of float32
    values."""
    if dtype != "bfloat16":
        return numpy.array(array, dtype)
    return numpy.array(numpy.array(array, numpy.float32).view(numpy.uint32) >> 16, numpy.uint16)


class Model:
    """The parameters, gradients and optimizer of one rank."""

    def __init__(self, comm, rule, dtype, ending, partition):
        self.comm, self.ending = comm, ending
        of_params, of_grads, options = DTYPES[dtype]
        self.grad_dtype = of_grads
        self.data = {name: stored(values(shape, 17 * i), of_params) for i, (name, shape) in enumerate(SHAPES.items())}
        self.grads = {name: stored(numpy.zeros(shape), of_grads) for name, shape in SHAPES.items()}
        self.optimizer = libzero.Optimizer(comm, rule, partition, bucket_bytes=4096, lr=0.25, **options,
                                           **ENDINGS[ending], **RULES[rule])
        self.optimizer.register([libzero.Param(name, self.data[name], self.grads[name], dtype=of_params,
                                               grad_dtype=of_grads) for name in SHAPES])

    def step(self, number, bad):
        for i, name in enumerate(SHAPES):
            self.grads[name][...] = stored(values(SHAPES[name], 1000 * number + 31 * i + self.comm.rank),
                                           self.grad_dtype)
        if bad and self.comm.rank == self.comm.world - 1:
            self.grads["bias"][7] = stored(numpy.array(numpy.inf), self.grad_dtype)
        refuses = bad and ENDINGS[self.ending].get("nonfinite") == "error"
        with contextlib.suppress(libzero.NonfiniteError) if refuses else contextlib.nullcontext():
            self.optimizer.step()

    def digest(self):
        sha = hashlib.sha256()
        for name in SHAPES:
            sha.update(self.data[name].tobytes())
            for state in sorted(self.optimizer.state_names(name)):
                sha.update(state.encode() + self.optimizer.state_gather(name, state).tobytes())
        sha.update(str(self.optimizer.state_get_scalar(None, "step")).encode())
        return sha.hexdigest()


_numbers = itertools.count()


def on_ranks(world, body):
    """Run body(comm) in `world` threads. Return its result, which must be the same on all ranks."""
    name, found = f"earlier-{id(body)}-{next(_numbers)}", [None] * world

    def run(rank):
        with libzero.Comm.local(name, rank, world, timeout_ms=20_000) as comm:
            found[rank] = body(comm)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(one is not None and one == found[0] for one in found), found
    return found[0]


def train(rule, dtype, ending, world, partition, save_in=None):
    """Return the digest after all steps. With `save_in`, save there, and also return the digest some steps later."""

    def body(comm):
        model = Model(comm, rule, dtype, ending, partition)
        for number in range(STEPS):
            model.step(number, bad=number == BAD_STEP)
        digests = [model.digest()]
        if save_in is not None:
            model.optimizer.save(save_in)
            digests.append(go_on(model))
        return digests

    return on_ranks(world, body)


def go_on(model):
    for number in range(STEPS, STEPS + STEPS_AFTER_LOAD):
        model.step(number, bad=False)
    return model.digest()


def saved_cases():
    """Return one case for each rule and each dtype."""
    return [(rule, dtype, "skips", 2, "even")
            for rule, dtype in itertools.zip_longest(RULES, DTYPES, fillvalue="float32")]


def write():
    DATA.mkdir(exist_ok=True)
    digests = {name_of(*case): train(*case)[0] for case in cases()}
    (DATA / "digests.json").write_text(json.dumps(digests, indent=1) + "\n")
    kept = {}
    for case in saved_cases():
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = pathlib.Path(folder) / "checkpoint"
            saved, later = train(*case, save_in=checkpoint)
            files = {path.name: base64.b64encode(zlib.compress(path.read_bytes(), 9)).decode()
                     for path in sorted(checkpoint.iterdir())}
        kept[name_of(*case)] = {"saved": saved, "later": later, "files": files}
    (DATA / "checkpoints.json").write_text(json.dumps(kept, indent=1) + "\n")


@unittest.skipIf(numpy is None, "numpy is not installed")
class EarlierVersionTest(unittest.TestCase):
    def test_steps_that_are_not_made_leave_the_bits_that_they_left_before(self):
        digests = json.loads((DATA / "digests.json").read_text())
        self.assertEqual({name_of(*case) for case in cases()}, set(digests))
        for case in cases():
            with self.subTest(name_of(*case)):
                self.assertEqual(train(*case)[0], digests[name_of(*case)])

    def test_its_checkpoints_load_on_any_number_of_ranks_and_go_on_with_the_same_bits(self):
        kept = json.loads((DATA / "checkpoints.json").read_text())
        self.assertEqual({name_of(*case) for case in saved_cases()}, set(kept))
        for (rule, dtype, ending, world, partition), ranks in itertools.product(saved_cases(), (1, 2, 3)):
            was = kept[name_of(rule, dtype, ending, world, partition)]
            with self.subTest(f"{rule}, {dtype} on {ranks}"), tempfile.TemporaryDirectory() as folder:
                for name, text in was["files"].items():
                    (pathlib.Path(folder) / name).write_bytes(zlib.decompress(base64.b64decode(text)))

                def body(comm):
                    model = Model(comm, rule, dtype, ending, partition)
                    model.optimizer.load(folder)
                    return [model.digest()] + ([go_on(model)] if comm.world == world else [])

                self.assertEqual(on_ranks(ranks, body), [was["saved"], was["later"]][: 1 + (ranks == world)])


if __name__ == "__main__":
    write() if sys.argv[1:] == ["--write"] else unittest.main()
