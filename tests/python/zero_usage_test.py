# SPDX-License-Identifier: Apache-2.0
"""zero's command line: help, and what it says of words that it does not know."""

import pathlib
import re
import unittest

from zero_cases import zero


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

    def test_help_is_narrow_and_all_of_it_is_in_the_manual_page(self):
        page = pathlib.Path(__file__).parents[2] / "packaging/man/zero.1"
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
