# SPDX-License-Identifier: Apache-2.0
"""Tests that an import takes all contents of a file, or names what it would drop or fill in."""

from __future__ import annotations

import json
import pathlib
import unittest
from typing import Any

import torch

import libzero.torch
from files import save
from importing import ImportTest
from layouts import Document, decayed, document, small_model, step, trained


class Optimizers(ImportTest):
    def test_an_optimizer_under_an_unknown_key_is_named(self) -> None:
        given = document(self.model, trained(self.model))
        for key, value in (("opt_state", given["optimizer"]), ("optims", [given["optimizer"]])):
            self.not_taken(
                f"it has '{key}', which nothing here takes", {"model": given["model"], key: value}
            )
        told = self.taken(
            {"model": given["model"], "opt_state": given["optimizer"]},
            *("--ignore", "opt_state", "--rule", "adamw"),
        )
        self.assertIn("not taken: 'opt_state'", told)
        self.not_taken("it has no optimizer", {"model": given["model"]})

    def test_two_optimizers_or_models_are_named(self) -> None:
        given = document(self.model, trained(self.model))
        self.not_taken("'optimizer' and 'optim': which", {**given, "optim": given["optimizer"]})
        self.not_taken("'model' and 'state_dict': which", {**given, "state_dict": given["model"]})
        self.not_taken("'ema', which nothing", {**given, "ema": given["model"]})
        self.taken({**given, "state_dict": given["model"]}, "--ignore", "state_dict")

    def test_state_of_no_parameter_is_named(self) -> None:
        given = document(self.model, trained(self.model))
        state = given["optimizer"]["state"]
        state["net.weight"] = state.pop(0)
        state[17] = state[1]
        self.not_taken(
            "it has 'optimizer.state.net.weight', 'optimizer.state.17', which nothing here takes", given
        )
        given["optimizer"]["param_groups"][0]["params"][1] = 2
        self.not_taken("its optimizer has parameters twice: 2", given)

    def test_options_are_accounted_for(self) -> None:
        given = document(self.model, trained(self.model))
        group = given["optimizer"]["param_groups"][0]
        group["layer_scale"] = 0.5
        del group["weight_decay"]
        self.not_taken(
            "it has 'optimizer.param_groups.0.layer_scale', .*"
            r"it lacks 'optimizer.param_groups.0.weight_decay' \(--fill",
            given,
            *("--rule", "adamw"),
        )
        self.taken(given, "--rule", "adamw", "--fill", "--ignore", "*.layer_scale")
        group["weight_decay"] = torch.tensor([0.1, 0.2])
        self.not_taken(r"weight_decay is a tensor of shape \[2\], which is not a number", given, "--rule", "adamw")
        del group["layer_scale"]
        group["weight_decay"], group["betas"] = 0.1, (0.9, 0.99, 0.999)
        self.not_taken(r"betas of group 0 is \[0.9, 0.99, 0.999\], not 2 numbers", given, "--rule", "adamw")

    def test_a_schedulers_options_do_not_hide_the_class(self) -> None:
        for scheduler_class in (torch.optim.lr_scheduler.OneCycleLR, torch.optim.lr_scheduler.CyclicLR):
            options = (
                {"max_lr": 0.1, "total_steps": 9}
                if scheduler_class is torch.optim.lr_scheduler.OneCycleLR
                else {"base_lr": 0.01, "max_lr": 0.1}
            )
            model = small_model()
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            scheduler: Any = scheduler_class(optimizer, **options)
            step(model, optimizer)
            scheduler.step()
            self.model = model
            self.taken(document(model, optimizer))
            self.goes_on(optimizer)

    def test_flags_of_each_group_come_in_or_are_named(self) -> None:
        def flagged(model: torch.nn.Module) -> list[dict[str, Any]]:
            groups = decayed(model)
            groups[1]["amsgrad"] = groups[0]["maximize"] = True
            return groups

        optimizer = trained(self.model, groups=flagged(self.model))
        given = document(self.model, optimizer)
        self.taken(given, "--order", "dimensions")
        self.goes_on(optimizer, flagged)
        given["optimizer"]["param_groups"][1]["decoupled_weight_decay"] = False
        self.not_taken(
            "'optimizer.param_groups.1.decoupled_weight_decay' is False, not True",
            given,
            *("--order", "dimensions"),
        )

    def test_options_are_finite_numbers(self) -> None:
        optimizer = trained(self.model)
        for value, words in (
            ("0.1", "group 0: lr is '0.1', which is not a number"),
            (float("nan"), "lr of group 0 is nan, and a checkpoint has finite numbers"),
            (float("inf"), "lr of group 0 is inf, and a checkpoint has finite numbers"),
            (10**400, "group 0: lr is an integer beyond 1.79.*e.308, the largest float64"),
            ({"a": torch.ones(2)}, r"group 0: lr is {'a': a tensor of shape \[2\]}, which is not a number"),
        ):
            given = document(self.model, optimizer)
            given["optimizer"]["param_groups"][0]["lr"] = value
            self.not_taken(words, given)

    def test_a_learning_rate_may_be_a_tensor(self) -> None:
        optimizer = trained(self.model, lr=torch.tensor(0.03))
        self.taken(document(self.model, optimizer))
        self.goes_on(optimizer)

    def test_betas_may_be_tensors(self) -> None:
        optimizer = trained(self.model)
        given = document(self.model, optimizer)
        group = given["optimizer"]["param_groups"][0]
        betas = [torch.tensor(beta, dtype=torch.float64) for beta in group["betas"]]
        group["betas"] = tuple(betas)
        self.taken(given)
        self.goes_on(optimizer)
        group["betas"] = torch.stack(betas)
        self.not_taken(r"betas of group 0 is a tensor of shape \[2\], not 2 numbers", given)

    def test_a_tensor_in_place_of_a_dictionary_is_told(self) -> None:
        given = document(self.model, trained(self.model))
        lone = torch.ones(3)
        state = {"state": {0: lone}, "param_groups": given["optimizer"]["param_groups"]}
        for changed, words in (
            (lone, r"it holds a tensor of shape \[3\], not a dictionary"),
            ({**given, "model": lone}, r"its model holds a tensor of shape \[3\], not a dictionary"),
            ({**given, "optimizer": lone}, r"its 'optimizer' is not .*torch.optim, but a tensor of shape \[3\]"),
            ({**given, "optimizer": state}, r"parameter 0 holds a tensor of shape \[3\], not a dictionary"),
        ):
            self.not_taken(words, changed)
        given["optimizer"]["param_groups"][0]["param_names"] = lone
        words = r"its optimizer.param_groups.0.param_names is a tensor of shape \[3\], not a list of names"
        self.not_taken(words, given)


