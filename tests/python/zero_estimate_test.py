# SPDX-License-Identifier: Apache-2.0
"""zero estimate and zero plan: what a rank holds of a model, and what they refuse."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest
from xml.etree import ElementTree

from zero_cases import ZERO, ZeroTest, zero


class Estimate(ZeroTest):
    def shapes(self, *lines):
        file = os.path.join(tempfile.mkdtemp(dir=self.folder), "shapes.txt")
        pathlib.Path(file).write_text("\n".join(lines), encoding="utf-8")
        return file

    def test_a_rank_holds_what_the_rule_asks_for(self):
        """By docs/memory.md: bytes for each parameter of a tensor that all ranks divide evenly."""
        n = 1 << 22
        file = self.shapes("# one tensor", "", "w 4096x1024 F32")
        done = zero("estimate", "--json", "--world", "1,8", "--rule", "adamw,sgd", "--dtype", "F32,BF16",
                    "--grad-dtype", "F32", file)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        said = {(one["rule"], one["dtype"], one["world"]): one for one in json.loads(done.stdout)}
        for (rule, dtype, world), one in said.items():
            size = 4 if dtype == "F32" else 2
            state = (8 if rule == "adamw" else 0) + (4 if dtype == "BF16" else 0)
            self.assertEqual(one["parameters"], size * n)
            self.assertEqual(one["gradients"], 4 * n)
            self.assertEqual(one["state"], state * n // world)
            self.assertEqual(one["total"], (size + 4) * n + state * n // world)
            self.assertEqual(one["total_with_shared_parameters"], 4 * n + (size + state) * n // world)
        self.assertEqual(len(said), 8)
        for dtype in ("BF16", "bf16"):
            self.assertIn("adamw  BF16   8", zero("estimate", "--world", 8, "--dtype", dtype, file).stdout)
        one = json.loads(zero("estimate", "--json", "--world", "8", "--instances", "2", file).stdout)[0]
        self.assertEqual((one["state"], one["total_with_shared_parameters"]), (8 * n // 4, one["total"]))
        self.refused("instances is 2, which does not divide a world of 3 ranks", "estimate", "--world", "3",
                     "--instances", "2", file)

    def test_a_model_comes_from_a_checkpoint_a_header_or_a_list(self):
        directory = self.checkpoint("2", 2)
        file = os.path.join(tempfile.mkdtemp(dir=self.folder), "model.safetensors")
        zero("merge", directory, file)
        shapes = self.shapes("h.0.weight 50x70", "h.0.bias 3000", "none 0", "h.1.half 999 BF16", "wide 2x3 F64",
                             "seen 1 I64")
        said = {zero("estimate", "--json", model).stdout for model in (directory, file, shapes)}
        with open(shapes, encoding="utf-8") as lines:
            said.add(subprocess.check_output([ZERO, "estimate", "--json", "-"], stdin=lines, text=True, timeout=60))
        self.assertEqual(len(said), 1)
        self.assertEqual(json.loads(said.pop())[0]["parameters"], 4 * 6500 + 2 * 999 + 8 * 6 + 8)

    def test_equal_lines_of_a_plot_lie_beside_each_other(self):
        image = os.path.join(tempfile.mkdtemp(dir=self.folder), "x.svg")
        def drawn(*arguments):
            zero("estimate", "--replace", "--plot", image, "--world", "1,2,4", *arguments, self.shapes("w 1000000"))
            paths = ElementTree.parse(image).iter("{http://www.w3.org/2000/svg}path")
            return [path.get("d") for path in paths if path.get("d").count("L") == 2], pathlib.Path(image).read_text("utf-8")
        lines, words = drawn("--rule", "adamw,adam,lamb,sgd")
        self.assertEqual((len(lines), len(set(lines))), (8, 8))
        self.assertIn("Equal lines are drawn side by side.", words)
        lines, words = drawn("--instances", "4")  # no rank shares
        self.assertEqual((len(lines), len(set(lines))), (2, 2))
        lines, words = drawn("--rule", "adamw")
        self.assertNotIn("side by side", words)

    def test_a_plot_has_a_line_for_each_rule_and_dtype_through_the_bytes_of_each_world(self):
        file = self.shapes("w<&> 1024x1024")
        image = os.path.join(os.path.dirname(file), "x.svg")
        arguments = ["--world", "1,2,8", "--rule", "adamw,sgd", "--plot", image, file]
        said = json.loads(zero("estimate", "--json", *arguments).stdout)
        drawn = ElementTree.parse(image).getroot()
        space = "{http://www.w3.org/2000/svg}"
        words = [text.text for text in drawn.iter(space + "text")]
        for name in ("adamw", "sgd", "1", "2", "8", "0 MB", "15 MB", "ranks"):
            self.assertIn(name, words)
        dots = [(float(dot.get("cx")), float(dot.get("cy"))) for dot in drawn.iter(space + "circle")]
        bytes_at = [one[key] for key in ("total", "total_with_shared_parameters") for one in said]
        self.assertEqual(len(dots), 12)
        bottom = max(float(path.get("d").split()[1].split("H")[0]) for path in drawn.iter(space + "path")
                     if "H" in path.get("d"))
        for (_, y), held in zip(dots, bytes_at):
            self.assertAlmostEqual((bottom - y) / (bottom - dots[0][1]), held / bytes_at[0], places=4)
        self.assertEqual(len({x for x, _ in dots}), 3)
        self.refused("exists: remove it, or give --replace", "estimate", *arguments)
        self.assertEqual(zero("estimate", "--replace", *arguments).returncode, 0)

    def test_a_plot_can_be_read_or_is_refused(self):
        file = self.shapes("w 1024")
        image = file + ".svg"
        worlds = [*range(1, 25), 1024, 4096, 65536]
        zero("estimate", "--world", ",".join(map(str, worlds)), "--plot", image, file)
        words = ElementTree.parse(image).iter("{http://www.w3.org/2000/svg}text")
        numbers = [(float(word.get("x")), 8 * len(word.text)) for word in words if word.text.isdigit()]
        self.assertGreater(len(numbers), 15)
        for (x, width), (next_x, next_width) in zip(numbers, numbers[1:]):
            self.assertGreater(next_x - x, (width + next_width) / 2)
        rules = "adamw,adam,sgd,rmsprop,adagrad,lion,adamax,radam,nadam"
        self.refused("at most 8 rules and dtypes apart, these are 9", "estimate", "--rule", rules, "--plot", image,
                     "--replace", file)
        self.assertEqual(zero("estimate", "--plot", file + ".png", file).returncode, 2)

    def test_a_plan_tells_owners_and_imbalance(self):
        file = self.shapes("a 1000", "b 3000", "c 2000", "d 2000")
        said = json.loads(zero("plan", "--json", "--world", 2, "--partition", "greedy", file).stdout)
        self.assertEqual((said["elements"], said["imbalance"]), ([4000, 4000], 1.0))
        owners = {one["tensor"]: one["owner"] for one in said["owners"]}
        self.assertEqual(owners["b"], owners["a"])
        self.assertEqual(owners["c"], owners["d"])
        said = json.loads(zero("plan", "--json", "--world", 2, "--partition", "greedy", self.shapes("a 30", "b 10")).stdout)
        self.assertEqual((said["elements"], said["imbalance"]), ([30, 10], 1.5))
        done = zero("plan", "--world", 3, self.shapes("a 1024x3"))
        self.assertEqual([line.split() for line in done.stdout.splitlines()[1:4]],
                         [[str(rank), "1024", "0"] for rank in range(3)])
        self.assertIn("1 tensor split between ranks; the busiest rank has 1 times the mean", done.stdout)

    def test_what_is_no_model_is_a_sentence(self):
        for lines, words in ((["a"], "line 1 is not NAME SHAPE"), (["a 3", "b 3y4"], "line 2: '3y4' is no shape"),
                             (["a 3 F99"], "'F99' is no dtype"), (["# nothing"], "it has no tensors"),
                             (["a 4294967296x4294967296"], "tensor 'a' is too large")):
            self.refused(words, "estimate", self.shapes(*lines))
        self.refused("is missing", "estimate", "/no/such")
        done = zero("estimate", "--rule", "adamm", self.shapes("a 3"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("there is no rule 'adamm', but adamw, adam", done.stderr)
        text = os.path.join(tempfile.mkdtemp(dir=self.folder), "x.safetensors")
        pathlib.Path(text).write_text("no tensors at all", encoding="utf-8")
        self.refused("a header of ", "estimate", text)
        for arguments in (["--world", "0"], ["--partition", "odd"], ["--dtype", "I32"]):
            self.assertEqual(zero("estimate", *arguments, self.shapes("a 3")).returncode, 2)


if __name__ == "__main__":
    unittest.main()
