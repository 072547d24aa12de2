# SPDX-License-Identifier: Apache-2.0
"""Tests that each layout in docs/tools.md is imported, and that training then continues as in
torch."""

from __future__ import annotations

import json
import os
import pathlib
import unittest
from typing import Any

import torch

from files import FilesTest
from importing import ImportTest
from layouts import (
    LAYOUTS,
    decayed,
    document,
    save_distributed,
    small_model,
    trained,
    write_safetensors,
)


class Taken(ImportTest):
    def test_each_layout(self) -> None:
        for layout, (form, write, has_groups) in LAYOUTS.items():
            with self.subTest(layout):
                self.model = small_model()
                groups = decayed if has_groups else None
                optimizer = trained(self.model, groups=groups(self.model) if groups else None)
                options = write(self.path(layout), self.model, optimizer)
                arguments = ("--replace", "--from", form, *options)
                status, told = self.run_main(
                    "import", *arguments, self.path(layout), self.path("saved")
                )
                self.assertEqual(status, 0, told)
                self.goes_on(optimizer, groups)

    def test_groups_of_a_flattened_optimizer_are_those_of_equal_options(self) -> None:
        groups = decayed(self.model)[::-1]
        optimizer = trained(self.model, groups=groups)
        LAYOUTS["torchtitan"][1](self.path("titan"), self.model, optimizer)
        status, told = self.run_main(
            "import", "--from", "dcp", self.path("titan"), self.path("saved")
        )
        self.assertEqual(status, 0, told)
        said = self.inspected(self.path("saved"))
        decays = {one["name"]: said["groups"][one["group"]]["weight_decay"] for one in said["parameters"]}
        self.assertEqual(
            decays,
            {name: 0.1 if one.dim() >= 2 else 0.0 for name, one in self.model.named_parameters()},
        )

    def test_numbers_of_the_program_are_left(self) -> None:
        optimizer = trained(self.model)
        given = document(self.model, optimizer)
        given.update(best_val_loss=torch.tensor(2.5), metrics={"accuracy": torch.tensor([0.5])})
        given.update(scaler_state_dict={"scale": torch.tensor([1.0, 2.0])}, random_state=torch.zeros(9))
        told = self.taken(given)
        for name in ("best_val_loss", "metrics", "scaler_state_dict", "random_state"):
            self.assertIn(name, told)
        self.goes_on(optimizer)
        self.not_taken("it has 'ema'", {**given, "ema": {"w": torch.zeros(3)}})

    def test_masters_of_megatron_are_masters_here(self) -> None:
        model = small_model().bfloat16()
        masters = [param.detach().float().clone().requires_grad_() for param in model.parameters()]
        optimizer = torch.optim.AdamW(masters, lr=0.03)
        for master in masters:
            master.grad = torch.full_like(master, 0.25)
        optimizer.step()
        given = {
            "model": {name: one.detach() for name, one in model.named_parameters()},
            "optimizer": {
                "optimizer": optimizer.state_dict(),
                "fp32_from_fp16_params": [[master.detach() for master in masters]],
                "grad_scaler": {},
            },
        }
        self.taken(given)
        self.done("export", "--to", "torch", self.path("saved"), self.path("back"))
        state = torch.load(self.path("back"))["optimizer"]["state"]
        for number, master in enumerate(masters):
            self.assertTrue(torch.equal(state[number]["master"], master), number)
        given["optimizer"]["fp32_from_fp16_params"][0].pop()
        self.not_taken(r"fp32_from_fp16_params have \[7\] tensors per group", given)
        given["optimizer"]["param_state"] = {0: {"exp_avg": torch.ones(3)}}
        self.not_taken("it has 'optimizer.param_state', which nothing", given)

    def test_tensors_at_equal_places_of_two_shards_are_two(self) -> None:
        held = {f"{layer}.{name}": torch.randn(4, 4) for layer in range(2) for name in ("first", "second")}
        shards = {name: f"pytorch_model-0000{int(name[0]) + 1}-of-00002.bin" for name in held}
        os.mkdir(self.path("model"))
        for shard in set(shards.values()):
            torch.save({name: held[name] for name in held if shards[name] == shard}, self.path(f"model/{shard}"))
        index = pathlib.Path(self.path("model/pytorch_model.bin.index.json"))
        index.write_text(json.dumps({"weight_map": shards}))
        self.done("import", "--rule", "adamw", "--from", "torch", self.path("model"), self.path("saved"))
        self.assertEqual(self.weights(), {name: one.tolist() for name, one in held.items()})


