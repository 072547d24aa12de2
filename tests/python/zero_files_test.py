# SPDX-License-Identifier: Apache-2.0
"""Tests the files that zero merge, reshard, export and import write."""

import json
import os
import pathlib
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

from zero_cases import WRITERS, ZERO, ZeroTest, flip, read_tensors, zero


class Merge(ZeroTest):
    def setUp(self):
        self.place = tempfile.mkdtemp(dir=self.folder)
        self.file = os.path.join(self.place, "model.safetensors")

    def merged(self, *arguments):
        done = zero("merge", *arguments, self.file)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return pathlib.Path(self.file).read_bytes()

    def test_the_bytes_do_not_depend_on_the_world(self):
        for flags in ([], ["--with-state"]):
            files = [self.merged(*flags, "--replace", self.checkpoint(str(world), world)) for world in (1, 2, 4)]
            self.assertEqual(files[1:], [files[0]] * 2)

    def test_it_holds_the_tensors_that_shards_hold(self):
        directory = self.checkpoint("4", 4)
        self.merged("--with-state", directory)
        metadata, tensors = read_tensors(self.file)
        described = json.loads(metadata.pop("zero"))
        self.assertEqual(metadata, {"format": "pt"})
        inspected = json.loads(zero("inspect", "--json", directory).stdout)
        self.assertEqual(described, {key: inspected[key] for key in described})
        self.assertGreaterEqual(set(described),
                                {"step", "skipped", "optimizer", "options", "groups", "parameters", "buffers"})
        manifest = json.loads(pathlib.Path(directory, "zero.json").read_bytes())
        shards = [read_tensors(os.path.join(directory, file["name"]))[1] if file["name"].endswith(".safetensors") else {}
                  for file in manifest["files"]]
        whole = {}
        for tensor in manifest["params"] + manifest["buffers"]:
            name, shape = tensor["name"], tensor["shape"]
            whole[name] = shards[tensor["file"]][name]
            for slot in tensor.get("slots", []):
                slices = [shards[part["file"]][part["key"]] for part in slot["slices"]]  # in ascending order
                whole[f"{name}.{slot['name']}"] = slices[0][0], shape, b"".join(data for _, _, data in slices)
        self.assertGreater(max(len(slot["slices"]) for slot in manifest["params"][0]["slots"]), 1)
        self.assertEqual(tensors, whole)
        os.remove(self.file)
        self.merged(directory)
        metadata, model = read_tensors(self.file)
        self.assertEqual(metadata, {"format": "pt"})
        self.assertEqual(model, {name: tensors[name] for name in
                                 ("h.0.weight", "h.0.bias", "none", "h.1.half", "wide", "seen")})

    def test_other_readers_of_safetensors_load_it(self):
        try:
            import numpy
            from safetensors import safe_open
        except ImportError:
            self.skipTest("safetensors or numpy is not here")
        self.merged("--with-state", self.checkpoint("2", 2))
        tensors = read_tensors(self.file)[1]
        with safe_open(self.file, framework="numpy") as opened:
            self.assertEqual(set(opened.keys()), set(tensors))
            for name in ("wide", "h.0.bias", "h.0.weight.exp_avg", "seen"):
                array = opened.get_tensor(name)
                self.assertEqual((list(array.shape), array.tobytes()), tensors[name][1:])
                self.assertEqual(array.dtype, {"wide": numpy.float64, "seen": numpy.int64}.get(name, numpy.float32))

    def test_a_file_is_replaced_only_when_told(self):
        pathlib.Path(self.file).write_text("mine")
        self.refused("exists: remove it, or give --replace", "merge", self.checkpoint("1"), self.file)
        self.assertEqual(pathlib.Path(self.file).read_text(), "mine")
        self.merged("--replace", self.checkpoint("1"))
        self.assertEqual(os.listdir(self.place), ["model.safetensors"])

    def test_what_is_no_file_is_left_alone(self):
        pipe = os.path.join(self.place, "pipe")
        os.mkfifo(pipe)
        for target in (pipe, "/dev/stdout", "/dev/null", self.place):
            self.refused("is not a regular file", "merge", "--replace", self.checkpoint("1"), target)
        self.assertEqual(os.listdir(self.place), ["pipe"])
        for target, words in ((self.file + "/", "does not end with a file name"),
                              (os.path.join(self.place, "no/such"), "No such file or directory")):
            self.refused(words, "merge", self.checkpoint("1"), target)

    def test_a_file_of_a_checkpoint_is_left_alone(self):
        directory = self.own()
        for name in ("zero.json", "model-00001-of-00002.safetensors"):
            self.refused("write elsewhere", "merge", "--replace", directory, os.path.join(directory, name))
        self.refused("write elsewhere", "export", "--to", "hf", "--replace", directory, directory)
        self.refused("is a checkpoint already", "import", "--from", "hf", "--replace", directory, directory)
        self.assertEqual(zero("verify", directory).returncode, 0)

    def test_a_damaged_checkpoint_leaves_nothing(self):
        directory = self.own()
        flip(os.path.join(directory, "model-00002-of-00002.safetensors"), 5000)
        for command in WRITERS:
            self.refused("do not match the checksum", *command, directory, self.file)
            self.assertEqual(os.listdir(self.place), [])

    def test_a_file_too_large_leaves_nothing(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
        for command in WRITERS:
            self.refused("File too large", *command, self.checkpoint("1"), self.file, preexec_fn=limit)
            self.assertEqual(os.listdir(self.place), [])

    def test_the_standard_output_gets_the_same_bytes(self):
        directory = self.checkpoint("2", 2)
        done = subprocess.run([ZERO, "merge", "--with-state", directory, "-"], capture_output=True, timeout=60,
                              check=True)
        self.assertEqual((done.stdout, done.stderr), (self.merged("--with-state", directory), b""))
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([ZERO, "merge", directory, "-"], stdout=full, stderr=subprocess.PIPE, timeout=60,
                                  check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr.decode(), "^zero merge: .*(No space|could not be written)")

    def large(self):
        directory = os.path.join(self.folder, "large")
        if not os.path.exists(directory):
            subprocess.run([sys.executable, "-c", LARGE, directory], timeout=60, check=True)
        return directory

    def test_what_has_come_to_exist_meanwhile_stays(self):
        process = subprocess.Popen([ZERO, "merge", self.large(), self.file], stderr=subprocess.PIPE)
        while not os.listdir(self.place):
            pass
        pathlib.Path(self.file).write_text("mine")
        self.assertIn(b"was created in the meantime", process.communicate(timeout=60)[1])
        self.assertEqual(process.returncode, 1)
        self.assertEqual(os.listdir(self.place), ["model.safetensors"])
        self.assertEqual(pathlib.Path(self.file).read_text(), "mine")

    def test_ctrl_c_leaves_nothing(self):
        """The program is stopped while its file, or a file of its directory, is incomplete."""
        directory = self.large()
        cases = [(number, "merge") for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
        for number, *command in [*cases, (signal.SIGINT, "reshard", "--world", "2")]:
            for attempt in range(20):
                process = subprocess.Popen([ZERO, *command, directory, self.file], stdout=subprocess.DEVNULL,
                                           stderr=subprocess.PIPE)
                while process.poll() is None and not self.half_written():
                    pass
                process.send_signal(signal.SIGSTOP)
                half = self.half_written()
                process.send_signal(number)
                process.send_signal(signal.SIGCONT)
                _, errors = process.communicate(timeout=60)
                if half:
                    break
                remove(self.file)
            self.assertTrue(half)
            self.assertEqual((process.returncode, errors), (-number, b""))
            self.assertEqual(os.listdir(self.place), [])

    def preloaded(self, source):
        """Return the environment of a process that calls the functions of `source`."""
        library = os.path.join(self.folder, "preloaded.so")
        subprocess.run([*os.environ.get("CC", "cc").split(), "-shared", "-fPIC", "-xc", "-o", library, "-"],
                       input=source, text=True, check=True)
        return os.environ | {"LD_PRELOAD": library}

    def test_ctrl_c_where_it_has_just_made_its_directory_leaves_nothing(self):
        done = zero("reshard", "--world", "2", self.checkpoint("1"), self.file, env=self.preloaded(INTERRUPTED))
        self.assertEqual((done.returncode, done.stderr), (-signal.SIGINT, ""))
        self.assertEqual(os.listdir(self.place), [])

    def test_ctrl_c_ends_the_wait_for_another_save_at_once(self):
        shutil.copytree(self.checkpoint("3", 3), self.file)
        done = zero("reshard", "--world", "2", "--replace", self.checkpoint("1"), self.file, env=self.preloaded(LOCKED))
        self.assertEqual((done.returncode, done.stderr), (-signal.SIGINT, ""))
        lock, = set(os.listdir(self.place)) - {os.path.basename(self.file)}
        self.assertEqual(os.listdir(os.path.join(self.place, lock)), [])
        self.assertEqual(zero("diff", self.checkpoint("3", 3), self.file).returncode, 0)

    def test_ctrl_c_when_it_has_its_name_leaves_it_whole(self):
        for attempt in range(5):
            process = subprocess.Popen([ZERO, "reshard", "--world", "3", self.checkpoint("2", 2), self.file],
                                       stdout=subprocess.DEVNULL)
            while not os.path.exists(self.file):
                self.assertIn(process.poll(), (None, 0))
            process.send_signal(signal.SIGINT)
            self.assertIn(process.wait(timeout=60), (0, -signal.SIGINT))
            self.assertEqual(zero("verify", self.file).returncode, 0)
            remove(self.file)

    def test_a_signal_where_it_removes_what_it_replaces_leaves_the_new_one_alone(self):
        shutil.copytree(self.checkpoint("3", 3), self.file)
        done = zero("reshard", "--world", "2", "--replace", self.checkpoint("1"), self.file, env=self.preloaded(ENDED))
        self.assertEqual((done.returncode, done.stderr), (-signal.SIGTERM, ""))
        self.assertEqual(os.listdir(self.place), [os.path.basename(self.file)])
        self.assertEqual(zero("verify", self.file).returncode, 0)
        self.assertIn("model-00002-of-00002.safetensors", os.listdir(self.file))

    def half_written(self):
        found = [os.path.join(self.place, name) for name in os.listdir(self.place)
                 if name.startswith((".zero-", ".tmp-"))]
        return [path for path in found if os.path.isfile(path) or os.path.isdir(path) and os.listdir(path)]


def remove(path):
    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


class Reshard(ZeroTest):
    def resharded(self, world, *arguments):
        directory = os.path.join(tempfile.mkdtemp(dir=self.folder), "other")
        done = zero("reshard", "--world", world, *arguments, directory)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(zero("verify", directory).returncode, 0)
        return directory, done.stdout

    def test_it_is_what_ranks_of_that_number_save(self):
        for world in (1, 2, 4):
            other, _ = self.resharded(world, self.checkpoint("3", 3))
            saved = self.checkpoint(str(world), world)
            self.assertEqual(sorted(os.listdir(other)), sorted(os.listdir(saved)))
            manifests = [json.loads(pathlib.Path(path, "zero.json").read_bytes()) for path in (other, saved)]
            for key in ("world", "step", "optimizer", "params", "buffers"):
                self.assertEqual(*(manifest[key] for manifest in manifests))
            self.assertEqual(zero("diff", other, saved).stdout, "no difference\n")

    def test_extras_of_ranks_that_are_not_there_are_left_out_and_that_is_told(self):
        directory = self.checkpoint("extras", 2, "2", "extras")
        larger, said = self.resharded(3, directory)
        self.assertEqual(said, f"{larger}: 3 ranks\n")
        self.assertEqual(zero("diff", directory, larger).stdout, "no difference\n")
        smaller, said = self.resharded(1, "--json", directory)
        self.assertEqual(json.loads(said)["ranks_without_their_extras"], 1)
        facts = json.loads(zero("diff", "--json", directory, smaller).stdout)["facts"]
        self.assertEqual([fact["what"] for fact in facts], ["extra random of rank 1"])

    def test_a_checkpoint_is_replaced_only_when_told(self):
        other, _ = self.resharded(2, self.checkpoint("1"))
        self.refused("exists: remove it, or give --replace", "reshard", "--world", 3, self.checkpoint("1"), other)
        self.assertEqual(zero("reshard", "--world", 3, "--replace", self.checkpoint("1"), other).returncode, 0)
        self.assertEqual(json.loads(zero("inspect", "--json", other).stdout)["world"], 3)
        pathlib.Path(other, "mine").write_text("mine")
        self.refused("not a checkpoint file", "reshard", "--world", 2, "--replace", self.checkpoint("1"), other)


class ExportAndImport(ZeroTest):
    """Tests safetensors. bindings/python/tests_torch tests torch's formats."""

    def setUp(self):
        self.place = tempfile.mkdtemp(dir=self.folder)
        self.model = os.path.join(self.place, "model")
        self.back = os.path.join(self.place, "back")

    def done(self, *arguments, **options):
        done = zero(*arguments, **options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def model_of(self, *arguments):
        self.done("export", "--to", "hf", *arguments, self.model)
        index = json.loads(pathlib.Path(self.model, "model.safetensors.index.json").read_bytes())
        files = {name: read_tensors(os.path.join(self.model, name)) for name in set(index["weight_map"].values())}
        self.assertEqual(sorted([*files, "model.safetensors.index.json"]), sorted(os.listdir(self.model)))
        self.assertTrue(all(metadata == {"format": "pt"} for metadata, _ in files.values()))
        return {name: files[file][1][name] for name, file in index["weight_map"].items()}, files

    def test_a_model_has_the_tensors_of_a_merged_file_in_files_of_the_size_that_is_asked_for(self):
        merged = os.path.join(self.place, "merged.safetensors")
        self.done("merge", self.checkpoint("4", 4), merged)
        for most, count in ((5 * 10**9, 1), (13000, 3), (1, 5)):
            tensors, files = self.model_of("--replace", "--shard-bytes", most, self.checkpoint("4", 4))
            self.assertEqual(tensors, read_tensors(merged)[1])
            self.assertEqual(len(files), count)
            for _, held in files.values():
                self.assertTrue(len(held) <= 2 or sum(len(data) for _, _, data in held.values()) <= most)

    def test_what_is_imported_is_what_was_saved(self):
        merged = os.path.join(self.place, "merged.safetensors")
        self.done("merge", "--with-state", self.checkpoint("2", 2), merged)
        self.assertEqual(self.done("import", "--from", "hf", merged, self.back),
                         f"{self.back}: 5 parameters, 1 buffer, step 2 of adamw\n")
        self.assertEqual(self.done("diff", self.checkpoint("2", 2), self.back), "no difference\n")
        self.assertEqual(zero("verify", self.back).returncode, 0)

    def test_state_in_bf16_is_imported_as_it_was_saved(self):
        saved, merged = self.checkpoint("half", 2, "2", "half"), os.path.join(self.place, "merged.safetensors")
        self.assertRegex(self.done("inspect", saved), "group 0 .*, state in bfloat16\ngroup 1 .*, maximize 0\n")
        self.done("merge", "--with-state", saved, merged)
        self.done("import", "--from", "hf", merged, self.back)
        self.assertEqual(self.done("diff", saved, self.back), "no difference\n")

    def test_a_model_that_says_nothing_of_training_begins_at_step_0(self):
        tensors, _ = self.model_of("--shard-bytes", 13000, self.checkpoint("2", 2))
        said = json.loads(self.done("import", "--json", "--from", "hf", "--rule", "sgd", self.model, self.back))
        self.assertEqual((said["optimizer"], said["step"], said["parameters"], said["buffers"]), ("sgd", 0, 5, 1))
        merged = os.path.join(self.place, "merged.safetensors")
        self.done("merge", self.back, merged)
        self.assertEqual(read_tensors(merged)[1], tensors)
        remove(self.model)
        os.mkdir(self.model)
        os.rename(merged, os.path.join(self.model, "model.safetensors"))
        self.done("import", "--replace", "--from", "hf", "--rule", "sgd", self.model, self.back + "2")
        self.assertEqual(self.done("diff", self.back, self.back + "2"), "no difference\n")

    def test_a_model_may_be_links_as_in_the_cache_of_hugging_face(self):
        self.model_of("--shard-bytes", 13000, self.checkpoint("1"))
        cache = os.path.join(self.place, "cache")
        os.mkdir(cache)
        for name in os.listdir(self.model):
            os.symlink(os.path.join("..", "model", name), os.path.join(cache, name))
        self.done("import", "--from", "hf", self.model, self.back)
        self.done("import", "--from", "hf", cache, self.back + "2")
        self.assertEqual(self.done("diff", self.back, self.back + "2"), "no difference\n")
        file = os.path.join(cache, "model-00001-of-00003.safetensors")
        self.assertIn("adamw", self.done("estimate", file))
        self.refused("is one of several files of a model: give their directory", "import", "--from", "hf", file,
                     self.back + "3")

    def test_a_pipe_brings_tensors_in_their_order_or_is_refused(self):
        sgd = os.path.join(self.place, "sgd")
        self.model_of(self.checkpoint("1"))
        with open(os.path.join(self.model, "model-00001-of-00001.safetensors"), "rb") as file:
            whole = file.read()
        def given(data):
            return subprocess.run([ZERO, "import", "--from", "hf", "-", sgd], input=data, capture_output=True,
                                  timeout=60, check=False)
        cut = given(whole[:-1])
        self.assertEqual(cut.returncode, 1)
        self.assertIn(b"ended before its tensors did", cut.stderr)
        self.assertEqual(os.listdir(self.place), ["model"])
        self.assertEqual(given(whole).returncode, 0)
        merged = subprocess.run([ZERO, "merge", "--with-state", self.checkpoint("1"), "-"], capture_output=True,
                                check=True)
        sgd += "2"
        self.assertIn(b"a pipe must deliver tensors in the order", given(merged.stdout).stderr)

    def test_what_cannot_be_imported_is_a_sentence_and_leaves_nothing(self):
        def file_of(header, data=b""):
            head = json.dumps(header).encode()
            path = os.path.join(self.place, "x.safetensors")
            pathlib.Path(path).write_bytes(struct.pack("<Q", len(head)) + head + data)
            return path
        def tensor(dtype, count, at=0, size=4):
            return {"dtype": dtype, "shape": [count], "data_offsets": [at, at + count * size]}
        described = {"step": 1, "skipped": 0, "optimizer": "sgd", "options": {}, "groups": [{}], "buffers": [],
                     "parameters": [{"name": "w", "dtype": "F32", "shape": [2], "group": 0, "step": 1,
                                     "state": ["momentum_buffer"]}]}
        def with_state(**other):
            return {"__metadata__": {"zero": json.dumps({**described, **other})}, "w": tensor("F32", 2),
                    "w.momentum_buffer": tensor("F32", 2, 8)}
        for header, words in (
            ({"w": tensor("BOOL", 8, 0, 1)}, "tensor 'w' is 'BOOL'; a checkpoint has F32"),
            ({"w": tensor("F32", 2), "__metadata__": {"zero": "{}"}}, "does not describe a checkpoint"),
            ({"w": tensor("F32", 2), "__metadata__": {"zero": "[" * 99999 + "]" * 99999}}, "is nested deeper than 16"),
            ({"w": tensor("F32", 2), "__metadata__": {"zero": '{"a": {"b": 1}, "of": {"b": 1, "b": 2}}'}},
             "the key 'b' comes twice"),
            (with_state(step=-5), "'step' is '-5', not an integer from 0"),
            (with_state(step=1.5), "'step' is '1.5', not an integer from 0"),
            (with_state(skipped=2**63), "'skipped' is '9223372036854775808', not an integer from 0"),
            (with_state(parameters=[{**described["parameters"][0], "group": 2**32}]), "'group' is '4294967296', not"),
            (with_state(optimizer="sgdd"), "there is no optimizer 'sgdd'"),
            (with_state(groups=[{"lr": -1}]), "setting 'lr' is -1"),
            (with_state(groups=[{"rate": 1}]), "'rate'"),
            (with_state(parameters=[{**described["parameters"][0], "state": ["sum"]}]), "sgd has no state 'sum'"),
            (with_state(parameters=[{**described["parameters"][0], "state": []}]), "it has 'w.momentum_buffer', which nothing here takes"),
            (with_state(optimizer="adamw", parameters=[{**described["parameters"][0], "state": ["exp_avg"]}]),
             "it lacks 'w.exp_avg_sq'"),
            (with_state(optimizer="adamw", parameters=[{**described["parameters"][0], "state": []}]),
             "it lacks 'w.exp_avg', 'w.exp_avg_sq'"),
            (with_state(parameters=[{**described["parameters"][0], "shape": [3]}]), "is F32 \\[2\\], not F32 \\[3\\]"),
        ):
            path = file_of(header, bytes(max(one["data_offsets"][1] for key, one in header.items() if key[0] == "w")))
            self.refused(words, "import", "--from", "hf", path, self.back)
            self.assertEqual(os.listdir(self.place), ["x.safetensors"])
        self.done("import", "--from", "hf", file_of(with_state(), bytes(16)), self.back)
        self.refused("is missing", "import", "--from", "hf", "/no/such", self.back + "2")
        self.refused("'/dev/null': is not a regular file", "import", "--from", "hf", "/dev/null", self.back + "2")

    def written(self, name, **tensors):
        """Write a safetensors file in the directory of the model, with tensors of the given numbers of zeros."""
        os.makedirs(self.model, exist_ok=True)
        header, end = {}, 0
        for tensor, count in tensors.items():
            header[tensor] = {"dtype": "F32", "shape": [count], "data_offsets": [end, end := end + 4 * count]}
        head = json.dumps(header).encode()
        pathlib.Path(self.model, name).write_bytes(struct.pack("<Q", len(head)) + head + bytes(end))

    def test_an_index_and_its_files_are_accounted_for(self):
        self.written("m-1.safetensors", a=3, b=2)
        self.written("m-2.safetensors", c=1)
        places = {"a": "m-1.safetensors", "b": "m-1.safetensors", "c": "m-2.safetensors"}
        index = pathlib.Path(self.model, "model.safetensors.index.json")
        def indexed(**changes):
            index.write_text(json.dumps({"weight_map": {**places, **changes}}))
            return "import", "--from", "hf", self.model, self.back
        self.refused("it lacks 'd', 'e'", *indexed(d="m-1.safetensors", e="m-2.safetensors"))
        self.refused("'b' is in 'm-1.safetensors', not in 'm-2.safetensors'", *indexed(b="m-2.safetensors"))
        self.refused("it lacks 'n0', .*'n9' and 5 more", *indexed(**{f"n{i}": "m-1.safetensors" for i in range(10)},
                                                                 **{f"o{i}": "m-2.safetensors" for i in range(5)}))
        del places["b"]
        self.refused("it has 'b', which nothing here takes", *indexed())
        del places["c"]
        self.refused("it has 'm-2.safetensors', which nothing here takes", *indexed())
        places.update(b="m-1.safetensors")
        done = zero(*indexed(), "--ignore", "m-2.*")
        self.assertEqual((done.returncode, done.stderr), (0, "zero: not taken: 'm-2.safetensors'\n"))
        places.update(c="m-2.safetensors")
        del places["a"]
        done = zero(*indexed(), "--replace", "--ignore", "a")
        self.assertEqual((done.returncode, done.stderr), (0, "zero: not taken: 'a'\n"))

    def test_what_lies_beside_a_model_is_not_dropped_without_a_word(self):
        self.written("model.safetensors", w=3)
        command = ("import", "--from", "hf", self.model, self.back)
        for name, words in (("optimizer.pt", "'optimizer.pt', .*python -m libzero import --from torch takes the opt"),
                            ("optimizer.bin", "'optimizer.bin'"), ("model_1.safetensors", "'model_1.safetensors'")):
            path = pathlib.Path(self.model, name)
            path.write_text("")
            self.refused(words, *command)
            self.assertEqual(zero(*command, "--replace", "--ignore", name).returncode, 0)
            path.unlink()
        os.rename(os.path.join(self.model, "model.safetensors"), os.path.join(self.model, "adapter_model.safetensors"))
        self.done(*command, "--replace")
        pathlib.Path(self.model, "pytorch_model.bin").write_text("")
        pathlib.Path(self.model, "onnx").mkdir()
        done = zero(*command, "--replace")
        self.assertEqual((done.returncode, done.stderr), (0, "zero: not taken: 'onnx', 'pytorch_model.bin'\n"))

    def test_a_tensor_may_be_left_out_by_name(self):
        self.written("model.safetensors", w=3, **{"rope.freq": 2})
        done = zero("import", "--from", "hf", "--ignore", "rope", self.model, self.back)
        self.assertEqual(done.stderr, "zero: not taken: 'rope.freq'\n")
        self.assertEqual([one["name"] for one in json.loads(zero("inspect", "--json", self.back).stdout)["parameters"]],
                         ["w"])

    def test_a_pattern_of_nothing_is_refused(self):
        self.written("model.safetensors", w=3, **{"rope.freq": 2})
        self.refused("--ignore 'roper', 'x': it has nothing of that name",
                     "import", "--from", "hf", "--ignore", "roper,rope,x", self.model, self.back)

    def test_torch_is_asked_for_by_a_command_that_is_named(self):
        for name in ("torch", "dcp"):
            for *command, source, target in (("export", "--to", name, self.checkpoint("1"), self.model),
                                             ("import", "--from", name, self.model, self.back)):
                self.refused("python -m libzero " + " ".join(command), *command, source, target)
        self.assertEqual(os.listdir(self.place), [])


# The model has 64 MiB of parameters.
# A signal is sent when the process takes its first lock.
INTERRUPTED = """
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
int flock(int fd, int operation) { return raise(SIGINT), syscall(SYS_flock, fd, operation); }
"""

# The second lock fails with a signal, as if another save held the lock of the checkpoint. A third attempt ends the
# process with status 3.
LOCKED = """
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>
int flock(int fd, int operation) {
  static int locks;
  if (operation & LOCK_UN || locks++ == 0) return syscall(SYS_flock, fd, operation);
  if (locks > 2) _exit(3);
  return raise(SIGINT), errno = EWOULDBLOCK, -1;
}
"""

ENDED = """
#define _GNU_SOURCE
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
int unlinkat(int directory, const char *path, int flags) {
  return raise(SIGTERM), syscall(SYS_unlinkat, directory, path, flags);
}
"""

LARGE = """
import sys
import libzero

comm = libzero.Comm.solo()
memory = libzero.allocate(comm, {"w": (1 << 24,)})
optimizer = libzero.Optimizer(comm, "sgd")
optimizer.register(memory.params)
optimizer.save(sys.argv[1])
"""


if __name__ == "__main__":
    unittest.main()
