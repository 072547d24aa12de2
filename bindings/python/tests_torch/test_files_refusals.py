# SPDX-License-Identifier: Apache-2.0
"""Tests what exports and imports of torch files reject, and what they leave on disk after that."""

from __future__ import annotations

import contextlib
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import time
import unittest
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

from files import ALONE, FORMATS, FilesTest, save
from libzero.torch import _places
from libzero.torch._streams import RefusedError


class Evil:
    """Runs code if it is unpickled without protection."""

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
                    r"it has posix\.mkdir, which is not one", "import", "--from", name, place, "saved"
                )

    def test_what_is_no_file_of_torch_is_a_sentence(self) -> None:
        os.mkfifo(self.path("pipe"))
        pathlib.Path(self.path("text")).write_text("hello world")
        pathlib.Path(self.path("empty")).touch()
        with open(self.path("old"), "wb") as file:
            torch.save({"model": {"w": torch.ones(3)}}, file, _use_new_zipfile_serialization=False)
        torch.save([1, 2], self.path("list"))
        torch.save({"weights": 1}, self.path("keys"))
        torch.save({"model": {"w": torch.ones(3)}, "zero": "[]"}, self.path("rest"))
        torch.save({"model": {"w": torch.ones(3).to_sparse()}}, self.path("sparse"))
        torch.save({"model": {"w": torch.nested.nested_tensor([torch.ones(2)])}}, self.path("nested"))
        torch.save({"model": {"w": torch.ones(3, dtype=torch.bool)}}, self.path("bool"))
        torch.save({"model": {"w": torch.ones(3)}}, self.path("cut"))
        os.truncate(self.path("cut"), 700)
        for name, words in (
            ("missing", "No such file"),
            ("pipe", "is not a regular file"),
            ("text", "it is not a torch.save file, or has .* before 1.6: give a file"),
            ("empty", "it is not a torch.save file, or has .* before 1.6: give a file"),
            ("old", "format of torch before 1.6"),
            ("list", "it holds a list, not a dictionary"),
            ("keys", "it has no model or model_state_dict or state_dict or module, but weights"),
            ("rest", "its 'zero' holds a list, not a dictionary"),
            ("sparse", "not dense"),
            ("nested", "not dense"),
            ("bool", "tensor 'w' has dtype torch.bool"),
            ("cut", "it is not a torch.save file"),
        ):
            with self.subTest(name):
                self.refused(words, *ALONE, "torch", self.path(name), self.path("saved"))
        for name in ("missing", "text"):
            self.refused(
                "not a torch.distributed",
                "import",
                "--from",
                "dcp",
                self.path(name),
                self.path("saved"),
            )

    def test_an_optimizer_that_is_not_known_is_a_sentence(self) -> None:
        model = torch.nn.Linear(2, 2).state_dict()
        group = {"params": [0, 1], "lr": 1.0, "speed": 3}
        sgd = torch.optim.SGD([torch.zeros(1)]).state_dict()["param_groups"][0]
        group = {**sgd, **group}
        for optimizer, arguments, words in (
            ({"state": {}, "param_groups": [group]}, [], "give --rule, for example --rule adamw"),
            (
                {"state": {}, "param_groups": [group]},
                ["--rule", "adamm"],
                "there is no rule 'adamm', but adamw",
            ),
            (
                {"state": {}, "param_groups": [{**group, "lr": "fast"}]},
                ["--rule", "sgd", "--ignore", "*.speed"],
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
                "has parameters that its model lacks: 'w'",
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
                ["--rule", "lion", "--fill", "--ignore", "*.speed"],
                "'weight.step' is 'late', not a number",
            ),
            (
                {"state": {0: 5}, "param_groups": [group]},
                ["--rule", "sgd"],
                "state of its parameter 0 holds a int",
            ),
            ({"state": [5], "param_groups": [group]}, [], "not a state_dict of torch.optim"),
            ({"param_groups": [group]}, [], "not a state_dict of torch.optim"),
            ({"steps": 3}, [], "not a state_dict of torch.optim"),
            (
                {"state": {}, "param_groups": [{**group, ("betas",): 1.0}]},
                [],
                r"param_groups.0 has the key \('betas',\), not a name",
            ),
            (
                {"state": {}, "param_groups": [{**group, "params": [0, {}]}]},
                [],
                r"param_groups.0.params is \[0, {}\], not a list of names",
            ),
            (
                {"state": {}, "param_groups": [{**group, "params": [0, torch.tensor(1)]}]},
                [],
                "param_groups.0.params is .*, not a list of names",
            ),
            (
                {"state": {}, "param_groups": [{**group, "param_names": [[], "w"]}]},
                [],
                "param_groups.0.param_names is .*, not a list of names",
            ),
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
        self.refused(
            "is not a directory", "export", "--to", "dcp", self.path("saved"), self.path("mine")
        )
        self.refused(
            "exists: remove it", "export", "--to", "torch", self.path("saved"), self.path("mine")
        )
        self.done("export", "--to", "dcp", self.path("saved"), self.path("theirs"))
        again = ("export", "--to", "dcp", self.path("saved"), self.path("theirs"))
        self.refused("exists: remove it", *again)
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
            "a file in a checkpoint",
            "export",
            "--to",
            "torch",
            "--replace",
            self.path("saved"),
            self.path("saved/zero.json"),
        )
        self.refused(
            "No such file", "export", "--to", "torch", self.path("saved"), self.path("no/such")
        )
        self.done("export", "--to", "torch", "--replace", self.path("saved"), self.path("mine"))
        before = os.stat(self.path("theirs")).st_ino
        self.done(*again, "--replace")
        self.assertNotEqual(os.stat(self.path("theirs")).st_ino, before)
        self.assertEqual(sorted(os.listdir(self.path("."))), ["mine", "pipe", "saved", "theirs"])

    def test_a_directory_that_holds_anything_else_is_not_replaced(self) -> None:
        save(self.path("saved"), "sgd")
        to = ("export", "--to", "dcp", "--replace", self.path("saved"))
        self.done(*to, self.path("theirs"))
        os.symlink("theirs", self.path("link"))
        self.refused("holds other files", *to, self.path("link"))
        os.mkdir(self.path("theirs/thesis"))
        self.refused("holds other files", *to, self.path("theirs"))
        self.assertTrue(os.path.isdir(self.path("theirs/thesis")))
        self.assertEqual(sorted(os.listdir(self.folder)), ["link", "saved", "theirs"])

    def test_what_has_come_to_exist_meanwhile_stays(self) -> None:
        for place in (
            _places.new_file(self.path("mine"), False),
            _places.new_directory(self.path("mine"), False, ""),
        ):
            with self.assertRaisesRegex(RefusedError, "was created in the meantime"):
                with place as path:
                    if not os.path.exists(path):
                        os.mkdir(path)
                    pathlib.Path(self.path("mine")).write_text("mine")
            self.assertEqual(pathlib.Path(self.path("mine")).read_text(), "mine")
            os.remove(self.path("mine"))
            self.assertEqual(os.listdir(self.folder), [])

    def test_a_directory_of_links_or_pipes_is_refused(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save({"model": {"w": torch.ones(3)}}, checkpoint_id=self.path("item"), no_dist=True)
        for name in (".metadata", "__0_0.distcp"):
            place = self.path(f"item/{name}")
            os.rename(place, self.path("kept"))
            os.mkfifo(place)
            self.refused(
                f"'{name}' is not a regular file", *ALONE, "dcp", self.path("item"), "saved"
            )
            os.remove(place)
            os.symlink(self.path("kept"), place)
            self.refused(f"'{name}' is a link", *ALONE, "dcp", self.path("item"), "saved")
            os.remove(place)
            os.rename(self.path("kept"), place)

    def test_a_tensor_whose_elements_are_stored_once_for_several_is_a_sentence(self) -> None:
        torch.save({"model": {"w": torch.zeros(1).expand(10**12)}}, self.path("file"))
        self.refused("stored once for several", *ALONE, "torch", self.path("file"), "saved")

    def test_a_full_disk_is_named_by_an_export(self) -> None:
        save(self.path("saved"), "sgd")
        for name in FORMATS:
            command = [sys.executable, "-m", "libzero", "export", "--to", name, "saved", "there"]
            done = subprocess.run(
                ["bash", "-c", 'ulimit -f 1; trap "" XFSZ; exec "$@"', "-", *command],
                cwd=self.folder,
                capture_output=True,
                text=True,
                check=False,
            )
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertRegex(done.stderr, "'there': .*File too large")
            self.assertEqual(os.listdir(self.folder), ["saved"])

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


# Runs a command of libzero, and sends it a signal during each write of a file in turn.
WRITES = """
import io, signal, sys
from libzero.torch import _commands, _torch_files

class File(io.FileIO):
    def write(self, data):
        global at
        at -= 1
        if at == 0:
            signal.raise_signal(signal.SIGINT)
        return super().write(data)

at = int(sys.argv[1])
_torch_files.open = lambda path, mode: (File if mode == "wb" else open)(path, mode)
_commands.main(sys.argv[2:])
"""


class Interrupted(FilesTest):
    def test_ctrl_c_in_a_write_of_torch_is_no_message_about_its_file(self) -> None:
        save(self.path("saved"), "sgd")
        for at in (1, 2, 5):
            done = subprocess.run(
                [sys.executable, "-c", WRITES, str(at), "export", "--to", "torch", "saved", "there"],
                cwd=self.folder,
                capture_output=True,
                check=False,
            )
            self.assertEqual((done.returncode, done.stderr), (-signal.SIGINT, b""))
            self.assertEqual(os.listdir(self.folder), ["saved"])

    def test_ctrl_c_leaves_nothing(self) -> None:
        torch.save({"model": {"w": torch.zeros(1 << 26)}}, self.path("file"))
        self.done(*ALONE, "torch", self.path("file"), self.path("saved"))
        before = sorted(os.listdir(self.folder))
        for number, command in (
            (signal.SIGINT, ("export", "--to", "torch", "saved", "there")),
            (signal.SIGTERM, (*ALONE, "torch", "file", "there")),
            (signal.SIGINT, ("export", "--to", "dcp", "saved", "there")),
            (signal.SIGTERM, ("export", "--to", "dcp", "saved", "there")),
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
