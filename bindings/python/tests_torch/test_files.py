# SPDX-License-Identifier: Apache-2.0
"""Exports to files of torch, and imports of them: `python -m libzero` on checkpoints that libzero saves."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import warnings
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import metadata as meta
from torch.distributed.checkpoint import state_dict as dcp_state
from torch.distributed.checkpoint.planner import TensorWriteData, WriteItem, WriteItemType

import libzero
from libzero.torch import _commands, _streams

ZERO = os.environ.get("ZERO_TOOL", "zero")
FORMATS = ("torch", "dcp")
# Settings with which a rule has all of its state.
SETTINGS: dict[str, dict[str, float]] = {
    "adamw": {"amsgrad": 1},
    "sgd": {"momentum": 0.9},
    "lars": {"momentum": 0.9},
    "rmsprop": {"momentum": 0.9, "centered": 1},
}


def save(directory: str, rule: str, **settings: float) -> None:
    """A checkpoint of some steps with parameters of several types and groups, and a buffer."""
    shapes = {
        "a.weight": (30, 7),
        "a.bias": (7,),
        "none": (0, 3),
        "b.half": (99,),
        "b.wide": (3, 2),
    }
    dtypes = {"b.half": "bfloat16", "b.wide": "float64"}
    with libzero.Comm.solo() as comm:
        params = [
            libzero.Param(name, shape=shape, dtype=dtypes.get(name))
            for name, shape in shapes.items()
        ]
        memory = libzero.allocate(comm, params)
        optimizer = libzero.Optimizer(comm, rule, **settings)
        optimizer.register(memory.params[:2])
        optimizer.register(memory.params[2:], lr=0.125)
        optimizer.register_buffers(
            [libzero.ModelBuffer("seen", memoryview(bytearray(range(8))).cast("q"))]
        )
        for number, name in enumerate(shapes):
            for held, seed in ((memory.data[name], number), (memory.grads[name], number + 99)):
                if 0 not in shapes[name]:
                    bits = memoryview(held).cast("B")
                    values = torch.frombuffer(
                        bits, dtype=getattr(torch, dtypes.get(name, "float32"))
                    )
                    torch.manual_seed(seed)
                    values.copy_(torch.randn(len(values)))
        optimizer.broadcast_params()
        for _ in range(3):
            optimizer.step()
        optimizer.save(directory)
        optimizer.close()


class Model(torch.nn.Module):
    """Has buffers, a layout of its own, and a tie."""

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


class FilesTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        path = os.pathsep.join([os.path.dirname(os.path.abspath(ZERO)), os.environ["PATH"]])
        patched = mock.patch.dict(os.environ, {"PATH": path})
        patched.start()
        self.addCleanup(patched.stop)

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    def run_main(self, *arguments: str) -> tuple[int, str]:
        """What it returns, and its own words on the error stream."""
        errors = io.StringIO()
        taken = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
            status = _commands.main(arguments)
        for number, handler in taken.items():
            signal.signal(number, handler)
        return status, errors.getvalue()

    def done(self, *arguments: str) -> None:
        self.assertEqual(self.run_main(*arguments), (0, ""))

    def refused(self, words: str, *arguments: str) -> None:
        before = sorted(os.listdir(self.folder))
        status, errors = self.run_main(*arguments)
        self.assertEqual(status, 1)
        self.assertRegex(errors, rf"^python -m libzero \w+: .*{words}.*\n$")
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def same(self, one: str, other: str) -> None:
        done = subprocess.run(
            [ZERO, "diff", one, other], capture_output=True, text=True, timeout=60, check=False
        )
        self.assertEqual((done.stdout, done.stderr), ("no difference\n", ""))

    def inspected(self, checkpoint: str) -> Any:
        done = subprocess.run(
            [ZERO, "inspect", "--json", checkpoint], capture_output=True, timeout=60, check=True
        )
        return json.loads(done.stdout)


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
    """Models without names of libzero's: torch made them, and trained them."""

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

    def test_what_is_left_out_moves_nothing_else(self) -> None:
        """A frozen parameter of 16 bits has a master and no other state."""
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
        self.done("import", "--from", "torch", self.path("file"), self.path("saved"))
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
                self.done("import", "--from", "dcp", self.path("there"), self.path(f"back{most}"))
            self.same(self.path("saved"), self.path(f"back{most}"))


class Cut:
    """A tensor that torch.distributed.checkpoint is given in boxes."""

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


