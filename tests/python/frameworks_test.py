# SPDX-License-Identifier: Apache-2.0
"""Tests the programs of docs/frameworks.md at night, each in a virtual environment that has its framework. On two
ranks, they must end with the same loss as on one rank."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "examples" / "frameworks"
ZERO_RUN = os.environ.get("ZERO_RUN", "zero-run")
TORCH = os.environ.get("TORCH_PYTHON")  # set by scripts/test --with-torch
LAUNCHERS = re.compile(r"(RANK|WORLD_SIZE|LOCAL_RANK|MASTER_|OMPI_|PMI_|SLURM_)")
# Packages from the Python index. Programs that need torch use the torch of --with-torch.
PACKAGES = {"jax_mlp": ["jax==0.10.2", "flax==0.12.8"], "keras_mlp": ["tensorflow-cpu==2.21.0", "keras==3.15.1"],
            "lightning_mlp": ["lightning==2.6.6"], "accelerate_mlp": ["accelerate==1.15.0"],
            "trainer_mlp": ["transformers==5.24.0", "accelerate==1.15.0"]}
WITH_TORCH = ("lightning_mlp", "accelerate_mlp", "trainer_mlp")
ALIASES = """
import jax, jax.numpy as jnp, libzero, numpy as np
kept = jnp.ones(4)
array, snapshot = kept, jax.jit(lambda x: x)(kept)
comm = libzero.Comm.solo()
refused = 0
for take in (lambda: libzero.Optimizer(comm, "sgd").register({"w": array}), lambda: comm.broadcast(array),
             lambda: libzero.Optimizer(comm, "sgd").register_buffers({"w": array}), lambda: comm.all_reduce(array)):
    try:
        take()
    except TypeError as error:
        assert "is an array of JAX, which promises that its arrays never change" in str(error), error
        refused += 1
grads = jnp.full(4, 2.0)
optimizer, weights = libzero.Optimizer(comm, "sgd", lr=0.5), np.ones(4, np.float32)
optimizer.register({"w": weights})
optimizer.broadcast_params()
for grad in (grads, np.asarray(grads)):
    optimizer.step({"w": grad})
assert weights.tolist() == [-1] * 4 and grads.tolist() == [2] * 4, (weights, grads)
assert (array.tolist(), snapshot.tolist(), kept.tolist()) == ([1] * 4,) * 3
print("refused", refused)
"""


def run(*command: object, **environment: str) -> str:
    clean = {key: value for key, value in os.environ.items() if not LAUNCHERS.match(key)}
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=1800, check=False,
                          env={**clean, **environment})
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@unittest.skipUnless(os.environ.get("ZERO_TEST_NIGHTLY") == "1", "frameworks are installed at night")
class FrameworksTest(unittest.TestCase):
    def ends_with_the_same_loss(self, name: str) -> None:
        with tempfile.TemporaryDirectory(prefix="zero-frameworks-") as folder:
            python = self.environment(pathlib.Path(folder), name)
            if name == "jax_mlp":
                self.assertEqual(run(python, "-c", ALIASES, JAX_PLATFORMS="cpu"), "refused 4\n")
            losses = {loss for ranks in (1, 2) for loss in self.losses(python, name, ranks, f"{folder}/{ranks}")}
        self.assertEqual(len(losses), 1, losses)

    def environment(self, folder: pathlib.Path, name: str) -> pathlib.Path:
        if name in WITH_TORCH and TORCH is None:
            self.skipTest("torch is not here")
        maker = TORCH if name in WITH_TORCH else sys.executable
        run(maker, "-m", "venv", folder / "venv")
        python = folder / "venv/bin/python"
        place = run(python, "-c", "import site; print(site.getsitepackages()[0])").strip()
        if name in WITH_TORCH:
            theirs = run(TORCH, "-c", "import site; print(site.getsitepackages()[0])")
            pathlib.Path(place, "torch.pth").write_text(theirs, encoding="utf-8")
        try:
            run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES[name])
        except AssertionError as error:
            self.skipTest(f"{PACKAGES[name]} cannot be installed: {str(error)[-300:]}")
        return python

    def losses(self, python: pathlib.Path, name: str, ranks: int, folder: str) -> set[str]:
        launcher = ([python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
                    if name in WITH_TORCH else [ZERO_RUN, "-n", ranks, python])
        said = run(*launcher, PROGRAMS / f"{name}.py", folder, JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3",
                   OMP_NUM_THREADS="1")
        found = set(re.findall(r"loss (\d+\.\d+)$", said, re.M))
        self.assertTrue(found, said)
        return found

    def test_jax(self) -> None:
        self.ends_with_the_same_loss("jax_mlp")

    def test_keras(self) -> None:
        self.ends_with_the_same_loss("keras_mlp")

    def test_lightning(self) -> None:
        self.ends_with_the_same_loss("lightning_mlp")

    def test_accelerate(self) -> None:
        self.ends_with_the_same_loss("accelerate_mlp")

    def test_trainer(self) -> None:
        self.ends_with_the_same_loss("trainer_mlp")


if __name__ == "__main__":
    unittest.main()
