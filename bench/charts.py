# SPDX-License-Identifier: Apache-2.0
"""The charts of README.md, of kept results and of sizes: writes docs/images/*.svg, or compares them.

usage: charts.py [--check]
"""

from __future__ import annotations

import re
import sys
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
WIDTH, ROW, BAR, LEFT = 720, 26, 16, 270
STYLE = """
    text { font: 13px sans-serif; fill: #1f2328 }
    .title { font-weight: bold; font-size: 14px }
    .note { font-size: 11px; fill: #59636e }
    .a { fill: #0969da } .b { fill: #54aeff } .c { fill: #b6e3ff } .other { fill: #8c959f }
    @media (prefers-color-scheme: dark) {
      text { fill: #e6edf3 } .note { fill: #9198a1 } .other { fill: #6e7681 }
      .a { fill: #388bfd } .b { fill: #1f6feb } .c { fill: #0d419d }
    }"""

# A row: its label, its bars one behind the other as (class, value), and what stands behind them.
Row = tuple[str, list[tuple[str, float]], str]


def chart(title: str, rows: list[Row], notes: list[str]) -> str:
    longest = max(sum(value for _, value in bars) for _, bars, _ in rows)
    scale = (WIDTH - LEFT - 90) / longest
    height = 40 + ROW * len(rows) + 16 * len(notes) + 8
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" role="img">',
        f"  <title>{escape(title)}</title>",
        f"  <style>{STYLE}\n  </style>",
        f'  <text class="title" x="8" y="22">{escape(title)}</text>',
    ]
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
        "From gradients on every rank to new parameters on every rank: GPT-2 124M, AdamW, 2 ranks on 2 cores, host memory.",
        f"Medians of {STEPS}, which has its machine and its command.",
    ]
    return chart("A step, in milliseconds", rows, notes)


def memory() -> str:
    elements = sum(prod(shape) for shape in gpt2_shapes().values())
    model_mb = 4 * elements / 1e6
    rows: list[Row] = []
    for ranks in (1, 2, 4, 8):
        if ranks == 1:
            rows.append(("torch.optim.AdamW, each rank", [("other", 4 * model_mb)], f"{4 * model_mb:,.0f} MB"))
        bars = [("a", model_mb / ranks), ("b", model_mb), ("c", 2 * model_mb / ranks)]
        rows.append((f"libzero, {ranks} rank{'s' * (ranks > 1)}", bars, f"{sum(value for _, value in bars):,.0f} MB"))
    notes = [
        "GPT-2 124M in fp32. From the left: parameters (one copy for all ranks of a host), gradients, state of AdamW (each",
        "rank keeps its part). By sizes; zero_stats and zero_partition_plan tell them for a model of yours.",
    ]
    return chart("What a rank holds, in megabytes", rows, notes)


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
