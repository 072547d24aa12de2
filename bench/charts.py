# SPDX-License-Identifier: Apache-2.0
"""Writes the charts of README.md from kept results and sizes to docs/images/*.svg, or compares them.

usage: charts.py [--check]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from html import escape
from math import prod
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "bench"))
sys.dont_write_bytecode = True

from gpt2 import gpt2_shapes  # noqa: E402

STEPS = "bench/results/2026-11-22-compare_torch-2core-epyc.md"
VARIANTS = {
    "libzero": "libzero",
    "unsharded_fused": "torch AdamW, fused, not sharded",
    "zero_redundancy_fused": "torch ZeroRedundancyOptimizer, fused",
    "zero_redundancy_optimizer": "torch ZeroRedundancyOptimizer",
    "fairscale_oss": "fairscale OSS",
}
WIDTH, ROW, BAR, LEFT = 760, 26, 16, 290
STYLE = """
    text { font: 13px sans-serif; fill: #1f2328 }
    .title { font-weight: bold; font-size: 14px }
    .note { font-size: 11px; fill: #59636e }
    .a { fill: #0969da } .b { fill: #54aeff } .c { fill: #b6e3ff } .other { fill: #8c959f }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .note { fill: #9198a1 } .other { fill: #6e7681 }
      .a { fill: #388bfd } .b { fill: #1f6feb } .c { fill: #0d419d }
    }"""

# A row: its label, its bars from left to right as (class, value), and the text after them.
Row = tuple[str, list[tuple[str, float]], str]


def chart(title: str, rows: list[Row], notes: list[str], legend: Sequence[tuple[str, str]] = ()) -> str:
    longest = max(sum(value for _, value in bars) for _, bars, _ in rows)
    scale = (WIDTH - LEFT - 90) / longest
    height = 40 + ROW * len(rows) + 16 * len(notes) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" role="img">',
        f"  <title>{escape(title)}</title>",
        f"  <style>{STYLE}\n  </style>",
        f'  <text class="title" x="8" y="22">{escape(title)}</text>',
    ]
    for number, (kind, words) in enumerate(legend):
        left = LEFT + 30 + 130 * number
        lines.append(f'  <rect class="{kind}" x="{left}" y="11" width="12" height="12"/>')
        lines.append(f'  <text x="{left + 18}" y="22">{escape(words)}</text>')
    top = 36
    for label, bars, behind in rows:
        lines.append(f'  <text x="{LEFT - 8}" y="{top + 13}" text-anchor="end">{escape(label)}</text>')
        left = float(LEFT)
        for kind, value in bars:
            width = value * scale
            lines.append(f'  <rect class="{kind}" x="{left:.1f}" y="{top}" width="{width:.1f}" height="{BAR}"/>')
            left += width
        lines.append(f'  <text x="{left + 6:.1f}" y="{top + 13}">{escape(behind)}</text>')
        top += ROW
    for note in notes:
        top += 16
        lines.append(f'  <text class="note" x="8" y="{top - 4}">{escape(note)}</text>')
    return "\n".join([*lines, "</svg>", ""])


def steps() -> str:
    kept = (ROOT / STEPS).read_text(encoding="utf-8")
    rows: list[Row] = []
    for variant, words in VARIANTS.items():
        found = re.search(rf"^{variant} +([\d.]+) ", kept, re.M)
        if found is None:
            sys.exit(f"{STEPS} has no {variant}")
        median_ms = float(found[1])
        rows.append((words, [("a" if variant == "libzero" else "other", median_ms)], f"{median_ms:,.0f} ms"))
    notes = [
        "Without forward and backward. GPT-2 124M, AdamW, 2 ranks on 2 cores of one host, fp32.",
        f"Medians of {STEPS}, which has its machine and its command.",
    ]
    return chart("Time to reduce gradients, update, share parameters (lower is better)", rows, notes)


def memory() -> str:
    elements = sum(prod(shape) for shape in gpt2_shapes().values())
    model_mb = 4 * elements / 1e6

    def row(label: str, copies: float, states: float) -> Row:
        bars = [("a", copies * model_mb), ("b", model_mb), ("c", 2 * states * model_mb)]
        return label, bars, f"{sum(value for _, value in bars):,.0f} MB"

    def busiest(ranks: int) -> float:
        """Return the largest part of the elements on a rank if each tensor, largest first, goes to the least loaded
        rank."""
        loads = [0] * ranks
        for size in sorted((prod(shape) for shape in gpt2_shapes().values()), reverse=True):
            loads[loads.index(min(loads))] += size
        return max(loads) / elements

    rows = [row("torch AdamW, any number of ranks", 1, 1)]
    for ranks in (2, 4, 8):
        rows.append(row(f"torch ZeroRedundancyOptimizer, busiest of {ranks}", 1, busiest(ranks)))
        rows.append(row(f"libzero, {ranks} ranks of one host", 1 / ranks, 1 / ranks))
    notes = [
        "Calculated for GPT-2 124M in fp32. In libzero's shared arenas the ranks of a host have one copy of the parameters,",
        "which is divided by their number here. zero_partition_plan and zero_stats show what your model takes.",
    ]
    legend = [("a", "parameters"), ("b", "gradients"), ("c", "state of AdamW")]
    return chart("Memory per rank (lower is better)", rows, notes, legend)


def main() -> None:
    images = ROOT / "docs/images"
    for name, text in (("step.svg", steps()), ("memory.svg", memory())):
        place = images / name
        if sys.argv[1:] != ["--check"]:
            images.mkdir(exist_ok=True)
            place.write_text(text, encoding="utf-8")
        elif not place.is_file() or place.read_text(encoding="utf-8") != text:
            sys.exit(f"{place} is not what bench/charts.py makes: run it")


main()
