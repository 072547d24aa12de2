# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of a change: step_bench of two builds in turns, and the old one against itself.

    bench/in_turns.py OLD/bench/step_bench NEW/bench/step_bench 20 --workloads small --ranks 1,2

The order of the three runs changes from round to round, so that none always comes first. For each case
it prints the medians over rounds of new/old, of old/old (the control, which shows the noise of the
machine), and of a step's time relative to the floor of its own run."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from typing import Any

Case = tuple[str, int, str]


def rows_of(program: str, arguments: list[str]) -> dict[Case, Any]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [program, *arguments, "--json", file.name], check=True, stdout=subprocess.DEVNULL
        )
        rows = json.load(file)["rows"]
    return {(row["workload"], row["ranks"], row["case"]): row for row in rows}


def main() -> None:
    old, new, rounds, *arguments = sys.argv[1:]
    seconds: dict[Case, list[tuple[float, float, float, float]]] = defaultdict(list)
    for turn in range(int(rounds)):
        runs = [("old", old), ("new", new), ("control", old)]
        runs = runs[turn % 3 :] + runs[: turn % 3]
        if turn % 2 == 1:
            runs.reverse()
        rows = {name: rows_of(program, arguments) for name, program in runs}
        for case, row in rows["old"].items():
            taken = [rows[name][case]["median_s"] for name in ("old", "new", "control")]
            seconds[case].append((taken[0], taken[1], taken[2], row["floor_s"]))
    print("workload ranks case               old ms old/floor  new/old  old/old")
    for (workload, ranks, name), all_of in seconds.items():
        middle = [
            statistics.median(values)
            for values in (
                [a * 1e3 for a, _, _, _ in all_of],
                [a / floor if floor else 0 for a, _, _, floor in all_of],
                [b / x for a, b, c, _ in all_of for x in (a, c)],
                [c / a for a, _, c, _ in all_of],
            )
        ]
        print(
            f"{workload:8} {ranks:5} {name:16} {middle[0]:8.3f} {middle[1]:9.2f}"
            f" {middle[2]:8.3f} {middle[3]:8.3f}"
        )


if __name__ == "__main__":
    main()
