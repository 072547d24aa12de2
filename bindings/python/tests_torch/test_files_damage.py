# SPDX-License-Identifier: Apache-2.0
"""Tests that imports reject damaged directories and files with a reason, and tests files next to the imported
files."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pickle
import shutil
import struct
import unittest
import warnings
import zipfile
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

from files import ALONE, FilesTest, break_header, zip_again
from libzero.torch import _directories
from libzero.torch._streams import RefusedError


class Archives(FilesTest):
    def saved_as(self, name: str, weight: torch.Tensor) -> str:
        torch.save({"model": {"w": weight}}, self.path(name))
        return self.path(name)

    def pickled_as(self, name: str, weight: torch.Tensor, old: bytes, new: bytes, **records: bytes) -> None:
        """Save a file, and replace bytes that occur once in its pickle, and records."""
        path = self.saved_as(name, weight)
        with zipfile.ZipFile(path) as archive:
            pickled = archive.read(f"{name}/data.pkl")
        self.assertEqual(pickled.count(old), 1)
        zip_again(path, **{"data.pkl": pickled.replace(old, new), **records})

    def test_damage_of_a_torch_file_is_a_sentence(self) -> None:
        three, half = torch.ones(3), torch.ones(200)[100:]
        zip_again(self.saved_as("packed", three), zipfile.ZIP_DEFLATED)
        zip_again(self.saved_as("swapped", three), byteorder=b"big")
        zip_again(self.saved_as("short", three), **{"0": b"abc"})
        zip_again(self.saved_as("pickle", three), **{"data.pkl": b"\x80\x02e."})
        break_header(self.saved_as("header", three))
        of_150 = b"K\xc8", b"K\x96"  # 200 elements become 150
        self.pickled_as("beyond", half, *of_150, **{"0": bytes(150 * 4)})
        self.pickled_as("grown", half, *of_150)
        self.pickled_as("backwards", torch.ones(20, 10), b"K\nK\x01\x86", b"K\nJ\xff\xff\xff\xff\x86")
        self.pickled_as("device", three, b"X\x03\0\0\0cpu", b"K\3")
        path = pathlib.Path(self.saved_as("directory", three))
        whole = bytearray(path.read_bytes())
        whole[whole.rindex(b"directory/data/0") - 46 + 38] = 0x10  # an attribute of the record
        path.write_bytes(whole)
        for name, words in (
            ("backwards", r"a tensor of shape \(20, 10\) has the strides \(10, -1\): it is damaged"),
            ("device", "a tensor is on the device 3, which is not a name: it is damaged"),
            ("directory", "its record 'directory/data/0' is a directory: it is damaged"),
            ("short", "its record 'data/0' has 3 bytes, and its tensors need 12: it is damaged, so give"),
            ("beyond", r"a tensor of shape \(100,\) ends at byte 800 of a record with 600 bytes: it is damaged"),
            ("grown", "its record 'data/0' has 800 bytes, and its tensors need 600: it is damaged"),
            ("header", "it is not a torch.save file, or is damaged: give a file that torch.save wrote"),
            ("pickle", "it is not a torch.save file, or is damaged: give a file that torch.save wrote"),
            ("swapped", "its record 'byteorder' says 'big', and this machine is little-endian: save"),
            ("packed", "its records are compressed or encrypted, such as 'packed/data.pkl': save"),
        ):
            with self.subTest(name):
                self.refused(words, *ALONE, "torch", self.path(name), self.path("saved"))

    def test_an_archive_may_have_entries_for_its_directories(self) -> None:
        with zipfile.ZipFile(self.saved_as("w", torch.ones(3)), "a") as archive:
            directory = zipfile.ZipInfo("w/data/")
            directory.external_attr = 0x10
            archive.writestr(directory, b"")
        self.done(*ALONE, "torch", self.path("w"), self.path("saved"))


class Directories(FilesTest):
    def test_damage_of_a_directory_of_torch_is_a_sentence(self) -> None:
        def saved(change: Callable[[Any], object]) -> None:
            shutil.rmtree(self.path("item"), ignore_errors=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                dcp.save(
                    {"model": {"w": torch.ones(4), "v": torch.ones(2, 3)}, "epoch": 3},
                    checkpoint_id=self.path("item"),
                    no_dist=True,
                )
            place = pathlib.Path(self.path("item/.metadata"))
            read = pickle.loads(place.read_bytes())
            change(read)
            place.write_bytes(pickle.dumps(read))

        def in_halves(read: Any, *begins: int) -> None:
            """Make the parts of the tensor at these places refer to the same data."""
            half = torch.Size([2])
            of = read.state_dict_metadata["model.w"]
            of.chunks = [dcp.metadata.ChunkStorageMetadata(torch.Size([begin]), half) for begin in begins]
            place = read.storage_data.pop(dcp.metadata.MetadataIndex("model.w", torch.Size([0])))
            for begin in begins:
                read.storage_data[dcp.metadata.MetadataIndex("model.w", torch.Size([begin]))] = place
            torch.save(torch.ones(2), half_path)
            with open(self.path("item/__0_0.distcp"), "ab") as file:
                place.offset, place.length = file.tell(), os.path.getsize(half_path)
                file.write(pathlib.Path(half_path).read_bytes())

        def rename(read: Any) -> None:
            for held in (read.state_dict_metadata, read.planner_data):
                held["model>w"] = held.pop("model.w")
            index = dcp.metadata.MetadataIndex("model.w", torch.Size([0]))
            read.storage_data[dcp.metadata.MetadataIndex("model>w", torch.Size([0]))] = read.storage_data.pop(index)

        def of_v(**other: Any) -> Callable[[Any], None]:
            return lambda read: vars(read.state_dict_metadata["model.v"]).update(other)

        half_path = self.path("half")
        saved(lambda read: in_halves(read, 0, 2))
        self.assertEqual(self.run_main(*ALONE, "dcp", self.path("item"), self.path("saved"))[0], 0)
        shutil.rmtree(self.path("saved"))
        for change, words in (
            (lambda read: in_halves(read, 0, 0), "parts of 'model.w' are missing or repeated"),
            (rename, r"its .metadata has \('model', 'w'\) as 'model>w'"),
            (lambda read: read.planner_data.pop("model.w"), "its .metadata has other parts than torch writes"),
            (of_v(size=torch.Size([2])), "its .metadata has another type or shape for 'model.v'"),
            (of_v(properties=dcp.metadata.TensorProperties(dtype=None)), "another type or shape for 'model.v'"),
            (of_v(chunks=[3]), "its .metadata has other parts than torch writes"),
            (lambda read: read.state_dict_metadata.update(epoch=None), "its .metadata has 'epoch' as a NoneType"),
            (lambda read: read.storage_data.clear(), "no file holds"),
            (
                lambda read: vars(read.storage_data[dcp.metadata.MetadataIndex("epoch")]).update(offset=-1),
                "'epoch' begins at byte -1",
            ),
        ):
            with self.subTest(words):
                saved(change)
                self.refused(f"{words}.*: it is damaged, so give", *ALONE, "dcp", self.path("item"), "saved")
        saved(lambda read: None)
        break_header(self.path("item/__0_0.distcp"))
        words = "__0_0.distcp, for .*: it is not a torch.save file, or is damaged"
        self.refused(words, *ALONE, "dcp", self.path("item"), "saved")
        for data in (b"\x80\x04\x95" + b"\xff" * 8, b"\x80\x02e.", b"Pgone\n."):
            pathlib.Path(self.path("item/.metadata")).write_bytes(data)
            self.refused("its .metadata cannot be read: it is damaged", *ALONE, "dcp", self.path("item"), "saved")

    def test_a_directory_of_torch_may_hold_other_files_which_are_named(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dcp.save({"app": {"model": {"w": torch.ones(3)}}}, checkpoint_id=self.path("item"), no_dist=True)
        for name in ("__9_0.distcp", "scaler.pt"):
            pathlib.Path(self.path("item"), name).touch()
        status, told = self.run_main(*ALONE, "dcp", self.path("item"), self.path("saved"))
        self.assertEqual(status, 0)
        self.assertRegex(told, r"^python -m libzero import: '.*': not taken: '__9_0.distcp', 'scaler.pt'\n$")

    def test_one_of_several_files_of_a_model_is_refused(self) -> None:
        torch.save({"w": torch.ones(3)}, self.path("pytorch_model-00001-of-00002.bin"))
        self.refused(
            "is one of several files of a model: give their directory",
            *ALONE,
            "torch",
            self.path("pytorch_model-00001-of-00002.bin"),
            self.path("saved"),
        )


class Safetensors(FilesTest):
    def test_tensors_of_safetensors_lie_side_by_side_in_all_of_the_file(self) -> None:
        for places, size, words in (
            ([(0, 8), (4, 12)], 12, "'t1' begins at byte 4, not 8"),
            ([(0, 4), (8, 12)], 12, "'t1' begins at byte 8, not 4"),
            ([(0, 4)], 8, "have 4 bytes, and it has 8"),
        ):
            header = json.dumps(
                {
                    f"t{i}": {"dtype": "F32", "shape": [(end - begin) // 4], "data_offsets": [begin, end]}
                    for i, (begin, end) in enumerate(places)
                }
            ).encode()
            path = pathlib.Path(self.path("model.safetensors"))
            path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(size))
            with contextlib.ExitStack() as opened, self.assertRaisesRegex(RefusedError, words):
                _directories._safetensors(str(path), opened)

    def test_safetensors_may_have_no_metadata(self) -> None:
        for metadata in ({}, {"__metadata__": None}, {"__metadata__": {}}):
            header = json.dumps({**metadata, "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
            path = pathlib.Path(self.path("model.safetensors"))
            path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
            with contextlib.ExitStack() as opened:
                self.assertEqual(list(_directories._safetensors(str(path), opened)), ["w"])

    def test_damage_of_safetensors_is_a_sentence(self) -> None:
        place = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        for header, words in (
            ([1], " is not a safetensors file"),
            ({"w": 5}, " is not a safetensors file"),
            ({"__metadata__": {"a": None}, "w": place}, ": its '__metadata__' has values that are not text"),
            ({"w": {**place, "dtype": [3]}}, " is not a safetensors file"),
            ({"w": {**place, "data_offsets": None}}, " is not a safetensors file"),
            ({"w": {**place, "shape": [-2, -1]}}, r": tensor 'w' of shape \[-2, -1\] is at bytes 0 to 8"),
            ({"w": {**place, "shape": [3]}}, r": tensor 'w' of shape \[3\] is at bytes 0 to 8"),
            ({"w": {**place, "data_offsets": [0.0, 8]}}, r": tensor 'w' of shape \[2\] is at bytes 0.0 to 8"),
        ):
            data = json.dumps(header).encode()
            path = pathlib.Path(self.path("model.safetensors"))
            path.write_bytes(struct.pack("<Q", len(data)) + data + bytes(8))
            whole = f"^model.safetensors{words}: it is damaged, so give another copy$"
            with contextlib.ExitStack() as opened, self.assertRaisesRegex(RefusedError, whole):
                _directories._safetensors(str(path), opened)
        path.rename(self.path("model.safetensors.index.json"))
        for index in ("[]", "{}", '{"weight_map": {"w": 3}}', '{"weight_map": {"w": {}}}'):
            pathlib.Path(self.path("model.safetensors.index.json")).write_text(index)
            self.refused("is not an index of a model: it is damaged", *ALONE, "torch", self.folder, self.path("saved"))


if __name__ == "__main__":
    unittest.main()