class States(ImportTest):
    def test_a_part_that_is_missing_is_named(self) -> None:
        optimizer = trained(self.model)
        for part in ("exp_avg", "exp_avg_sq", "step"):
            given = document(self.model, optimizer)
            del given["optimizer"]["state"][1][part]
            self.not_taken(rf"it lacks '0.bias.{part}' \(--fill", given)
            self.assertIn(f"'0.bias.{part}'", self.taken(given, "--fill"))
        given = document(self.model, optimizer)
        for state in given["optimizer"]["state"].values():
            del state["exp_avg"], state["exp_avg_sq"]
        self.not_taken("'1.bias.exp_avg', .* and 6 more", given)

    def test_what_an_option_starts_is_what_the_rule_starts_with(self) -> None:
        optimizer = trained(self.model, torch.optim.Adagrad, initial_accumulator_value=0.25)
        given = document(self.model, optimizer)
        del given["optimizer"]["state"][0]["sum"]
        self.taken(given, "--fill")
        optimizer.state[self.model[0].weight]["sum"].fill_(0.25)
        self.goes_on(optimizer, rule="adagrad")

    def test_a_parameter_that_was_never_updated_has_no_state(self) -> None:
        self.model[0].bias.requires_grad_(False)
        optimizer = trained(self.model)
        self.taken(document(self.model, optimizer))
        self.model[0].bias.requires_grad_(True)
        self.goes_on(optimizer)

    def test_foreign_parts_and_other_shapes_are_named(self) -> None:
        given = document(self.model, trained(self.model))
        given["optimizer"]["state"][0]["noise"] = torch.ones(4, 4)
        given["optimizer"]["state"][2]["exp_avg"] = torch.ones(5)
        self.not_taken(
            "it has '0.weight.noise', .*; '1.weight.exp_avg' has shape \\[5\\], not \\[4\\]", given
        )

    def test_a_parameter_with_the_name_of_a_state_is_refused(self) -> None:
        params = {name: torch.nn.Parameter(torch.ones(3)) for name in ("w", "w.exp_avg")}
        optimizer = torch.optim.AdamW(list(params.items()))
        for param in params.values():
            param.grad = torch.ones(3)
        optimizer.step()
        self.not_taken(
            "'w.exp_avg' is both a tensor of the model and a state",
            {"model": params, "optimizer": optimizer.state_dict()},
        )

    def test_steps_are_whole(self) -> None:
        optimizer = trained(self.model)
        for value in (3.7, -1.0, float("nan"), float("inf")):
            given = document(self.model, optimizer)
            given["optimizer"]["state"][0]["step"] = torch.tensor(value)
            self.not_taken("state 'step' of '0.weight' is (not a number|.*not a number of steps)", given)
        for value, words in ((2**53 + 1, f"step of '0.weight' is {2**53 + 1}, and libzero counts to {2**53}"), (2**53 - 1, "")):
            given = document(self.model, optimizer)
            given["optimizer"]["state"][0]["step"] = torch.tensor(value)
            self.not_taken(words, given) if words else self.taken(given)
        self.assertEqual(self.inspected(self.path("saved"))["step"], 2**53 - 1)

    def test_what_is_filled_starts_anew_as_a_whole(self) -> None:
        optimizer = trained(self.model)
        given = document(self.model, optimizer)
        del given["optimizer"]["state"][0]["exp_avg_sq"]
        told = self.taken(given, "--fill")
        self.assertIn("started anew: '0.weight.", told)
        del optimizer.state[next(iter(self.model.parameters()))]
        self.goes_on(optimizer)

    def test_an_exact_step_goes_through_fp32(self) -> None:
        exact = 2**24 + 1
        optimizer = trained(self.model)
        given = document(self.model, optimizer)
        for state in given["optimizer"]["state"].values():
            state["step"] = exact
        self.taken(given)
        for form in ("torch", "dcp"):
            self.done("export", "--to", form, self.path("saved"), self.path(form))
            self.done("import", "--from", form, self.path(form), self.path(f"back {form}"))
            self.same(self.path("saved"), self.path(f"back {form}"))
            steps = {one["step"] for one in self.inspected(self.path(f"back {form}"))["parameters"]}
            self.assertEqual(steps, {exact})
        back = torch.load(self.path("torch"))
        state = back["optimizer"]["state"][0]
        state["step"] = state["step"].float()  # as torch's own step creates it
        self.taken(back)
        steps = {one["step"] for one in self.inspected(self.path("saved"))["parameters"]}
        self.assertEqual(steps, {exact})
        state["step"] += 64
        self.not_taken(f"state 'step' of '0.weight' is {2**24 + 64}, but its 'zero' says {exact}", back)
        self.taken(back, "--ignore", "zero")


