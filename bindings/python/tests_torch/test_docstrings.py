# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import sys
import tempfile
import unittest
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

import libzero.torch

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from public import faults, run_examples  # noqa: E402


class DocstringTest(unittest.TestCase):
    def test_all_that_is_public_is_described_and_every_method_has_an_example(self) -> None:
        self.assertEqual(list(faults(libzero.torch)), [])

    def test_examples_say_what_happens(self) -> None:
        names = {name: getattr(libzero.torch, name) for name in libzero.torch.__all__}
        names |= {"libzero": libzero, "torch": torch, "allreduce_hook": allreduce_hook}
        self.addCleanup(os.chdir, os.getcwd())
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            dist.init_process_group("gloo", f"file://{folder}/store", rank=0, world_size=1)
            self.addCleanup(dist.destroy_process_group)
            said = run_examples(libzero.torch, names)
        self.assertEqual("".join(said).splitlines(), [])


if __name__ == "__main__":
    unittest.main()