class Refused(ImportTest):
    def test_safetensors_and_distributed_checkpoints_have_no_order_of_parameters(self) -> None:
        optimizer = trained(self.model)
        LAYOUTS["trainer"][1](self.path("trainer"), self.model, optimizer)
        save_distributed(self.path("dcp"), document(self.model, optimizer))
        for form, path in (("torch", "trainer"), ("dcp", "dcp")):
            command = ("import", "--from", form, self.path(path), self.path("saved"))
            self.refused("in no order of registration.* give --order FILE", *command)
            self.refused("in no order of registration", *command, "--order", "registration")
            status, told = self.run_main(*command, "--replace", "--order", self.path("trainer.names"))
            self.assertEqual(status, 0, told)
            self.model = small_model()
            self.goes_on(trained(self.model))

    def test_what_a_layout_cannot_have_in_one_checkpoint(self) -> None:
        optimizer = trained(self.model)
        given = document(self.model, optimizer)
        model, state = given["model"], given["optimizer"]
        self.not_taken(
            "it has 2 optimizers in 'optimizer_states', and a checkpoint holds one",
            {"state_dict": model, "optimizer_states": [state, state]},
        )
        self.not_taken(
            "its 'optimizer' is None, so the optimizer's state is elsewhere",
            {"module": model, "optimizer": None},
        )
        self.taken({"module": model, "optimizer": None}, "--ignore", "optimizer", "--rule", "adamw")
        self.not_taken("it has no optimizer", model)
        self.taken(model, "--rule", "adamw")  # like pytorch_model.bin and zero_to_fp32 of DeepSpeed

    def test_directories_with_two_of_a_kind_or_none(self) -> None:
        optimizer = trained(self.model)
        for name, words in (
            ("optimizer_1.bin", "it has 'optimizer_1.bin', which nothing here takes"),
            ("model_1.safetensors", "it has 'model_1.safetensors', which nothing here takes"),
            ("optimizer.pt", "it has optimizer.pt, optimizer.bin: which optimizer is meant"),
            ("model.safetensors", "it has model.safetensors, pytorch_model.bin: which model is meant"),
        ):
            folder = self.path(name)
            LAYOUTS["accelerate"][1](folder, self.model, optimizer)
            torch.save({}, os.path.join(folder, name))
            command = ("import", "--from", "torch", folder, self.path("saved"))
            self.refused(words, *command)
            status, told = self.run_main(*command, "--replace", "--ignore", name)
            self.assertEqual(status, 0, told)
            self.assertIn(f"not taken: '{name}', 'random_states_0.pkl', 'scheduler.bin'", told)
        os.mkdir(self.path("empty"))
        self.refused(
            "it has no model: none of", "import", "--from", "torch", self.path("empty"), self.path("saved")
        )


    def test_files_beside_that_may_hold_state_are_named_until_they_are_ignored(self) -> None:
        folder = self.path("folder")
        LAYOUTS["accelerate"][1](folder, self.model, trained(self.model))
        write_safetensors(f"{folder}/ema.safetensors", self.model.state_dict())
        for name in ("optimizer_0", "global_step5"):
            os.mkdir(f"{folder}/{name}")
        command = ("import", "--from", "torch", folder, self.path("saved"))
        self.refused("it has 'ema.safetensors', 'global_step5', 'optimizer_0', which nothing", *command)
        self.refused("it has 'global_step5', which", *command, "--ignore", "ema,optimizer_*")
        ignored = ("--ignore", "ema.safetensors,optimizer_0,global_step5")
        self.assertEqual(self.run_main(*command, *ignored)[0], 0)

    def test_an_optimizer_that_is_ignored_is_not_read(self) -> None:
        folder = self.path("folder")
        LAYOUTS["accelerate"][1](folder, self.model, trained(self.model))
        pathlib.Path(f"{folder}/optimizer.bin").write_bytes(b"nothing")
        command = ("import", "--from", "torch", "--ignore", "optimizer.bin", folder, self.path("saved"))
        self.refused("optimizer.bin: it is not a torch.save file", *command[:3], folder, self.path("saved"))
        self.refused("it has no optimizer", *command)
        self.assertEqual(self.run_main(*command, "--rule", "adamw")[0], 0)
        self.assertEqual(self.inspected(self.path("saved"))["step"], 0)

    def test_options_that_are_of_nothing_are_refused(self) -> None:
        optimizer = trained(self.model)
        given = {**document(self.model, optimizer), "ema": {"w": torch.zeros(3)}}
        self.not_taken("--ignore 'emma', 'w': it has nothing of", given, "--ignore", "emma,ema,w")
        buffers = ("--ignore", "ema", "--buffers", "*.running_mean")
        self.not_taken(r"--buffers '\*\.running_mean': it has nothing of", given, *buffers)
        alone = {"model": self.model.state_dict()}
        self.not_taken("--order is for .* optimizer", alone, "--rule", "adamw", "--order", "dimensions")