class Frozen(ImportTest):
    def test_what_the_optimizer_did_not_have_loads_frozen_and_as_a_buffer(self) -> None:
        for param in self.model[0].parameters():
            param.requires_grad_(False)
        params = [param for param in self.model.parameters() if param.requires_grad]
        optimizer = trained(self.model, groups=params)
        given = document(self.model, optimizer)
        self.not_taken("8 floating tensors and its optimizer 6 parameters", given)
        self.taken(given, "--buffers", "0.*")
        for all_of_them in (True, False):
            mine = small_model()
            frozen = dict(mine[0].named_parameters(prefix="0"))
            for param in frozen.values():
                param.requires_grad_(False)
                param.zero_()
            named = [(name, one) for name, one in mine.named_parameters() if all_of_them or name not in frozen]
            buffers = {} if all_of_them else frozen
            with libzero.torch.Optimizer(named, "adamw", buffers=buffers) as loaded:
                loaded.load(self.path("saved"))
                for name, value in given["model"].items():
                    self.assertTrue(torch.equal(mine.state_dict()[name], value), name)
                step(mine, loaded)


class Orders(ImportTest):
    def test_groups_without_names_want_an_order(self) -> None:
        for optimizer_class, options in (
            (torch.optim.AdamW, {}),
            (torch.optim.SGD, {}),
            (torch.optim.SGD, {"momentum": 0.9}),
        ):
            self.model = small_model()
            optimizer = trained(self.model, optimizer_class, decayed(self.model), **options)
            given = document(self.model, optimizer)
            self.not_taken("2 groups of 3, 5 parameters without names .--order registration", given)
            self.taken(given, "--order", "dimensions")
            self.goes_on(optimizer, decayed, "adamw" if optimizer_class is torch.optim.AdamW else "sgd")

    def test_a_file_of_names_is_an_order(self) -> None:
        def turned(model: torch.nn.Module) -> list[dict[str, Any]]:
            params = list(model.parameters())
            return [{"params": params[3:][::-1]}, {"params": params[:3]}]

        optimizer = trained(self.model, groups=turned(self.model))
        given = document(self.model, optimizer)
        names = {id(param): name for name, param in self.model.named_parameters()}
        lines = [names[id(param)] for group in optimizer.param_groups for param in group["params"]]
        pathlib.Path(self.path("names")).write_text("\n".join(lines) + "\n")
        self.taken(given, "--order", self.path("names"))
        self.goes_on(optimizer, turned)
        for change, words in (
            (lines[1:], "names 7 parameters, its optimizer has 8"),
            ([*lines[1:], "more"], "that its model lacks: 'more'"),
            ([*lines[1:], lines[1]], f"parameters twice: '{lines[1]}'"),
        ):
            pathlib.Path(self.path("names")).write_text("\n".join(change))
            self.not_taken(words, given, "--order", self.path("names"))

    def test_an_order_that_is_not_the_files_is_refused(self) -> None:
        given = document(self.model, trained(self.model, groups=decayed(self.model)))
        self.not_taken("'0.bias.exp_avg' has shape", given, "--order", "registration")
        params = list(self.model.parameters())
        optimizer = trained(self.model, groups=[{"params": params[:2]}, {"params": params[2:]}])
        given = document(self.model, optimizer)
        self.not_taken("--order dimensions does not fit", given, "--order", "dimensions")
        self.taken(given, "--order", "registration")
        self.not_taken("--order nowhere: .*No such file", given, "--order", "nowhere")

    def test_a_model_in_another_order_is_no_order_of_parameters(self) -> None:
        optimizer = trained(self.model)
        for moved, last, words in (
            ("0.weight", "2.weight", "in another order than modules register"),
            ("1.bias", "1.weight", "'1.bias' before '1.weight', .*: give --order registration if its module"),
        ):
            given = document(self.model, optimizer)
            weights = given["model"]
            names = list(weights)
            first, second = names.index(moved), names.index(last)
            names[first], names[second] = names[second], names[first]
            held = dict(weights)
            weights.clear()
            weights.update((name, held[name]) for name in names)
            self.not_taken(words, given)
        self.taken(given, "--order", "registration")
        given["model"].update({"0.weight": given["model"].pop("0.weight")})
        self.not_taken("in another order than modules", given, "--order", "registration")

    def test_names_of_each_group_are_as_many_as_its_parameters(self) -> None:
        optimizer = trained(self.model, groups=decayed(self.model))
        given = document(self.model, optimizer)
        first, second = given["optimizer"]["param_groups"]
        names = [name for name, _ in self.model.named_parameters()]
        first["param_names"], second["param_names"] = names[:2], names[2:]
        self.not_taken("group 0 of its optimizer has 3 parameters, and names for 2", given)
        del second["param_names"]
        first["param_names"] = names[:3]
        self.not_taken("no names in group 1, but have names in other groups", given)
        second["param_names"] = [*names[3:7], names[0]]
        self.not_taken(f"parameters twice: '{names[0]}'", given)

    def test_a_tie_may_have_any_of_its_names(self) -> None:
        model: Any = torch.nn.Sequential(torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4))
        model[1].weight = model[0].weight
        optimizer = trained(model, groups=[("1.weight", model[1].weight), ("1.bias", model[1].bias)])
        self.taken(document(model, optimizer))
        said = self.inspected(self.path("saved"))
        self.assertEqual([one["name"] for one in said["parameters"]], ["0.weight", "1.bias"])
        self.assertEqual(said["buffers"], [])


