# SPDX-License-Identifier: Apache-2.0
"""Tests the output of zero, its format, and the arguments that it rejects."""

import fcntl
import json
import os
import pathlib
import pty
import re
import resource
import struct
import subprocess
import tempfile
import termios
import unittest

from zero_cases import WRITERS, ZERO, ZERO_RUN, ZeroTest, flip, save, zero

# The manifest of a future format.
NEWER = b'{"zero_format":3,\n"end":{"bytes":18,"xxh3":"3195b3f50b081b8b"}}\n'


class Inspect(ZeroTest):
    def test_json_has_what_was_saved(self):
        directory = self.checkpoint("extras", 2, "2", "extras")
        done = zero("inspect", "--json", directory)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        said = json.loads(done.stdout)
        self.assertEqual([said[key] for key in ("step", "skipped", "world", "optimizer")], [2, 0, 2, "adamw"])
        self.assertEqual(said["groups"][0]["lr"], 0.25)
        state = ["exp_avg", "exp_avg_sq"]
        self.assertEqual([(one["name"], one["dtype"], one["shape"], one["step"], one["state"])
                          for one in said["parameters"]],
                         [("h.0.weight", "F32", [50, 70], 2, state), ("h.0.bias", "F32", [3000], 2, state),
                          ("none", "F32", [0], 2, state), ("h.1.half", "BF16", [999], 2, [*state, "master"]),
                          ("wide", "F64", [2, 3], 2, state)])
        self.assertEqual(said["buffers"], [{"name": "seen", "dtype": "I64", "shape": [1]}])
        self.assertEqual(said["extras"], [{"rank": 0, "name": "random", "bytes": 100},
                                          {"rank": 1, "name": "random", "bytes": 101}])
        sizes = {name: os.path.getsize(os.path.join(directory, name)) for name in os.listdir(directory)}
        del sizes["zero.json"]
        self.assertEqual({one["name"]: one["bytes"] for one in said["files"]}, sizes)
        self.assertEqual(said["bytes"], sum(sizes.values()))

    def test_words_are_a_tree_of_tensors(self):
        done = zero("inspect", self.checkpoint("extras", 2, "2", "extras"))
        self.assertEqual(done.returncode, 0)
        lines = [line.split() for line in done.stdout.splitlines()]
        at = lines.index(["h"])
        self.assertEqual(lines[at : at + 3], [["h"], ["0"], "weight F32 [50, 70] group 0, step 2: exp_avg, "
                                              "exp_avg_sq".split()])
        for words in ("world 2 ranks", "optimizer adamw", "random 2 ranks 201 bytes", "seen I64 [1]", "1"):
            self.assertIn(words.split(), lines)

    def test_columns_are_as_wide_as_their_characters(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        header = json.dumps({name: {"dtype": "F32", "shape": [], "data_offsets": [4 * i, 4 * i + 4]}
                             for i, name in enumerate(("größe", "weight"))}, ensure_ascii=False).encode()
        (folder / "model").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
        zero("import", "--from", "hf", folder / "model", folder / "saved")
        lines = zero("inspect", folder / "saved").stdout.splitlines()
        self.assertEqual([line.index("F32") for line in lines if "F32" in line], [10, 10])

    def test_a_folder_means_its_newest_checkpoint(self):
        folder = tempfile.mkdtemp(dir=self.folder)
        for steps in ("3", "1"):
            save(os.path.join(folder, f"run-{steps}"), 1, steps)
        os.mkdir(os.path.join(folder, "run-9"))
        done = zero("inspect", "--json", folder)
        self.assertEqual(json.loads(done.stdout)["checkpoint"], os.path.join(folder, "run-3"))
        self.assertIn("run-9", done.stderr)  # the reason why it is not a checkpoint


class Verify(ZeroTest):
    def test_a_sound_checkpoint_is_0(self):
        for name, words in (("2", ("2",)), ("extras", ("2", "extras"))):
            done = zero("verify", "--json", self.checkpoint(name, 2, *words))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            said = json.loads(done.stdout)
            self.assertEqual((said["sound"], said["faults"], said["step"]), (True, [], 2))
        done = zero("verify", self.checkpoint("2", 2))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(": sound, step 2, ", done.stdout)

    def test_all_that_is_damaged_is_told(self):
        directory = self.own()
        flip(os.path.join(directory, "model-00002-of-00002.safetensors"), 5000)
        flip(os.path.join(directory, "optim-00001-of-00002.safetensors"), -1 % os.path.getsize(
            os.path.join(directory, "optim-00001-of-00002.safetensors")))
        os.remove(os.path.join(directory, "model.safetensors.index.json"))
        os.truncate(os.path.join(directory, "optim-00002-of-00002.safetensors"), 4096)
        done = zero("verify", "--json", directory)
        self.assertEqual(done.returncode, 1)
        said = json.loads(done.stdout)
        self.assertFalse(said["sound"])
        for words in ("model-00002-of-00002.safetensors': bytes 0 to ", "optim-00001-of-00002.safetensors': bytes 0 to ",
                      "model.safetensors.index.json': is missing",
                      "optim-00002-of-00002.safetensors': has 4096 bytes, but the manifest says"):
            self.assertTrue(any(words in fault for fault in said["faults"]), (words, said["faults"]))
        self.assertEqual(len(said["faults"]), 4)
        done = zero("verify", directory)
        self.assertEqual((done.returncode, len(done.stdout.splitlines())), (1, 5))
        self.assertIn(": 4 faults, step 2, ", done.stdout)

    def test_a_folder_without_a_checkpoint_is_one_sentence_that_counts_what_is_in_it(self):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        for i in range(50):
            (folder / f"file-{i:02}").write_text("", encoding="utf-8")
        done = self.refused(r"neither it nor a directory in it is a complete checkpoint; '.*/file-00': is not a "
                            r"directory; skipped: 50 of its entries \(a checkpoint has a zero.json\)", "verify", folder)
        self.assertEqual(done.stderr.count("\n"), 1)
        save(os.path.join(folder, "run"), 1, "1")
        done = zero("verify", folder)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (0, 4))
        self.assertTrue(done.stderr.endswith("zero: and 47 more are skipped\n"), done.stderr)

    def test_a_file_of_another_save_is_damage_though_its_checksums_are_right(self):
        directory, other = self.own(), self.own()
        for name in ("model-00001-of-00002.safetensors", "zero.json"):
            os.replace(os.path.join(other, name), os.path.join(directory, name))
        done = zero("verify", directory)
        self.assertEqual(done.returncode, 1)
        self.assertIn("model-00002-of-00002.safetensors", done.stdout)


