# SPDX-License-Identifier: Apache-2.0
"""Tests zero estimate and zero plan: what a rank stores of a model, and the arguments that they
reject."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest
from xml.etree import ElementTree

from zero_cases import ZERO, ZeroTest, zero

# Shapes from published configurations, and the numbers of parameters with transformers.
LLAMA = {"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
         "num_attention_heads": 32}
MISTRAL = LLAMA | {"model_type": "mistral", "intermediate_size": 14336, "num_key_value_heads": 8}
BERT = {"model_type": "bert", "vocab_size": 30522, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "max_position_embeddings": 512, "type_vocab_size": 2}
CONFIGS = {
    "gpt2": (124439808, {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12,
                         "architectures": ["GPT2LMHeadModel"]}),
    "llama": (6738415616, LLAMA),
    "llama without a head": (6607343616, LLAMA | {"architectures": ["LlamaModel"]}),
    "mistral": (7241732096, MISTRAL),
    "mixtral": (46702792704, MISTRAL | {"model_type": "mixtral", "num_local_experts": 8}),
    "qwen2": (494032768, {"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864,
                          "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
                          "tie_word_embeddings": True}),
    "qwen3": (596049920, {"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072,
                          "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
                          "tie_word_embeddings": True}),
    "gemma": (2506172416, {"model_type": "gemma", "vocab_size": 256000, "hidden_size": 2048, "intermediate_size": 16384,
                           "num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256}),
    "phi3": (3821079552, {"model_type": "phi3", "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192,
                          "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32}),
    "pythia": (162322944, {"model_type": "gpt_neox", "vocab_size": 50304, "hidden_size": 768, "intermediate_size": 3072,
                           "num_hidden_layers": 12}),
    "opt": (125239296, {"model_type": "opt", "vocab_size": 50272, "hidden_size": 768, "ffn_dim": 3072, "num_hidden_layers": 12,
                        "max_position_embeddings": 2048, "word_embed_proj_dim": 768}),
    "opt 350m": (331196416, {"model_type": "opt", "vocab_size": 50272, "hidden_size": 1024, "ffn_dim": 4096,
                             "num_hidden_layers": 24, "max_position_embeddings": 2048, "word_embed_proj_dim": 512,
                             "do_layer_norm_before": False}),
    "bert": (109482240, BERT),
    "roberta": (124645632, BERT | {"model_type": "roberta", "vocab_size": 50265, "max_position_embeddings": 514,
                                   "type_vocab_size": 1}),
}


class Estimate(ZeroTest):
    def shapes(self, *lines):
        file = os.path.join(tempfile.mkdtemp(dir=self.folder), "shapes.txt")
        pathlib.Path(file).write_text("\n".join(lines), encoding="utf-8")
        return file

    def test_a_rank_holds_what_the_rule_asks_for(self):
        """As in docs/memory.md, this is the number of bytes per parameter of a tensor that all
        ranks divide evenly."""
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

    def test_sizes_are_those_of_the_readme(self):
        """GPT-2 124M with AdamW needs 1,991 MB without ZeRO, and 684 MB on 8 ranks of one host."""
        for arguments in ([self.config("gpt2")], ["124439808"]):
            lines = zero("estimate", "--world", "1,8", *arguments).stdout.splitlines()
            self.assertEqual(re.split(r"  +", lines[0]), ["rule", "dtype", "ranks", "parameters", "gradients", "state", "per rank",
                                                   "with shared parameters, 1 host"])
            self.assertEqual(re.split(r"  +", lines[1])[3:], ["498 MB", "498 MB", "996 MB", "1,991 MB", "1,991 MB"])
            self.assertEqual(re.split(r"  +", lines[2])[3:], ["498 MB", "498 MB", "124 MB", "1,120 MB", "684 MB"])

    def test_a_table_has_one_unit_and_digits_for_its_smallest(self):
        said = zero("estimate", "--world", "1,64", "--rule", "adamw,sgd", "7B").stdout
        self.assertEqual(re.findall(r"[\d,.]+ [a-zA-Z]*B\b", said),
                         ["28.0 GB", "28.0 GB", "56.000 GB", "112.0 GB", "112.0 GB",
                          "28.0 GB", "28.0 GB", "0.875 GB", "56.9 GB", "29.3 GB"] +
                         ["28.0 GB", "28.0 GB", "0 GB", "56.0 GB", "56.0 GB",
                          "28.0 GB", "28.0 GB", "0 GB", "56.0 GB", "28.4 GB"])
        self.assertIn(" 8,096 bytes", zero("estimate", "--world", "1", "--rule", "sgd,adamw", "500").stdout)

    def test_a_number_of_parameters_is_a_model(self):
        for word, count in (("7B", 7e9), ("7e9", 7e9), ("1.5b", 1.5e9), ("124M", 124e6), ("350k", 350e3), ("0.1T", 1e11),
                            ("6738415616", 6738415616)):
            one, = json.loads(zero("estimate", "--json", "--world", "1", word).stdout)
            self.assertEqual(one["parameters"], 4 * count, word)
        self.refused("'7B' is a number of parameters, and --partition greedy needs their shapes", "estimate",
                     "--partition", "greedy", "7B")

    def test_shared_parameters_are_one_copy_on_each_host(self):
        n = 1 << 22
        for arguments, world, hosts, ranks, heading in (
                (["--hosts", "8"], 64, 8, 8, "8 hosts"), (["--hosts", "8"], 4, 4, 1, "8 hosts"),
                (["--hosts", "3"], 8, 3, 2, "3 hosts"), (["--ranks-per-host", "8"], 64, 8, 8, "8 ranks per host"),
                (["--ranks-per-host", "8"], 12, 2, 4, "8 ranks per host"),
                (["--ranks-per-host", "8"], 4, 1, 4, "8 ranks per host"), ([], 64, 1, 64, "1 host")):
            words = ["--world", world, *arguments, n]
            one, = json.loads(zero("estimate", "--json", *words).stdout)
            self.assertEqual((one["hosts"], one["total"] - one["total_with_shared_parameters"]),
                             (hosts, 4 * n - 4 * n // ranks), words)
            self.assertIn(f"with shared parameters, {heading}\n", zero("estimate", *words).stdout)
        self.assertEqual(zero("estimate", "--hosts", "2", "--ranks-per-host", "2", n).returncode, 2)

    def config(self, name, **changes):
        """Return the option for a published configuration, with the entries that determine
        shapes."""
        file = os.path.join(tempfile.mkdtemp(dir=self.folder), "config.json")
        pathlib.Path(file).write_text(json.dumps(CONFIGS[name][1] | changes), encoding="utf-8")
        return f"--config={file}"

    def test_a_config_has_as_many_parameters_as_its_model(self):
        for name, (count, _) in CONFIGS.items():
            one, = json.loads(zero("estimate", "--json", "--world", "1", "--dtype", "F32", self.config(name)).stdout)
            self.assertEqual(one["parameters"], 4 * count, name)
        heads = {"BertModel": 109482240, "BertForMaskedLM": 109514298, "BertForPreTraining": 110106428}
        for name, count in heads.items():
            one, = json.loads(zero("estimate", "--json", "--world", "1", self.config("bert", architectures=[name])).stdout)
            self.assertEqual(one["parameters"], 4 * count, name)
        one, = json.loads(zero("estimate", "--json", "--world", "1", self.config("gpt2", torch_dtype="bfloat16")).stdout)
        self.assertEqual(one["parameters"], 2 * 124439808)

    def test_a_config_that_does_not_say_enough_is_refused_by_the_key(self):
        for name, changes, words in (
                ("gpt2", {"n_embd": None}, "it has no key 'n_embd'"), ("gpt2", {"n_layer": -1}, "'n_layer' is -1, not a whole"),
                ("gpt2", {"n_layer": 10**6}, "'n_layer' is 1000000, but at most 1000"),
                ("gpt2", {"vocab_size": "many"}, "'vocab_size' is .many., not a whole number"),
                ("gpt2", {"add_cross_attention": True}, "'add_cross_attention' is true"),
                ("gpt2", {"model_type": "llava"}, "'model_type' is .llava., but only gpt2, llama, .* are known"),
                ("gpt2", {"model_type": None}, "it has no key 'model_type'"),
                ("bert", {"architectures": ["BertForTokenClassification"]}, "'architectures' is .*, of which only"),
                ("bert", {"position_embedding_type": "relative_key"}, "'position_embedding_type' is .relative_key."),
                ("llama", {"num_attention_heads": 33}, "'num_attention_heads' is 33, which does not divide"),
                ("mistral", {"num_key_value_heads": None}, "it has no key 'num_key_value_heads'"),
                ("llama", {"torch_dtype": "int4"}, "'torch_dtype' is .int4., not float32"),
                ("llama", {"quantization_config": {"bits": 4}}, "'quantization_config' is ")):
            self.refused(words, "estimate", self.config(name, **changes))
        for text, words in (("[1]", "it is not a JSON object"), ("{", "it is not a JSON object")):
            file = self.shapes(text)
            self.refused(words, "estimate", "--config", file)
        self.refused("pass a config.json with --config", "estimate", self.shapes('{"model_type": "gpt2", "n_embd": 4}'))
        self.refused("No such file|is missing", "estimate", "--config", "/no/such.json")
        for arguments in ([], ["7B", self.config("gpt2")]):
            self.assertEqual(zero("estimate", *arguments).returncode, 2)
        self.assertEqual(zero("plan", "--world", "2", self.config("gpt2")).returncode, 0)

    def test_equal_lines_of_a_plot_lie_beside_each_other(self):
        image = os.path.join(tempfile.mkdtemp(dir=self.folder), "x.svg")
        def drawn(*arguments):
            zero("estimate", "--replace", "--plot", image, "--world", "1,2,4", *arguments, "1M")
            paths = ElementTree.parse(image).iter("{http://www.w3.org/2000/svg}path")
            return [path.get("d") for path in paths if path.get("d").count("L") == 2], pathlib.Path(image).read_text("utf-8")
        lines, words = drawn("--rule", "adamw,adam,lamb,sgd")
        self.assertEqual((len(lines), len(set(lines))), (8, 8))
        self.assertIn("Equal lines are drawn side by side.", words)
        lines, words = drawn("--instances", "1", "--hosts", "4")  # ranks share no parameters
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
        self.refused("at most 8 rules and dtypes, these are 9", "estimate", "--rule", rules, "--plot", image,
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
        for lines, words in ((["a"], "line 1 is not NAME SHAPE"), (["a 3", "b 3y4"], "line 2: '3y4' is not a shape"),
                             (["a 3 F99"], "'F99' is not a dtype"), (["# nothing"], "it has no tensors"),
                             (["a 4294967296x4294967296"], "tensor 'a' is too large")):
            self.refused(words, "estimate", self.shapes(*lines))
        for word in ("/no/such", "7X", "B", "-7B", "0x7B", "0", "inf", "1e16"):
            self.refused(f"'{word}' is neither a number of parameters, such as 7B or 124M, nor a file", "estimate", "--", word)
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