class Evil:
    """Runs code where it is unpickled without care."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("evil",)


@contextlib.contextmanager
def inside(folder: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class BadInput(FilesTest):
    def test_pickles_with_code_are_refused_by_the_name_of_what_they_run(self) -> None:
        torch.save({"model": {"w": torch.ones(3)}, "more": Evil()}, self.path("file"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save(
                {"model": {"w": torch.ones(3)}, "more": Evil()},
                checkpoint_id=self.path("item"),
                no_dist=True,
            )
            dcp.save(
                {"model": {"w": torch.ones(3)}}, checkpoint_id=self.path("metadata"), no_dist=True
            )
        pathlib.Path(self.path("metadata"), ".metadata").write_bytes(pickle.dumps(Evil()))
        with inside(self.folder):
            for name, place in (("torch", "file"), ("dcp", "item"), ("dcp", "metadata")):
                self.refused(
                    r"it has posix\.mkdir, which is none", "import", "--from", name, place, "saved"
                )

    def test_what_is_no_file_of_torch_is_a_sentence(self) -> None:
        os.mkfifo(self.path("pipe"))
        pathlib.Path(self.path("text")).write_text("no tensors at all")
        with open(self.path("old"), "wb") as file:
            torch.save({"model": {"w": torch.ones(3)}}, file, _use_new_zipfile_serialization=False)
        torch.save([1, 2], self.path("list"))
        torch.save({"weights": 1}, self.path("keys"))
        torch.save({"model": {"w": torch.ones(3)}, "zero": "[]"}, self.path("rest"))
        torch.save({"model": {"w": torch.ones(3).to_sparse()}}, self.path("sparse"))
        torch.save({"model": {"w": torch.ones(3, dtype=torch.bool)}}, self.path("bool"))
        torch.save({"model": {"w": torch.ones(3)}}, self.path("cut"))
        os.truncate(self.path("cut"), 700)
        for name, words in (
            ("missing", "No such file"),
            ("pipe", "is not a regular file"),
            ("text", "it (is no file of torch.save|has)"),
            ("old", "format of torch before 1.6"),
            ("list", "it holds a list, not a dictionary"),
            ("keys", "it has no model or model_state_dict or state_dict, but weights"),
            ("rest", "its 'zero' holds a list, not a dictionary"),
            ("sparse", "not dense"),
            ("bool", "tensor 'w' has dtype torch.bool"),
            ("cut", "it is no file of torch.save"),
        ):
            with self.subTest(name):
                self.refused(
                    words, "import", "--from", "torch", self.path(name), self.path("saved")
                )
        for name in ("missing", "text"):
            self.refused(
                "no directory of torch.distributed",
                "import",
                "--from",
                "dcp",
                self.path(name),
                self.path("saved"),
            )

    def test_an_optimizer_that_is_not_known_is_a_sentence(self) -> None:
        model = torch.nn.Linear(2, 2).state_dict()
        group = {"params": [0, 1], "lr": 1.0, "speed": 3}
        for optimizer, arguments, words in (
            ({"state": {}, "param_groups": [group]}, [], "give --rule, as --rule adamw"),
            (
                {"state": {}, "param_groups": [group]},
                ["--rule", "adamm"],
                "there is no rule 'adamm', but adamw",
            ),
            (
                {"state": {}, "param_groups": [{**group, "lr": "fast"}]},
                ["--rule", "sgd"],
                "lr is 'fast'",
            ),
            (
                {"state": {}, "param_groups": [{**group, "params": [0]}]},
                ["--rule", "sgd"],
                "2 floating tensors and its optimizer 1 param",
            ),
            (
                {"state": {}, "param_groups": [{**group, "param_names": ["weight", "w"]}]},
                ["--rule", "sgd"],
                "parameter 'w'",
            ),
            (
                {"state": {0: {"sum": torch.ones(3)}}, "param_groups": [group]},
                ["--rule", "adagrad"],
                "has shape",
            ),
            (
                {"state": {}, "param_groups": [{**group, "param_names": ["weight"]}]},
                ["--rule", "sgd"],
                "has 2 parameters, and names for 1",
            ),
            (
                {"state": {0: {"step": "late"}}, "param_groups": [group]},
                ["--rule", "sgd"],
                "state 'step' of 'weight' is no number",
            ),
            (
                {"state": {0: 5}, "param_groups": [group]},
                ["--rule", "sgd"],
                "state of its parameter 0 holds a int",
            ),
            ({"state": [5], "param_groups": [group]}, [], "no state_dict of torch.optim"),
            ({"steps": 3}, [], "no state_dict of torch.optim"),
        ):
            with self.subTest(words):
                torch.save({"model": model, "optimizer": optimizer}, self.path("file"))
                self.refused(
                    words,
                    "import",
                    "--from",
                    "torch",
                    *arguments,
                    self.path("file"),
                    self.path("saved"),
                )

    def test_a_place_that_is_taken_stays(self) -> None:
        save(self.path("saved"), "sgd")
        pathlib.Path(self.path("mine")).write_text("mine")
        os.mkfifo(self.path("pipe"))
        for name in FORMATS:
            self.refused(
                "exists: remove it", "export", "--to", name, self.path("saved"), self.path("mine")
            )
        self.refused(
            "is not a regular file",
            "export",
            "--to",
            "torch",
            "--replace",
            self.path("saved"),
            self.path("pipe"),
        )
        self.refused(
            "No such file", "export", "--to", "torch", self.path("saved"), self.path("no/such")
        )
        self.done("export", "--to", "torch", "--replace", self.path("saved"), self.path("mine"))

    def test_a_damaged_checkpoint_leaves_nothing(self) -> None:
        save(self.path("saved"), "sgd")
        with open(self.path("saved/model-00001-of-00001.safetensors"), "r+b") as file:
            file.seek(4100)
            file.write(b"damaged")
        for name in FORMATS:
            self.assertEqual(
                self.run_main("export", "--to", name, self.path("saved"), self.path("there")),
                (1, ""),
            )
            self.assertEqual(os.listdir(self.folder), ["saved"])


class Interrupted(FilesTest):
    def test_ctrl_c_leaves_nothing(self) -> None:
        torch.save({"model": {"w": torch.zeros(1 << 26)}}, self.path("file"))
        self.done("import", "--from", "torch", self.path("file"), self.path("saved"))
        before = sorted(os.listdir(self.folder))
        for number, command in (
            (signal.SIGINT, ("export", "--to", "torch", "saved", "there")),
            (signal.SIGTERM, ("import", "--from", "torch", "file", "there")),
        ):
            process = subprocess.Popen(
                [sys.executable, "-m", "libzero", *command], cwd=self.folder, stderr=subprocess.PIPE
            )
            while process.poll() is None and sorted(os.listdir(self.folder)) == before:
                time.sleep(0.01)
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
            self.assertEqual(errors, b"")
            self.assertNotEqual(process.returncode, 0)
            self.assertEqual(sorted(os.listdir(self.folder)), before)


if __name__ == "__main__":
    unittest.main()
