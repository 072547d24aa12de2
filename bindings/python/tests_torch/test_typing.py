# SPDX-License-Identifier: Apache-2.0
"""Tests what type checkers know about the options of libzero.torch.Optimizer."""

from __future__ import annotations

import unittest
from typing import Any

from libzero import rules
from libzero._params import OPTIONS
from libzero.torch import _rules
from libzero.torch.typing import Options


class TypesTest(unittest.TestCase):
    def test_options_are_those_of_libzero_and_of_every_rule_in_torchs_words(self) -> None:
        known = OPTIONS - {"partition", "overlap_gather"}
        for name in rules():
            known |= set(_rules.choose(name, {}).template.defaults)  # type: ignore[arg-type]
        self.assertEqual(set(Options.__annotations__), known)

    def test_a_rule_is_named_in_any_case(self) -> None:
        wrong: Any = _rules.choose
        for name in ("AdamW", "SGD", "AdEMAMix"):
            found, wanted = wrong(name, {"lr": 0.5}), wrong(name.lower(), {"lr": 0.5})
            self.assertEqual(found[:2], wanted[:2])
            self.assertEqual(found.template.defaults, wanted.template.defaults)


if __name__ == "__main__":
    unittest.main()
