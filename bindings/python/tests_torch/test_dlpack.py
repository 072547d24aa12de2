# SPDX-License-Identifier: Apache-2.0
"""Tests torch tensors that expose their memory only through DLPack, like tensors of libraries that libzero does not
know."""

from __future__ import annotations

import unittest
from typing import Any

import torch

from libzero import Comm, Optimizer


class Only:
    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, **arguments: Any) -> Any:
        return self._tensor.__dlpack__(**arguments)


class DlpackTest(unittest.TestCase):
    def test_parameters_and_gradients_of_each_dtype_are_trained_where_they_are(self) -> None:
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            weight, grad = torch.ones(3, 2, dtype=dtype), torch.full((3, 2), 2, dtype=dtype)
            with self.subTest(dtype), Comm.solo() as comm, Optimizer(comm, "sgd", lr=0.25) as optim:
                optim.register({"w": Only(weight)}, grads={"w": Only(grad)})
                optim.step()
                optim.step([Only(grad)])
            self.assertTrue(torch.equal(weight, torch.zeros(3, 2, dtype=dtype)))

    def test_what_cannot_be_used_is_named_with_the_reason(self) -> None:
        for tensor, kind, words in (
            (torch.ones(3, 2).T, ValueError, "'w' is not contiguous"),
            (torch.ones(3, requires_grad=True), ValueError, "'w': Only does not export .* gradient"),
            (torch.ones(3, dtype=torch.complex64), TypeError, "'w' is DLPack's type 5 of 64 bits"),
            (torch.ones(3, device="meta"), ValueError, "'w': Only does not export its memory by DLPack"),
        ):
            with (
                self.subTest(words),
                Comm.solo() as comm,
                Optimizer(comm) as optim,
                self.assertRaisesRegex(kind, words),
            ):
                optim.register({"w": Only(tensor)})


if __name__ == "__main__":
    unittest.main()