class Diff(ZeroTest):
    def test_the_same_training_on_other_worlds_has_no_difference(self):
        directories = [self.checkpoint(str(world), world) for world in (1, 2, 4)]
        for other in directories[1:]:
            done = zero("diff", directories[0], other)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "no difference\n", ""))
        done = zero("diff", "--json", *directories[1:])
        self.assertEqual(json.loads(done.stdout), {"same": True, "facts": [], "tensors": []})

    def test_one_bit_is_found(self):
        one, other = self.checkpoint("2", 2), self.checkpoint("nudged", 1, "2", "nudge")
        done = zero("diff", "--json", one, other)
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        said = json.loads(done.stdout)
        self.assertEqual((said["same"], said["facts"], len(said["tensors"])), (False, [], 1))
        tensor, = said["tensors"]
        self.assertEqual([tensor[key] for key in ("tensor", "dtype", "elements", "differ")],
                         ["h.0.weight", "F32", 3500, 1])
        self.assertEqual((tensor["first"]["element"], tensor["first"]["bit"]), (17, 3))
        bits = [int(word, 16) for word in tensor["first"]["bits"]]
        self.assertEqual(bits[0] ^ bits[1], 8)
        values = [struct.unpack("<f", struct.pack("<I", word))[0] for word in bits]
        self.assertEqual(tensor["first"]["values"], values)
        self.assertEqual(tensor["largest_absolute"], abs(values[0] - values[1]))
        self.assertEqual(tensor["largest_relative"],
                         tensor["largest_absolute"] / max(map(abs, values)))
        done = zero("diff", one, other)
        self.assertEqual(done.returncode, 1)
        self.assertIn("first difference: h.0.weight, element 17, bit 3: ", done.stdout)

    def test_steps_settings_and_extras_are_facts(self):
        other = self.checkpoint("later", 1, "3", "lr", "extras")
        said = json.loads(zero("diff", "--json", self.checkpoint("2", 2), other).stdout)
        facts = {fact["what"]: (fact["first"], fact["second"]) for fact in said["facts"]}
        self.assertEqual(facts["step"], ("2", "3"))
        self.assertEqual(facts["group 0: lr"], ("0x1p-2 (0.25)", "0x1p-1 (0.5)"))
        self.assertEqual(facts["parameter wide: step"], ("2", "3"))
        self.assertEqual(facts["extra random of rank 0"][0], "")
        self.assertIn("wide.exp_avg", [tensor["tensor"] for tensor in said["tensors"]])
        self.assertIn("extra random of rank 0: not there and 100 bytes", zero("diff", self.checkpoint("2", 2), other).stdout)

    def test_a_damaged_one_is_a_sentence(self):
        directory = self.own()
        flip(os.path.join(directory, "model-00001-of-00002.safetensors"), 5000)
        self.refused("do not match the checksum in the manifest", "diff", self.checkpoint("2", 2), directory)


