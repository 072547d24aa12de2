# SPDX-License-Identifier: Apache-2.0
"""Tests that other programs can read the files of libzero: the safetensors package, and a reader written from
docs/checkpoint-format.md.

The tests need the library (LIBZERO_PATH, or the loader's search). Without the safetensors and numpy packages, only
the reader of the specification runs.
"""

import ctypes
import json
import os
import struct
import tempfile
import unittest

try:
    import numpy
    import safetensors
    from safetensors.numpy import load_file
except ImportError:
    safetensors = None


class Param(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("data", ctypes.c_void_p),
                ("grad", ctypes.c_void_p), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("ndim", ctypes.c_int32), ("dtype", ctypes.c_int32), ("owner", ctypes.c_int32),
                ("flags", ctypes.c_int32), ("order", ctypes.c_int64)]


class Buffer(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("data", ctypes.c_void_p),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("ndim", ctypes.c_int32),
                ("dtype", ctypes.c_int32)]


# The dtype in zero.h, in safetensors and in struct, the shape and the values of each buffer.
BUFFERS = {"bn.mean": (1, "F32", "f", [2, 3], [0.5, -1.0, 2.0, 0.0, 8.25, -0.125]),
           "bn.tracked": (4, "I64", "q", [], [-(1 << 62)]),
           "ids": (3, "I32", "i", [3], [7, -8, 9]),
           "wide": (2, "F64", "d", [1, 2], [1e300, -0.1]),
           "nothing": (6, "F16", "e", [0, 4], []),
           "half": (6, "F16", "e", [2], [1.5, -65504.0])}
EXTRAS = {"position": b"\0\1\2", "\u00e9": bytes(range(256)) * 40}
SHAPES = {"wte.weight": [5, 7], "none": [0], "scalar": [], "h.0.\u00e9\"q\"": [2, 3, 4], "bias": [1300]}


def library():
    lib = ctypes.CDLL(os.environ.get("LIBZERO_PATH", "libzero.so"))
    lib.zero_last_error.restype = ctypes.c_char_p
    return lib


