# SPDX-License-Identifier: Apache-2.0
"""Compares the defects of torch's and fairscale's sharded optimizers with libzero's classes of the
same names, and with a plain torch optimizer in one process, which gives the right result.

usage: peer_defects.py [--only TEXT ...] [--side original|ours|both] [--markdown] [--told-in FILE]
       [--at-once N]

The exit status is 0 if every row of libzero is right or an error with its own message. It is 1 if a
row is neither, or differs from the table of --told-in. It is 2 if no row is wrong, but a class that
a row needs has not been built. The program needs torch and fairscale.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from pathlib import Path
from typing import Any, Optional

from peers import cases, environment  # noqa: F401  the environment, before torch is loaded
from peers.case import CASES, Case, Refusal
from peers.judge import REFUSED, RIGHT, WRONG, judge, right_text, side_text
from peers.ranks import Job, member, run_all
from peers.sides import Original, Ours, Side
from peers.table import Row, markdown, plain, untold

NOT_BUILT = "not built"
OUR_DEADLINE_S = 30.0  # exceeds all waits, so that a slow machine is not reported as a hang


def job_of(case: Case, side: Side, deadline_s: float) -> Job:
    actions = [
        member(functools.partial(case.train, side), rank, case.world, case.group_timeout_s)
        for rank in range(case.world)
    ]
    return Job(actions, deadline_s, case.lost)


def right_job(case: Case) -> Optional[Job]:
    if isinstance(case.right, Refusal):
        return None
    compute = case.right
    return Job([lambda store: compute()], OUR_DEADLINE_S, frozenset())


def missing_text(ours: Ours, case: Case) -> str:
    missing = ours.missing(case.needs)
    return f"{NOT_BUILT}: {', '.join(missing)}" if missing else ""


def rows_of(chosen: list[Case], side: str, at_once: int) -> list[Row]:
    original: Any = Original() if side != "ours" else None
    ours = Ours() if side != "original" else None
    if ours and ours.fault:
        print(f"libzero.torch: {ours.fault}", file=sys.stderr)
    rights = [right_job(case) for case in chosen]
    originals = [job_of(case, original, case.deadline_s) if original else None for case in chosen]
    own = [
        job_of(case, ours, OUR_DEADLINE_S) if ours and not missing_text(ours, case) else None
        for case in chosen
    ]
    run_all([job for job in [*originals, *own, *rights] if job is not None], at_once)
    rows = []
    for case, right, theirs, mine in zip(chosen, rights, originals, own):
        reports = right.reports if right else []
        if any(report.kind not in ("value", "absent") for report in reports):
            raise RuntimeError(
                f"{case.name}: what is right cannot be computed: {side_text(reports)}"
            )
        verdict = judge(case, reports, mine.reports) if mine else None
        gap = missing_text(ours, case) if ours else ""
        rows.append(
            Row(
                case.name,
                case.where,
                case.what,
                case.patched,
                right_text(case, reports),
                judge(case, reports, theirs.reports).text if theirs else "",
                verdict.text if verdict else gap,
                verdict.verdict if verdict else gap and NOT_BUILT,
            )
        )
    return rows


def summary(rows: list[Row], seconds: float) -> str:
    counts = {
        verdict: sum(row.verdict == verdict for row in rows)
        for verdict in (RIGHT, REFUSED, WRONG, NOT_BUILT)
    }
    tally = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    return f"{len(rows)} rows in {seconds:.0f} s; ours: {tally}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument(
        "--only", nargs="+", metavar="TEXT", help="rows whose name contains one of these"
    )
    parser.add_argument("--side", choices=("original", "ours", "both"), default="both")
    parser.add_argument("--markdown", action="store_true", help="the table of docs/comparison.md")
    parser.add_argument("--told-in", metavar="FILE", help="the table there must have these rows")
    parser.add_argument(
        "--at-once", type=int, default=1 + (os.cpu_count() or 1), help="cases that run at once"
    )
    options = parser.parse_args()
    began = time.monotonic()
    cases.load()
    chosen = [
        case
        for case in CASES
        if not options.only or any(text in case.name for text in options.only)
    ]
    rows = rows_of(chosen, options.side, options.at_once)
    print(markdown(rows) if options.markdown else plain(rows))
    print(summary(rows, time.monotonic() - began), file=sys.stderr)
    missing = untold(rows, Path(options.told_in).read_text("utf-8")) if options.told_in else []
    if missing:
        print(f"{options.told_in} has other rows for {', '.join(missing)}", file=sys.stderr)
        return 1
    if any(row.verdict == WRONG for row in rows) or not rows:
        return 1
    return 2 if any(row.verdict == NOT_BUILT for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
