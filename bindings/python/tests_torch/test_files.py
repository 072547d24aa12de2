# SPDX-License-Identifier: Apache-2.0
"""Tests exports to files of torch and imports of them, with `python -m libzero` and checkpoints that libzero
saves."""

from __future__ import annotations

import itertools
import unittest
import warnings
from typing import Any
from unittest import mock

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import metadata as meta
from torch.distributed.checkpoint import state_dict as dcp_state
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

import libzero
from libzero.torch import _streams

from files import FORMATS, FilesTest, SETTINGS, save, zip_again


class Model(torch.nn.Module):
    """A model with buffers, a tensor in another memory format, and tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.norm = torch.nn.BatchNorm2d(4)
        self.second = torch.nn.Linear(4, 4)
        self.tied = torch.nn.Linear(4, 4, bias=False)
        self.tied.weight = self.second.weight

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.tied(self.second(self.norm(self.first(images)).mean((2, 3))))
        return out


def trained(optimizer_class: Any, **options: Any) -> tuple[Model, torch.optim.Optimizer]:
    torch.manual_seed(5)
    model = Model()
    optimizer = optimizer_class(model.parameters(), **options)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(8, 3, 5, 5)).square().sum().backward()
        optimizer.step()
    return model, optimizer


class RoundTrip(FilesTest):
    def test_each_rule_comes_back_bit_for_bit(self) -> None:
        for rule in libzero.rules():
            save(self.path(rule), rule, **SETTINGS.get(rule, {}))
            for name in FORMATS:
                with self.subTest(rule=rule, format=name):
                    there, back = self.path(f"{rule}.{name}"), self.path(f"{rule}-{name}")
                    self.done("export", "--to", name, self.path(rule), there)
                    self.done("import", "--from", name, there, back)
                    self.same(self.path(rule), back)

    def test_groups_of_different_rules_come_back(self) -> None:
        for first, second in (("adamw", "nadam"), ("nadam", "sgd"), ("lion", "rmsprop")):
            save(self.path(first), first, second=second)
            for name in FORMATS:
                with self.subTest(first=first, second=second, format=name):
                    there, back = self.path(f"{first}.{name}"), self.path(f"{first}-{name}")
                    self.done("export", "--to", name, self.path(first), there)
                    self.done("import", "--from", name, there, back)
                    self.same(self.path(first), back)
        groups = torch.load(self.path("adamw.torch"))["optimizer"]["param_groups"]
        self.assertEqual([group.get("rule") for group in groups], [None, "nadam"])

    def test_an_optimizer_of_torch_writes_and_reads_groups_of_different_rules(self) -> None:
        def optimizer() -> Any:
            torch.manual_seed(3)
            params = {name: torch.nn.Parameter(torch.randn(5)) for name in ("a", "b")}
            other = {"rule": "sgd", "momentum": 0.9, "state_dtype": "bfloat16"}
            groups = [{"params": [("a", params["a"])]}, {"params": [("b", params["b"])], **other}]
            return params, libzero.torch.Optimizer(groups, "adamw")

        params, made = optimizer()
        for param in params.values():
            param.grad = torch.ones(5)
        made.step()
        made.save(self.path("saved"))
        self.done("export", "--to", "torch", self.path("saved"), self.path("theirs"))
        read = torch.load(self.path("theirs"))
        made.load_state_dict(read["optimizer"])
        made.consolidate_state_dict()
        torch.save({**read, "optimizer": made.state_dict()}, self.path("ours"))
        self.done("import", "--from", "torch", self.path("ours"), self.path("back"))
        self.same(self.path("saved"), self.path("back"))
        made.close()

    def test_a_group_with_ones_own_function_is_refused_by_its_name(self) -> None:
        mine: Any = libzero.CustomOptimizer(lambda update: None, name="mine", slots=["mean"])
        save(self.path("saved"), "adamw", second=mine)
        for name in FORMATS:
            self.refused("group 1 .* follows 'custom:mine'", "export", "--to", name, self.path("saved"), self.path(name))

    def test_small_parts_make_no_difference(self) -> None:
        save(self.path("saved"), "adamw")
        for name, most in itertools.product(FORMATS, (8, 40, 72)):
            with self.subTest(format=name, most=most):
                there, back = self.path(f"{most}.{name}"), self.path(f"{most}-{name}")
                with mock.patch.object(_streams, "PART_BYTES", most):
                    self.done("export", "--to", name, self.path("saved"), there)
                    self.done("import", "--from", name, there, back)
                self.same(self.path("saved"), back)

    def test_a_rule_of_ones_own_comes_back(self) -> None:
        def update(values: Any) -> None:
            values.slots["mean"][:] += values.gradient
            values.values[:] -= values.lr * values.slots["mean"]

        rule: Any = libzero.CustomOptimizer(update, name="mine", slots=["mean"])
        save(self.path("saved"), rule, lr=0.5)
        for name in FORMATS:
            self.done("export", "--to", name, self.path("saved"), self.path(name))
            self.done("import", "--from", name, self.path(name), self.path(f"back-{name}"))
            self.same(self.path("saved"), self.path(f"back-{name}"))


class TorchReads(FilesTest):
    """Models that torch created and trained, without libzero's names."""

    def setUp(self) -> None:
        super().setUp()
        self.model, self.optimizer = trained(torch.optim.AdamW, lr=0.0625, betas=(0.5, 0.75))
        torch.save(
            {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()},
            self.path("ours"),
        )
        self.buffers = "*.running_*"
        self.done(
            "import",
            "--from",
            "torch",
            "--buffers",
            self.buffers,
            self.path("ours"),
            self.path("saved"),
        )

    def same_state(self, optimizer: torch.optim.Optimizer) -> None:
        ours, other = self.optimizer.state_dict(), optimizer.state_dict()
        for number, state in ours["state"].items():
            self.assertEqual(list(state), list(other["state"][number]))
            for name, value in state.items():
                self.assertTrue(torch.equal(value, other["state"][number][name]), name)
        for group, copy in zip(ours["param_groups"], other["param_groups"]):
            copy.pop("param_names", None)
            self.assertEqual(group, copy)

    def same_model(self, model: Model) -> None:
        for (name, value), other in zip(
            self.model.state_dict().items(), model.state_dict().values()
        ):
            self.assertTrue(torch.equal(value, other), name)

    def test_a_state_dict(self) -> None:
        self.done("export", "--to", "torch", self.path("saved"), self.path("theirs"))
        for mapped in (False, True):
            read = torch.load(self.path("theirs"), weights_only=True, mmap=mapped)
            model, optimizer = trained(torch.optim.AdamW)
            lost = model.load_state_dict(read["model"], strict=False)
            self.assertEqual((lost.missing_keys, lost.unexpected_keys), (["tied.weight"], []))
            optimizer.load_state_dict(read["optimizer"])
            self.same_model(model)
            self.same_state(optimizer)
            optimizer.step()

    def test_a_directory_of_distributed_checkpoint(self) -> None:
        self.done("export", "--to", "dcp", self.path("saved"), self.path("theirs"))
        model, optimizer = trained(torch.optim.AdamW)
        weights = model.state_dict()
        del weights["tied.weight"]
        document = {
            "model": weights,
            "optimizer": dcp_state.get_optimizer_state_dict(model, optimizer),
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.load(document, checkpoint_id=self.path("theirs"), no_dist=True)
        dcp_state.set_optimizer_state_dict(model, optimizer, document["optimizer"])
        self.same_model(model)
        self.same_state(optimizer)

    def test_a_checkpoint_has_what_torch_says(self) -> None:
        said = self.inspected(self.path("saved"))
        self.assertEqual([said[key] for key in ("optimizer", "step", "world")], ["adamw", 2, 1])
        settings = said["groups"][0]
        self.assertEqual([settings[key] for key in ("lr", "beta1", "beta2")], [0.0625, 0.5, 0.75])
        named = [name for name, _ in self.model.named_parameters()]
        self.assertEqual([one["name"] for one in said["parameters"]], named)
        self.assertEqual(
            {one["name"] for one in said["buffers"]},
            {name for name, _ in self.model.named_buffers()},
        )


class TorchWrites(FilesTest):
    def test_classes_are_known_by_their_options(self) -> None:
        for optimizer_class, rule in (
            (torch.optim.Adam, "adam"),
            (torch.optim.SGD, "sgd"),
            (torch.optim.RMSprop, "rmsprop"),
            (torch.optim.Adagrad, "adagrad"),
            (torch.optim.NAdam, "nadam"),
            (torch.optim.Rprop, "rprop"),
        ):
            model, optimizer = trained(optimizer_class, lr=0.125)
            torch.save(
                {
                    "model_state_dict": model.state_dict(),
                    "optimizer_state_dict": optimizer.state_dict(),
                },
                self.path("file"),
            )
            self.done(
                "import",
                "--replace",
                "--from",
                "torch",
                "--buffers",
                "*.running_*",
                self.path("file"),
                self.path("saved"),
            )
            said = self.inspected(self.path("saved"))
            self.assertEqual((said["optimizer"], said["groups"][0]["lr"]), (rule, 0.125))

    def test_state_of_16_bits_becomes_fp32(self) -> None:
        torch.manual_seed(3)
        model = torch.nn.Linear(5, 3, dtype=torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.randn(2, 5, dtype=torch.bfloat16)).square().sum().backward()
        optimizer.step()
        document = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(document, self.path("file"))
        self.done("import", "--from", "torch", self.path("file"), self.path("saved"))
        self.done("export", "--to", "torch", self.path("saved"), self.path("back"))
        back = torch.load(self.path("back"), weights_only=True)
        self.assertEqual(back["model"]["weight"].dtype, torch.bfloat16)
        for name, value in document["optimizer"]["state"][0].items():
            other = back["optimizer"]["state"][0][name]
            self.assertEqual(other.dtype, torch.float32)
            self.assertTrue(torch.equal(value.float(), other), name)

    def test_tensors_that_are_not_contiguous_come_as_they_are(self) -> None:
        square = torch.randn(40, 40)
        many = torch.randn(3, 50, 70)
        model = {"square": square, "its": square.t(), "turned": many.permute(2, 0, 1)[5:60:2]}
        torch.save({"model": model}, self.path("file"))
        with mock.patch.object(_streams, "PART_BYTES", 1000):
            self.done("import", "--rule", "adamw", "--from", "torch", self.path("file"), self.path("saved"))
        self.done("export", "--to", "torch", self.path("saved"), self.path("back"))
        back = torch.load(self.path("back"), weights_only=True)["model"]
        self.assertEqual(list(back), list(model))
        for name, tensor in model.items():
            self.assertTrue(torch.equal(back[name], tensor), name)

    def test_tensors_with_torchs_negative_bit_keep_their_sign(self) -> None:
        held = torch.randn(9)
        half = torch.randn(3, dtype=torch.complex64).conj().imag
        model = {"plain": held, "turned": torch._neg_view(held), "half": half}
        self.assertTrue(model["turned"].is_neg() and model["half"].is_neg())
        torch.save({"model": model}, self.path("torch"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save({"model": model}, checkpoint_id=self.path("dcp"), no_dist=True)
        for form in FORMATS:
            self.done("import", "--rule", "adamw", "--from", form, self.path(form), self.path(f"{form} saved"))
            self.done("export", "--to", "torch", self.path(f"{form} saved"), self.path(f"{form} back"))
            back = torch.load(self.path(f"{form} back"), weights_only=True)["model"]
            self.assertEqual(list(back), list(model))
            for name, tensor in model.items():
                self.assertEqual(back[name].tolist(), tensor.tolist(), name)

    def test_an_archive_that_another_program_wrote_again_comes_in(self) -> None:
        model = {f"tensor{number}": torch.randn(number, 9) for number in range(1, 9)}
        torch.save({"model": model}, self.path("file"))
        zip_again(self.path("file"))
        self.done("import", "--rule", "adamw", "--from", "torch", self.path("file"), self.path("saved"))
        self.done("export", "--to", "torch", self.path("saved"), self.path("back"))
        back = torch.load(self.path("back"), weights_only=True)["model"]
        for name, tensor in torch.load(self.path("file"), weights_only=True)["model"].items():
            self.assertTrue(torch.equal(back[name], tensor), name)

    def test_pieces_that_are_not_contiguous_come_as_they_are(self) -> None:
        square = torch.randn(40, 40)
        image = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)
        model = {"turned": square.t().clone(), "image": image, "square": square}
        self.assertFalse(model["turned"].is_contiguous())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save({"model": model}, checkpoint_id=self.path("there"), no_dist=True)
        torch.save({"model": model}, self.path("file"))
        self.done("import", "--rule", "adamw", "--from", "torch", self.path("file"), self.path("saved"))
        for most in (100, 1 << 20):
            back = self.path(f"back{most}")
            with mock.patch.object(_streams, "PART_BYTES", most):
                self.done("import", "--rule", "adamw", "--from", "dcp", self.path("there"), back)
            self.same(self.path("saved"), back)

    def test_what_is_left_out_moves_nothing_else(self) -> None:
        """A frozen 16-bit parameter has a master weight and no other state."""
        model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Linear(3, 2))
        model.register_parameter("scale", torch.nn.Parameter(torch.tensor(0.5)))
        model.bfloat16()
        model[0].bias.requires_grad_(False)
        with libzero.torch.Optimizer(model.named_parameters(), "adamw") as optimizer:
            outputs = model(torch.ones(2, 5, dtype=torch.bfloat16)) * model.scale
            outputs.square().sum().backward()
            optimizer.step()
            optimizer.save(self.path("saved"))
        files = []
        for form in ("torch", "dcp"):
            self.done("export", "--to", form, self.path("saved"), self.path(form))
            self.done("import", "--from", form, self.path(form), self.path(f"back from {form}"))
            again = self.path(f"again from {form}")
            self.done("export", "--to", "torch", self.path(f"back from {form}"), again)
            files.append(torch.load(again, weights_only=True))
        for file in files:
            for name, value in model.state_dict().items():
                self.assertTrue(torch.equal(file["model"][name], value), name)
            self.assertEqual(sorted(file["optimizer"]["state"]), [0, 1, 3, 4])
        for number, slots in files[0]["optimizer"]["state"].items():
            for slot, value in slots.items():
                self.assertTrue(torch.equal(files[1]["optimizer"]["state"][number][slot], value), slot)

    def test_a_rule_without_state_goes_there_and_back(self) -> None:
        model = torch.nn.Linear(3, 3)
        with libzero.torch.Optimizer(model.named_parameters(), "sgd", lr=0.1) as optimizer:
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
            optimizer.save(self.path("saved"))
        for form in ("torch", "dcp"):
            self.done("export", "--to", form, self.path("saved"), self.path(form))
            self.done("import", "--from", form, self.path(form), self.path(f"back from {form}"))
            said = self.inspected(self.path(f"back from {form}"))
            self.assertEqual((said["optimizer"], len(said["parameters"])), ("sgd", 2))

    def test_a_model_alone_begins_at_step_0(self) -> None:
        torch.save({"model": torch.nn.Linear(3, 3).state_dict()}, self.path("file"))
        self.done(
            "import", "--from", "torch", "--rule", "lion", self.path("file"), self.path("saved")
        )
        said = self.inspected(self.path("saved"))
        self.assertEqual((said["optimizer"], said["step"], len(said["parameters"])), ("lion", 0, 2))

    def test_tensors_in_parts_that_cut_any_dimension(self) -> None:
        whole = torch.arange(5 * 6 * 7, dtype=torch.float32).view(5, 6, 7)
        cuts = [list(itertools.pairwise(ends)) for ends in ((0, 2, 5), (0, 3, 4, 6), (0, 7))]
        torch.save({"model": {"w": whole}}, self.path("file"))
        self.done("import", "--rule", "adamw", "--from", "torch", self.path("file"), self.path("saved"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save(
                {"model": {"w": Cut(whole, list(itertools.product(*cuts)))}},
                storage_writer=dcp.FileSystemWriter(self.path("there"), thread_count=2),
                planner=CutPlanner(),
                no_dist=True,
            )
        for most in (4, 100, 1 << 20):
            with mock.patch.object(_streams, "PART_BYTES", most):
                back = self.path(f"back{most}")
                self.done("import", "--rule", "adamw", "--from", "dcp", self.path("there"), back)
            self.same(self.path("saved"), self.path(f"back{most}"))


class Cut:
    """A tensor that torch.distributed.checkpoint receives in boxes."""

    def __init__(self, whole: torch.Tensor, cuts: list[Any]) -> None:
        self.whole, self.cuts = whole, cuts

    def __create_write_items__(self, fqn: str, _: Any) -> list[WriteItem]:
        return [
            WriteItem(
                index=meta.MetadataIndex(fqn, [begin for begin, _ in cut]),
                type=WriteItemType.SHARD,
                tensor_data=TensorWriteData(
                    chunk=meta.ChunkStorageMetadata(
                        torch.Size(begin for begin, _ in cut),
                        torch.Size(end - begin for begin, end in cut),
                    ),
                    properties=meta.TensorProperties(dtype=self.whole.dtype),
                    size=self.whole.size(),
                ),
            )
            for cut in self.cuts
        ]


class CutPlanner(dcp.DefaultSavePlanner):
    def resolve_data(self, write_item: WriteItem) -> Any:
        held = self.state_dict[write_item.index.fqn]
        if not isinstance(held, Cut):
            return super().resolve_data(write_item)
        assert write_item.tensor_data is not None
        chunk = write_item.tensor_data.chunk
        return held.whole[
            tuple(slice(a, a + n) for a, n in zip(chunk.offsets, chunk.sizes))
        ].clone()


if __name__ == "__main__":
    unittest.main()
