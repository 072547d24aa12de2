# SPDX-License-Identifier: Apache-2.0
"""Runs the suites of comms and of equivalence over each installed MPI, with three processes on this host. The comm
uses MPI here because the tests ask for it. tests/cluster uses several hosts."""

from __future__ import annotations

import sys
import unittest

import mpis

sys.path.insert(0, str(mpis.ROOT / "tests" / "cluster"))
import cluster  # noqa: E402

RANKS = 3
ELSEWHERE = not mpis.NIGHTLY and not cluster.why_not()


class OneHost:
    name = ""

    def setUp(self):
        self.mpi = mpis.find(self.name)
        if self.mpi is None:
            self.skipTest(mpis.why_not(self.name))

    def passes(self, program, **variables):
        status, said = self.mpi.run(RANKS, program, **variables)
        self.assertEqual((mpis.failure(RANKS, said), status), ("", 0), said)

    @unittest.skipIf(ELSEWHERE, "by day tests/cluster runs these")
    def test_ranks_keep_the_promises_of_comms_and_equal_one_process(self):
        for suite, program, variables in mpis.suites(36, mpis.NAMES.index(self.name)):
            with self.subTest(suite):
                self.passes(program, **variables)

    def test_communicators_of_a_program_become_comms(self):
        self.passes(mpis.program("mpi", "-*funneled*"))

    def test_funneled_is_heeded(self):
        self.passes(mpis.program("mpi", "*funneled*"), ZERO_TEST_MPI_LEVEL="1")


globals().update(mpis.of_each(OneHost))


if __name__ == "__main__":
    unittest.main()
