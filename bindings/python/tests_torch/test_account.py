# SPDX-License-Identifier: Apache-2.0
"""Tests what an import or a load reports about the contents of the source and of the result."""

from __future__ import annotations

import json
import unittest

from libzero.torch._account import NUMBER, account, each_once, listed, repeated
from libzero.torch._streams import RefusedError


class Accounts(unittest.TestCase):
    def test_what_is_equal_needs_no_word(self) -> None:
        has = {"w.exp_avg": (3, 2), "w.step": NUMBER, "group 0.amsgrad": False}
        self.assertEqual(account(has, dict(has)).text(), "")

    def test_each_kind_of_difference_is_named(self) -> None:
        has = {"w.exp_avg": (3,), "w.noise": (4,), "w.step": (1,), "b.step": NUMBER, "flag": True}
        holds = {
            "w.exp_avg": (4,),
            "w.exp_avg_sq": (4,),
            "w.step": NUMBER,
            "b.step": (),
            "flag": False,
        }
        self.assertEqual(
            account(has, holds).text(ignore="--ignore drops it", fill="--fill makes it"),
            "it has 'w.noise', which nothing here takes (--ignore drops it); it lacks 'w.exp_avg_sq' "
            "(--fill makes it); 'w.exp_avg' has shape [3], not [4], 'w.step' has shape [1], not a number, "
            "'b.step' is a number, not [], 'flag' is True, not False",
        )

    def test_ten_of_a_kind_are_named_and_the_rest_counted(self) -> None:
        has = {f"w{number}": () for number in range(17)}
        text = account(has, {}).text()
        self.assertIn("'w9' and 7 more", text)
        self.assertNotIn("'w10'", text)
        self.assertEqual(listed(map(str, range(10))), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9")

    def test_options_allow_what_they_name_and_no_more(self) -> None:
        found = account(
            {"ema.w": (), "emaw": (), "ema": ()}, {"w": (), "b": ()}, may=["b"], ignore=["ema"]
        )
        self.assertEqual((found.ignored, found.left_over), (["ema.w", "ema"], ["emaw"]))
        self.assertEqual((found.missing, found.filled), (["w"], []))
        found = account({}, {"w": ()}, fill=True)
        self.assertEqual((found.missing, found.filled, found.text()), ([], ["w"], ""))

    def test_what_is_doubled_is_found(self) -> None:
        self.assertEqual(repeated([0, "w", 1, "w", "v", 0, "0"]), [0, "w"])
        with self.assertRaisesRegex(RefusedError, "keys are repeated: 'w'"):
            json.loads('{"v": 1, "of": {"w": 1, "w": 1}}', object_pairs_hook=each_once)


if __name__ == "__main__":
    unittest.main()
