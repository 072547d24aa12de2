# SPDX-License-Identifier: Apache-2.0
"""Provides helpers for the tests that import files of torch."""

from __future__ import annotations

from typing import Any

import torch

import libzero.torch

from files import FilesTest
from layouts import small_model, step


class ImportTest(FilesTest):
    def setUp(self) -> None:
        super().setUp()
        self.model = small_model()

    def torch_import(self, given: Any, *options: str) -> tuple[int, str]:
        torch.save(given, self.path("file"))
        return self.run_main(
            "import", "--replace", "--from", "torch", *options, self.path("file"), self.path("saved")
        )

    def taken(self, given: Any, *options: str) -> str:
        """Import a file, and return the messages that the successful import prints."""
        status, told = self.torch_import(given, *options)
        self.assertEqual(status, 0, told)
        return told

    def weights(self) -> dict[str, Any]:
        """Return the imported model as torch reads it, as lists."""
        self.done("export", "--to", "torch", "--replace", self.path("saved"), self.path("weights"))
        model = torch.load(self.path("weights"), weights_only=True)["model"]
        return {name: one.tolist() for name, one in model.items()}

    def not_taken(self, words: str, given: Any, *options: str) -> None:
        torch.save(given, self.path("file"))
        self.refused(
            words, "import", "--from", "torch", *options, self.path("file"), self.path("saved")
        )

    def goes_on(
        self, optimizer: torch.optim.Optimizer, groups: Any = None, rule: str = "adamw"
    ) -> None:
        """Check that the imported optimizer takes the same next step as torch's optimizer."""
        mine = small_model()
        names = {id(param): name for name, param in mine.named_parameters()}
        given = groups(mine) if groups else [{"params": list(mine.parameters())}]
        for group in given:
            group["params"] = [(names[id(param)], param) for param in group["params"]]
        with libzero.torch.Optimizer(given, rule) as loaded:
            loaded.load(self.path("saved"))
            for name, value in self.model.state_dict().items():
                self.assertTrue(torch.equal(mine.state_dict()[name], value), name)
            step(mine, loaded)
        step(self.model, optimizer)
        for name, value in self.model.state_dict().items():
            torch.testing.assert_close(mine.state_dict()[name], value, rtol=1e-6, atol=1e-7)
