# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import tempfile
import unittest

import libzero
from public import faults, run_examples
from support import needs_numpy


class DocstringTest(unittest.TestCase):
    def test_all_that_is_public_is_described_and_every_method_has_an_example(self) -> None:
        self.assertEqual(list(faults(libzero)), [])

    @needs_numpy
    def test_examples_say_what_happens(self) -> None:
        import numpy

        names = {name: getattr(libzero, name) for name in libzero.__all__}
        self.addCleanup(os.chdir, os.getcwd())
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            said = run_examples(libzero, {**names, "np": numpy, "libzero": libzero})
        self.assertEqual("".join(said).splitlines(), [])


if __name__ == "__main__":
    unittest.main()