class Safetensors(FilesTest):
    def test_adapters_come_in_with_their_optimizer(self) -> None:
        adapters = {
            f"base_model.model.layers.{layer}.q_proj.lora_{side}.weight": torch.randn(4, 4)
            for layer in range(2)
            for side in "AB"
        }
        params = [torch.nn.Parameter(one) for one in adapters.values()]
        optimizer = torch.optim.AdamW(params, lr=0.03)
        for param in params:
            param.grad = torch.ones_like(param)
        optimizer.step()
        os.mkdir(self.path("adapter"))
        write_safetensors(self.path("adapter/adapter_model.safetensors"), adapters)
        torch.save(optimizer.state_dict(), self.path("adapter/optimizer.pt"))
        pathlib.Path(self.path("names")).write_text("\n".join(adapters))
        order = ("--order", self.path("names"))
        self.done("import", "--from", "torch", *order, self.path("adapter"), self.path("saved"))
        said: Any = self.inspected(self.path("saved"))
        self.assertEqual([one["name"] for one in said["parameters"]], list(adapters))
        self.assertEqual({one["step"] for one in said["parameters"]}, {1})

    def test_damaged_files_are_sentences(self) -> None:
        tensors = {"a": torch.ones(2, 2), "b": torch.ones(3)}
        os.mkdir(self.path("model"))
        path = self.path("model/model.safetensors")
        command = ("import", "--rule", "adamw", "--from", "torch", self.path("model"), self.path("saved"))
        write_safetensors(path, tensors)
        whole = pathlib.Path(path).read_bytes()
        for damaged in (
            whole[:-1],
            whole.replace(b'"b"', b'"a"'),
            whole.replace(b"F32", b"F16"),
            whole.replace(b"[3]", b"[9]"),
            b"\xff" * 9,
            b"",
        ):
            with open(path, "wb") as file:
                file.write(damaged)
            self.refused("model.safetensors(: .*keys are repeated|.*it is damaged)", *command)
        os.rename(path, self.path("model/one.safetensors"))
        index = self.path("model/model.safetensors.index.json")
        write_safetensors(self.path("model/one.safetensors"), tensors)
        for places, words in (
            ('{"a": "one.safetensors", "c": "one.safetensors"}', "it has 'b', .* it lacks 'c'"),
            ('{"a": "../one.safetensors"}', "a path in place of a file name"),
            ('{"a": "one.safetensors", "a": "one.safetensors"}', "keys are repeated: 'a'"),
            ("5", "not an index of a model"),
        ):
            with open(index, "w", encoding="utf-8") as file:
                file.write(f'{{"weight_map": {places}}}')
            self.refused(words, *command)


if __name__ == "__main__":
    unittest.main()