class Terminal(ZeroTest):
    def drawn(self, columns, *arguments):
        """Return the lines that a terminal of so many columns shows while the command runs."""
        try:
            leader, follower = pty.openpty()
        except OSError:
            self.skipTest("there are no terminals")
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        done = subprocess.run([ZERO, *arguments], stdout=subprocess.PIPE, stderr=follower, timeout=60, check=True)
        os.close(follower)
        seen = b""
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:  # all output has been read
                break
            if not part:
                break
            seen += part
        os.close(leader)
        self.assertNotIn(b"left", done.stdout)
        self.assertTrue(seen.endswith(b"\r\x1b[K"))  # the progress line is erased
        return [line.replace("\x1b[K", "") for line in seen.decode().split("\r")]

    def test_it_shows_how_far_a_command_is(self):
        place = os.path.join(self.folder, "model.safetensors")
        one, other = self.checkpoint("1"), self.checkpoint("2", 2)
        for arguments in (["verify", other], ["diff", one, other], ["merge", other, place]):
            lines = self.drawn(100, *arguments)
            self.assertRegex(lines[1], r"^\[#* *\]  \d+ %, .* of .*, .*/s, \d+ s left$")

    def test_a_verification_counts_the_bytes_that_are_there(self):
        directory = self.checkpoint("2", 2)
        (size,) = re.findall(r"files, (.*) at", zero("verify", directory).stdout)
        self.assertIn(f" of {size}, ", self.drawn(100, "verify", directory)[1])

    def test_lines_fit_a_narrow_terminal(self):
        for columns in (5, 20, 50, 64):
            lines = self.drawn(columns, "verify", self.checkpoint("2", 2))
            self.assertGreater(len(lines[1]), 0)
            self.assertTrue(all(len(line) < columns for line in lines), lines)


