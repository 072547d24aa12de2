# SPDX-License-Identifier: Apache-2.0
"""Formats rows as text for a terminal, and as the table of docs/comparison.md."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

HEADINGS = ("where", "case", "right", "original", "ours")


@dataclass(frozen=True)
class Row:
    name: str
    where: str
    what: str
    patched: str
    right: str
    original: str
    ours: str
    verdict: str  # the verdict on libzero

    def cells(self) -> tuple[str, ...]:
        what = f"{self.what} ({self.patched})" if self.patched else self.what
        sides = ("right" if text == self.right else text for text in (self.original, self.ours))
        return self.where, what, self.right, *sides


def markdown(rows: Sequence[Row]) -> str:
    """Return the table without the columns of a side that was not run. Adjacent rows that differ
    only in `where` are merged, and a repeated `where` is written once."""
    merged = [
        ("; ".join(row.where for row in same), *cells)
        for cells, same in itertools.groupby(rows, lambda row: row.cells()[1:])
    ]
    wheres = [where for where, *_ in merged]
    merged = [
        ("" if where == before else where, *cells)
        for before, (where, *cells) in zip(["", *wheres], merged)
    ]
    columns = [column for column in zip(HEADINGS, *merged) if any(column[1:])]
    heading, *lines = (
        "|" + " |".join(cell.replace("|", "\\|") for cell in line).lstrip() + "|"
        for line in zip(*columns)
    )
    return "\n".join([heading, "| " + "---|" * len(columns), *lines])


def untold(rows: Sequence[Row], text: str) -> list[str]:
    """Return the rows that differ from the table in `text`. The column of the original is not
    compared, because it may or may not hang."""
    told = set()
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip()[1:-1])]
        if len(cells) == len(HEADINGS):
            told.add((cells[1], cells[2], cells[4]))
    return [
        row.name
        for row in rows
        if tuple(cell.replace("|", "\\|") for cell in row.cells()[1:3] + row.cells()[4:]) not in told
    ]


def plain(rows: Sequence[Row]) -> str:
    blocks = []
    for row in rows:
        where, what, *columns = row.cells()
        lines = [f"{row.name}: {where}: {what}"]
        for heading, cell in zip(HEADINGS[2:], columns):
            lines += textwrap.wrap(
                cell or "not run",
                width=110,
                initial_indent=f"  {heading:9}",
                subsequent_indent=" " * 11,
                break_long_words=False,
            )
        if row.verdict:
            lines.append(f"  -> {row.verdict}")
        blocks.append("\n".join(lines))
    return "\n".join(blocks)
