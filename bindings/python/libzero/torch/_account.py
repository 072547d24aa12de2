# SPDX-License-Identifier: Apache-2.0
"""Compares a file or a dictionary with the result of a conversion, and reports every entry that is
dropped or filled in. It works on names and kinds of entries, and does not know any file format."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._streams import RefusedError

MOST = 10  # the number of names of each kind that a sentence lists
NUMBER = "a number"


@dataclass
class Account:
    """The differences. `left_over` and `missing` contain names. `others` contains sentences such as
    "'w' has shape [3], not [4]". `ignored` and `filled` contain names that an option accounts for."""

    left_over: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    filled: list[str] = field(default_factory=list)

    def add(self, other: Account) -> None:
        for name, names in vars(other).items():
            getattr(self, name).extend(names)

    def text(self, *, ignore: str = "", fill: str = "") -> str:
        """Return the reason why the result would differ, or "" if everything is accounted for.
        `ignore` and `fill` describe the options that drop left-over names and fill in missing ones,
        for example "--fill starts them at 0"."""
        parts = [
            _part("it has", listed(map(repr, self.left_over)), "which nothing here takes", ignore),
            _part("it lacks", listed(map(repr, self.missing)), "", fill),
            _part("", listed(self.others), "", ""),
        ]
        return "; ".join(part for part in parts if part)


def _part(before: str, names: str, after: str, way: str) -> str:
    if not names:
        return ""
    told = " ".join(word for word in (before, names) if word)
    return told + (f", {after}" if after else "") + (f" ({way})" if way else "")


def account(
    has: Mapping[str, Any],
    holds: Mapping[str, Any],
    *,
    may: Collection[str] = (),
    ignore: Sequence[str] = (),
    fill: bool = False,
) -> Account:
    """Compare the entries that a source `has` with the entries that the result `holds`. Entries map
    the names of tensors and numbers to their kinds. A kind is the shape of a tensor, NUMBER for a
    number, or the value of a flag. `may` contains names in `holds` that the source does not need to
    have. `ignore` contains patterns of names that may be left over."""
    out = Account()
    for name, kind in has.items():
        if name in holds:
            if kind != holds[name]:
                out.others.append(f"{name!r} {_is(kind)}, not {_shown(holds[name])}")
        elif matches(name, ignore):
            out.ignored.append(name)
        else:
            out.left_over.append(name)
    for name in holds:
        if name not in has and name not in may:
            (out.filled if fill else out.missing).append(name)
    return out


class Patterns(list[str]):
    """The patterns that an option gives, and the patterns that have matched a name."""

    def __init__(self, option: str, words: Iterable[str]) -> None:
        super().__init__(words)
        self._option = option
        self._used: set[str] = set()

    def use(self, patterns: Iterable[str]) -> None:
        self._used.update(patterns)

    def text(self) -> str:
        """Return a sentence about the patterns that matched no name, or "" if every pattern
        matched."""
        vain = [pattern for pattern in self if pattern not in self._used]
        return f"{self._option} {listed(map(repr, vain))}: it has nothing of that name" if vain else ""


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a pattern equals the name or the name of an enclosing part. For example, "ema"
    also matches "ema.w"."""
    found = [
        pattern
        for pattern in patterns
        if fnmatch.fnmatchcase(name, pattern) or fnmatch.fnmatchcase(name, f"{pattern}.*")
    ]
    if isinstance(patterns, Patterns):
        patterns.use(found)
    return bool(found)


def repeated(names: Iterable[Hashable]) -> list[Any]:
    """Return the values that occur more than once, without repetitions."""
    return [name for name, count in Counter(names).items() if count > 1]


def each_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """An object_pairs_hook for json that refuses a repeated key."""
    twice = repeated(name for name, _ in pairs)
    if twice:
        raise RefusedError(f"keys are repeated: {listed(map(repr, twice))}")
    return dict(pairs)


def listed(words: Iterable[str]) -> str:
    """Return the first ten words, and the number of remaining words."""
    all_words = list(words)
    rest = len(all_words) - MOST
    return ", ".join(all_words[:MOST]) + (f" and {rest} more" if rest > 0 else "")


def _is(kind: Any) -> str:
    return f"has shape {_shown(kind)}" if isinstance(kind, tuple) else f"is {_shown(kind)}"


def _shown(kind: Any) -> str:
    if isinstance(kind, tuple):
        return str(list(kind))
    return kind if kind == NUMBER else repr(kind)