def elements(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def save(directory):
    """Take one step of a small model, and save it. Return its parameters by name."""
    lib = library()

    def check(status):
        if status != 0:
            raise RuntimeError(f"{status}: {lib.zero_last_error().decode()}")

    comm, optim = ctypes.c_void_p(), ctypes.c_void_p()
    check(lib.zero_comm_create_solo(ctypes.byref(comm), None))
    check(lib.zero_create(ctypes.byref(optim), comm, None))
    params, kept, keep = (Param * len(SHAPES))(), {}, []
    for number, (param, (name, shape)) in enumerate(zip(params, SHAPES.items())):
        param.struct_size = ctypes.sizeof(Param)
        count = elements(shape)
        data = (ctypes.c_float * count)(*[number + i / 8 for i in range(count)])
        grad = (ctypes.c_float * count)(*[(i % 9 - 4) / 4 for i in range(count)])
        dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        kept[name] = (data, grad, dims, name.encode())
        param.name, param.shape, param.ndim = kept[name][3], dims, len(shape)
        param.data, param.grad = ctypes.cast(data, ctypes.c_void_p), ctypes.cast(grad, ctypes.c_void_p)
    check(lib.zero_register_params(optim, None, params, ctypes.c_size_t(len(SHAPES)), None))
    buffers = (Buffer * len(BUFFERS))()
    for buffer, (name, (dtype, _, code, shape, values)) in zip(buffers, BUFFERS.items()):
        buffer.struct_size = ctypes.sizeof(Buffer)
        data = ctypes.create_string_buffer(struct.pack(f"<{len(values)}{code}", *values))
        dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
        keep.append((data, dims, name.encode()))
        buffer.name, buffer.shape, buffer.ndim = keep[-1][2], dims, len(shape)
        buffer.data, buffer.dtype = ctypes.addressof(data), dtype
    check(lib.zero_register_buffers(optim, buffers, ctypes.c_size_t(len(BUFFERS))))
    check(lib.zero_step(optim, None))
    for name, value in EXTRAS.items():
        check(lib.zero_state_extra_set(optim, name.encode(), value, ctypes.c_size_t(len(value))))
    check(lib.zero_state_save(optim, os.fsencode(directory), None))
    check(lib.zero_free(optim))
    check(lib.zero_comm_free(comm))
    return {name: list(values[0]) for name, values in kept.items()}


def read_tensor(path, key, dtype="F32", code="f"):
    """Read a tensor of a safetensors file as the specification describes."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        entry = json.loads(file.read(length))[key]
        begin, end = entry["data_offsets"]
        file.seek(8 + length + begin)
        assert entry["dtype"] == dtype
        count = (end - begin) // struct.calcsize("<" + code)
        return entry["shape"], list(struct.unpack(f"<{count}{code}", file.read(end - begin)))


class CheckpointFiles(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.directory = os.path.join(cls.folder.name, "step-1")
        cls.params = save(cls.directory)
        with open(os.path.join(cls.directory, "zero.json"), encoding="utf-8") as file:
            cls.manifest = json.load(file)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, number):
        return os.path.join(self.directory, self.manifest["files"][number]["name"])

    def test_the_manifest_says_what_was_saved(self):
        manifest = self.manifest
        self.assertEqual((manifest["zero_format"], manifest["step"], manifest["world"]), (1, 1, 1))
        self.assertEqual([p["name"] for p in manifest["params"]], list(SHAPES))
        self.assertEqual([p["shape"] for p in manifest["params"]], list(SHAPES.values()))
        settings = manifest["optimizer"]["groups"][0]["settings"]
        self.assertEqual(float.fromhex(settings["lr"]), 1e-3)
        self.assertEqual(float.fromhex(settings["beta2"]), 0.999)
        for file in manifest["files"]:
            self.assertEqual(os.path.getsize(os.path.join(self.directory, file["name"])), file["bytes"])
            self.assertEqual(len(file["blocks"]), -(-file["bytes"] // manifest["block_bytes"]))

    def test_a_reader_of_the_specification_finds_parameters_and_state(self):
        for param in self.manifest["params"]:
            shape, values = read_tensor(self.path(param["file"]), param["name"])
            self.assertEqual(shape, param["shape"])
            self.assertEqual(values, self.params[param["name"]])
            for slot in param["slots"]:
                self.assertEqual(sum(s["count"] for s in slot["slices"]), elements(shape))
                for piece in slot["slices"]:
                    _, part = read_tensor(self.path(piece["file"]), piece["key"])
                    self.assertEqual(len(part), piece["count"])
        moments = {p["name"]: {s["name"]: s for s in p["slots"]} for p in self.manifest["params"]}
        piece = moments["bias"]["exp_avg"]["slices"][0]
        _, first = read_tensor(self.path(piece["file"]), piece["key"])
        # beta1 is 0.9, so the first moment is one tenth of the gradient.
        for i in (0, 1, 5, 1299):
            self.assertAlmostEqual(first[i], (i % 9 - 4) / 40, places=6)

    def test_a_reader_of_the_specification_finds_buffers(self):
        found = {buffer["name"]: buffer for buffer in self.manifest["buffers"]}
        self.assertEqual(list(found), list(BUFFERS))
        for name, (_, dtype, code, shape, values) in BUFFERS.items():
            self.assertEqual((found[name]["dtype"], found[name]["shape"]), (dtype, shape))
            path = self.path(found[name]["file"])
            self.assertEqual(read_tensor(path, name, dtype, code), (shape, values))

    def test_a_reader_of_the_specification_finds_extras(self):
        (extras,) = self.manifest["extras"]
        self.assertEqual(extras["rank"], 0)
        for name, value in EXTRAS.items():
            shape, values = read_tensor(self.path(extras["file"]), name, "U8", "B")
            self.assertEqual((shape, bytes(values)), ([len(value)], value))

    def test_the_index_leads_hugging_face_readers_to_every_parameter(self):
        with open(os.path.join(self.directory, "model.safetensors.index.json"), encoding="utf-8") as file:
            index = json.load(file)
        self.assertEqual(set(index["weight_map"]), {*SHAPES, *BUFFERS})
        buffer_bytes = sum(struct.calcsize("<" + code) * len(values) for _, _, code, _, values in BUFFERS.values())
        self.assertEqual(index["metadata"]["total_size"],
                         4 * sum(elements(s) for s in SHAPES.values()) + buffer_bytes)
        for name, file in index["weight_map"].items():
            if name in BUFFERS:
                read_tensor(os.path.join(self.directory, file), name, *BUFFERS[name][1:3])
                continue
            self.assertEqual(read_tensor(os.path.join(self.directory, file), name)[1], self.params[name])

    def test_data_begins_on_a_page(self):
        for file in self.manifest["files"]:
            if file["name"].endswith((".safetensors", ".st")):
                with open(os.path.join(self.directory, file["name"]), "rb") as opened:
                    self.assertEqual((8 + struct.unpack("<Q", opened.read(8))[0]) % 4096, 0)

    @unittest.skipIf(safetensors is None, "the safetensors package is not installed")
    def test_the_safetensors_package_opens_every_file(self):
        found = {}
        for file in self.manifest["files"]:
            if not file["name"].endswith((".safetensors", ".st")):
                continue
            path = os.path.join(self.directory, file["name"])
            found.update(load_file(path))
            with safetensors.safe_open(path, framework="numpy") as opened:
                self.assertEqual(opened.metadata()["zero.save_id"], self.manifest["save_id"])
                self.assertEqual(opened.metadata()["zero.rank"], "1/1")
        for name, shape in SHAPES.items():
            self.assertEqual(list(found[name].shape), shape)
            self.assertEqual(found[name].dtype, numpy.float32)
            self.assertEqual(found[name].ravel().tolist(), self.params[name])
        self.assertEqual(list(found["wte.weight.exp_avg_sq"].shape), [5, 7])
        for name, (_, _, _, shape, values) in BUFFERS.items():
            self.assertEqual(list(found[name].shape), shape)
            self.assertEqual(found[name].ravel().tolist(), values)
        for name, value in EXTRAS.items():
            self.assertEqual(found[name].tobytes(), value)


if __name__ == "__main__":
    unittest.main()