class Doctor(unittest.TestCase):
    CLEAN = {key: value for key, value in os.environ.items() if not key.startswith(("ZERO_RANK", "ZERO_WORLD", "RANK", "WORLD"))}

    def findings(self, **options):
        options.setdefault("env", self.CLEAN)
        done = zero("doctor", "--json", **options)
        self.assertEqual(done.stderr, "")
        said = json.loads(done.stdout)
        self.assertEqual(done.returncode, 0 if said["ok"] else 1)
        self.assertEqual(said["ok"], all(one["ok"] for one in said["findings"]))
        return {one["subject"]: (one["ok"], one["words"]) for one in said["findings"]}

    def test_each_subject_is_a_line_that_is_ok_or_says_what_to_do(self):
        found = self.findings()
        self.assertTrue(found["libzero"][0])
        self.assertIn("isa: ", found["libzero"][1])
        self.assertEqual(found["launcher"], (True, "none: this is a job of one process; zero-run -n 4 starts four"))
        lines = zero("doctor", env=self.CLEAN).stdout.splitlines()
        self.assertEqual([line.startswith("ok  ") for line in lines], [ok for ok, _ in found.values()])

    def test_a_launcher_is_named_and_half_of_its_variables_is_a_mistake(self):
        done = subprocess.run([ZERO_RUN, "-n", "2", ZERO, "doctor"], capture_output=True, text=True, timeout=60,
                              check=False, env=self.CLEAN)
        for rank in "01":
            self.assertRegex(done.stdout, rf"\[{rank}\] ok +launcher +zero-run: rank {rank} of 2\n")
        half = self.findings(env=self.CLEAN | {"RANK": "0"})["launcher"]
        self.assertEqual(half, (False, "RANK is '0', but WORLD_SIZE is not set: set both or neither"))
        self.assertRegex(done.stdout, r"\[0\] ok +MPI +")
        unopened = self.findings(env=self.CLEAN | {"ZERO_MPI_PATH": "/no/such.so"})["MPI"]
        self.assertFalse(unopened[0])
        self.assertIn("ZERO_MPI_PATH: /no/such.so: cannot open", unopened[1])
        wrong = self.findings(env=self.CLEAN | {"ZERO_TIMEOUT_MS": "soon"})["deadlines"]
        self.assertFalse(wrong[0])
        self.assertIn("ZERO_TIMEOUT_MS is 'soon'", wrong[1])

    def test_limits_that_are_too_low_are_told(self):
        def limited():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        found = self.findings(preexec_fn=limited)
        self.assertEqual(found["descriptors"], (False, "64: raise ulimit -n for many ranks"))
        self.assertEqual(found["file size"],
                         (False, "1048576 bytes, which ends larger checkpoints: ulimit -f unlimited"))


class BadInput(ZeroTest):
    def test_what_is_no_checkpoint_is_a_sentence(self):
        empty = tempfile.mkdtemp(dir=self.folder)
        file = os.path.join(empty, "file")
        newer = tempfile.mkdtemp(dir=self.folder)
        pathlib.Path(newer, "zero.json").write_bytes(NEWER)
        broken = tempfile.mkdtemp(dir=self.folder)
        pathlib.Path(broken, "zero.json").write_text("{}")
        for path, words in [("/no/such", "there is no such directory"),
                            (empty, "is a complete checkpoint"),
                            (newer, "has format 3, but this libzero reads 1 and 2: use a newer libzero"),
                            (broken, "does not end like a complete manifest"),
                            ("", "no such directory")]:
            for command in (["inspect"], ["verify"], ["diff", self.checkpoint("1")]):
                self.refused(words, *command, path)
            for command in WRITERS:
                self.refused(words, *command, path, file)
            self.assertEqual(os.listdir(empty), [])
        pathlib.Path(file).write_text("")
        self.refused("is not a directory", "inspect", file)

    def test_a_file_that_cannot_be_made_is_named(self):
        self.refused("'/proc/model': ", "merge", self.checkpoint("1"), "/proc/model")

    def test_a_name_does_not_steer_the_terminal(self):
        self.refused(r"'/no/\?\[31ms\?1much\?'", "verify", "/no/\033[31ms\x9b1much\n")

    def test_a_directory_without_permission_is_a_sentence(self):
        directory = self.own()
        os.chmod(directory, 0)
        if os.access(directory, os.R_OK):
            self.skipTest("this user may read everything")
        self.refused("Permission denied", "verify", directory)

    def test_an_output_that_is_full_is_a_failure(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([ZERO, "inspect", self.checkpoint("1")], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, "zero inspect: the output could not be written\n"))


if __name__ == "__main__":
    unittest.main()
