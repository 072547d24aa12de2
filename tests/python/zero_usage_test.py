# SPDX-License-Identifier: Apache-2.0
"""Tests the command line of zero: help, and errors for unknown words."""

import pathlib
import re
import subprocess
import unittest

from zero_cases import ZERO, zero

ROOT = pathlib.Path(__file__).parents[2]


class Usage(unittest.TestCase):
    def test_mistakes_are_2(self):
        for arguments in ([], ["look"], ["inspect"], ["verify", "a", "b"], ["inspect", "--fast", "a"],
                          ["diff", "a"], ["merge", "a"], ["inspect", "--with-state", "a"], ["reshard", "a", "b"],
                          ["reshard", "--world", "0", "a", "b"], ["export", "a", "b"],
                          ["export", "--to", "hf", "--shard-bytes", "-5", "a", "b"],
                          ["import", "--from", "onnx", "a", "b"], ["trace"], ["trace", "merge"]):
            with self.subTest(arguments):
                done = zero(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertRegex(done.stderr, r"^zero((?: \w+)*): .+; see zero\1 --help\n$")
        self.assertIn("see zero trace merge --help", zero("trace", "merge").stderr)
        self.assertEqual(zero("trace").stderr,
                         "zero trace: a command is missing, such as zero trace merge; see zero trace --help\n")
        self.assertEqual(zero("inspect").stderr, "zero inspect: CHECKPOINT is required; see zero inspect --help\n")

    def test_a_misspelt_word_is_named_with_what_it_may_have_meant(self):
        for arguments, command, why in (
                (["look"], "zero", "there is no command 'look'"),
                (["inspct", "a"], "zero", "there is no command 'inspct' (did you mean 'inspect'?)"),
                (["inspct", "--help"], "zero", "there is no command 'inspct' (did you mean 'inspect'?)"),
                (["est"], "zero", "there is no command 'est' (did you mean 'estimate'?)"),
                (["--hlep"], "zero", "there is no option '--hlep' (did you mean '--help'?)"),
                (["trace", "--json", "mrge", "a"], "zero trace", "there is no command 'mrge' (did you mean 'merge'?)"),
                (["diff", "--jsno=1", "a"], "zero diff", "there is no option '--jsno' (did you mean '--json'?)"),
                (["diff", "a", "--quick"], "zero diff", "there is no option '--quick'"),
                (["help", "trace", "mreg"], "zero trace", "there is no command 'mreg' (did you mean 'merge'?)")):
            with self.subTest(arguments):
                done = zero(*arguments)
                self.assertEqual((done.returncode, done.stdout), (2, ""))
                self.assertEqual(done.stderr, f"{command}: {why}; see {command} --help\n")
        self.assertIn("no such directory", zero("inspect", "--", "--jsno").stderr)

    def test_help_of_a_command_is_what_its_option_prints(self):
        for words in ([], ["inspect"], ["trace"], ["trace", "merge"]):
            self.assertEqual(zero("help", *words).stdout, zero(*words, "--help").stdout)
        self.assertIn("Usage: zero trace merge", zero("help", "trace", "merge").stdout)

    def test_shells_are_offered_commands_options_values_or_nothing(self):
        for words, offered in ((["in"], ["inspect"]), (["trace", ""], ["merge"]), (["help", "trace", "m"], ["merge"]),
                               (["verify", "--"], ["--help", "--json"]), (["--v"], ["--version"]),
                               (["estimate", "--partition", "gr"], ["greedy", "greedy-in-order"]),
                               (["estimate", "--partition=gr"], ["--partition=greedy", "--partition=greedy-in-order"]),
                               (["estimate", "--partition", "=", "e"], ["even"]), (["estimate", "--dtype", "="], "F32 F64 BF16 F16".split()),
                               (["estimate", "--rule", "sgd,adamw"], ["sgd,adamw"]),
                               (["export", "--to", "hf", ""], []), (["verify", "a"], []), (["verfy", ""], [])):
            lines = zero("__complete", *words).stdout.splitlines()
            self.assertEqual(sorted(line.split("\t")[0] for line in lines), sorted(offered), words)
        self.assertEqual(zero("__complete", "docto").stdout,
                         "doctor\tcheck that this host has what ranks need\n")

    def test_bash_completes(self):
        script = ROOT / "tools/zero/completions/zero.bash"
        program = 'source "$1"; shift; COMP_CWORD=$(($# - 1)); COMP_WORDS=("$@"); _zero; printf "%s\\n" "${COMPREPLY[@]}"'
        for words, offered in ((["tr"], "trace\n"), (["trace", ""], "merge\n"), (["plan", "--partition", "=", "gr"], "greedy\ngreedy-in-order\n"),
                               (["verify", ""], "\n")):
            done = subprocess.run(["bash", "-c", program, "bash", script, ZERO, *words], capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertEqual((done.stdout, done.stderr), (offered, ""))

    def test_help_is_narrow_and_all_of_it_is_in_the_manual_page(self):
        page = ROOT / "packaging/man/zero.1"
        words = page.read_text(encoding="utf-8").replace("\\-", "-")
        said = zero("--help")
        self.assertEqual((said.returncode, said.stderr), (0, ""))
        commands = re.findall(r"^  (\w+) ", re.split("subcommands:", said.stdout, flags=re.I)[1], re.M)
        self.assertGreaterEqual(len(commands), 4)
        helps = [said.stdout]
        for command in commands:
            self.assertIn(f".B zero {command}\n", words)
            helps.append(zero(command, "--help").stdout)
        for text in helps:
            self.assertTrue(all(len(line) <= 100 for line in text.splitlines()), text)
            for word in re.findall(r"--[a-z-]+|^  [A-Z]+ |\b[A-Z]+\.[A-Z]+\b", text, re.M):
                self.assertIn(word.strip(), words)

    def test_the_version_is_that_of_the_library(self):
        self.assertRegex(zero("--version").stdout, r"^zero \d+\.\d+\.\d+\n$")


if __name__ == "__main__":
    unittest.main()