class Exported(ImportTest):
    """Exports of libzero contain more information than torch's dictionaries."""

    def setUp(self) -> None:
        super().setUp()
        save(self.path("from"), "adamw")
        self.done("export", "--to", "torch", self.path("from"), self.path("there"))
        self.there: Document = torch.load(self.path("there"))

    def test_it_is_accounted_for_as_well(self) -> None:
        rest = json.loads(self.there["zero"])
        steps = rest["steps"]
        for change, words in (
            ({"steps": {**steps, "lost": 3}}, "it has 'zero.steps.lost'"),
            ({"steps": {name: steps[name] for name in list(steps)[1:]}}, "it lacks 'zero.steps.a.weight'"),
            ({"steps": {**steps, "a.bias": 3.5}}, "'zero' has 3.5 as a step of 'a.bias'"),
            ({"optimizer": "lion"}, "its optimizer is 'lion', not 'adamw' as --rule says"),
        ):
            given = {**self.there, "zero": json.dumps({**rest, **change})}
            self.not_taken(words, given, "--rule", "adamw")
        twice = self.there["zero"].replace('"step":', '"step": 3, "step":', 1)
        self.not_taken("keys are repeated: 'step'", {**self.there, "zero": twice})
        del self.there["optimizer"]["state"][0]
        self.not_taken("it lacks 'a.weight.step', 'a.weight.exp_avg'", self.there)
        del self.there["optimizer"]
        self.not_taken("it lacks the optimizer", self.there)


class Stranger:
    def __init__(self, value: Any) -> None:
        self.value = value


class Classes(ImportTest):
    def test_a_class_in_the_file_is_named(self) -> None:
        given = document(self.model, trained(self.model))
        for name, value in (
            ("test_imports.Stranger", Stranger(1)),
            ("pathlib.(PosixPath|_local.PosixPath)", pathlib.Path("x")),
            ("(builtins.)?getattr", getattr),
            ("test_imports.Stranger", [Stranger]),
        ):
            self.not_taken(f"it has {name}, which is not one of the classes", {**given, "config": value})


if __name__ == "__main__":
    unittest.main()
