# SPDX-License-Identifier: Apache-2.0
"""Tests how names in an imported file are matched to tensors, with prefixes of wrappers, orders of
registration, and ties."""

from __future__ import annotations

import copy
import unittest

import torch

import libzero.torch
from importing import ImportTest
from layouts import document, step, trained


class Scaled(torch.nn.Module):
    """A module that registers its bias before its weight."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.bias = torch.nn.Parameter(torch.zeros(4))
        self.weight = torch.nn.Parameter(torch.ones(shape))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values * self.weight + self.bias


def turned_model(shape: tuple[int, ...]) -> torch.nn.Sequential:
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), Scaled(shape))


class Names(ImportTest):
    def test_a_bias_may_be_registered_before_its_weight(self) -> None:
        for shape in ((4,), (1, 4)):
            self.model = turned_model(shape)
            named = list(self.model.named_parameters())
            for given, options in (
                (named, ()),
                ([param for _, param in named], () if shape == (1, 4) else ("--order", "registration")),
            ):
                optimizer = trained(self.model, groups=given)
                self.taken(document(self.model, optimizer), *options)
                mine = turned_model(shape)
                with libzero.torch.Optimizer(mine.named_parameters(), "adamw") as loaded:
                    loaded.load(self.path("saved"))
                    step(mine, loaded)
                step(self.model, optimizer)
                for one, other in zip(mine.parameters(), self.model.parameters()):
                    torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)

    def test_prefixes_of_wrappers_are_no_part_of_a_name(self) -> None:
        optimizer = trained(self.model, groups=list(self.model.named_parameters()))
        plain = document(self.model, optimizer)
        for prefix in ("module.", "_orig_mod.", "module._orig_mod."):
            names = [prefix + name for name, _ in self.model.named_parameters()]
            wrapped = {prefix + name: one for name, one in plain["model"].items()}
            for weights in (plain["model"], wrapped):
                for own in (names, [name for name, _ in self.model.named_parameters()], None):
                    given = {**copy.deepcopy(plain), "model": weights}
                    group = given["optimizer"]["param_groups"][0]
                    group.pop("param_names") if own is None else group.update(param_names=own)
                    self.taken(given)
                    said = self.inspected(self.path("saved"))["parameters"]
                    self.assertEqual([one["name"] for one in said], list(plain["model"]))
        self.model.load_state_dict(plain["model"])
        self.goes_on(optimizer)

    def test_tensors_of_a_wrapped_module_have_an_order(self) -> None:
        optimizer = trained(self.model)
        given = document(torch.nn.DataParallel(self.model), optimizer)
        self.taken(given)
        given["model"].move_to_end("module.0.weight")
        self.not_taken("'0.weight' in another order than modules", given)

    def test_prefixes_of_some_names_are_told(self) -> None:
        optimizer = trained(self.model, groups=list(self.model.named_parameters()))
        for prefix in ("module.", "_orig_mod."):
            given = document(self.model, optimizer)
            given["model"][f"{prefix}0.weight"] = given["model"].pop("0.weight")
            words = rf"'{prefix}0.weight' begins with '{prefix}', .* and '0.bias' does not"
            self.not_taken(words, given)
        del given["optimizer"]["param_groups"][0]["param_names"]
        self.not_taken(words, given)
        given = document(self.model, optimizer)
        given["optimizer"]["param_groups"][0]["param_names"][0] = "module.0.weight"
        self.not_taken("lacks: 'module.0.weight'; 'module.0.weight' begins", given)

    def test_tied_tensors_that_are_kept_apart_are_told(self) -> None:
        given = document(self.model, trained(self.model, groups=list(self.model.named_parameters())))
        weights = given["model"]
        weights["1.weight"].fill_(1)
        weights.update(tied=weights["0.weight"].clone(), same=torch.ones(4), other=torch.rand(4, 4))
        self.not_taken(
            "'tied' holds what '0.weight' does: --ignore tied if they are one tensor, --buffers tied if two", given
        )
        for options, count in (("--ignore", 2), ("--buffers", 3)):
            self.taken(given, options, "tied")
            self.assertEqual(len(self.inspected(self.path("saved"))["buffers"]), count)

    def test_a_parameter_that_the_optimizer_names_is_no_buffer(self) -> None:
        given = document(self.model, trained(self.model, groups=list(self.model.named_parameters())))
        words = r"has the parameters '0.weight', '0.bias' by name, so --buffers cannot"
        self.not_taken(words, given, "--buffers", "0")


if __name__ == "__main__":
    unittest.main()
