# SPDX-License-Identifier: Apache-2.0
"""Summarizes the reports of a side's ranks in one line, and decides whether they are right."""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Union

from .case import Case, Refusal
from .ranks import Report

RIGHT, REFUSED, WRONG = "right", "refused", "wrong"
SENTENCE_WORDS = 4  # a shorter text is not a sentence
NO_REFUSAL = {"AssertionError", "NotImplementedError", "ModuleNotFoundError"}
NOTHING = 1e-6
GLOO_SOURCE = r"\[[^\]]*/[^\]]*\.cc:\d+\] *"  # the source location at the start of its messages
LENGTH, OWN_LENGTH = 30, 60  # of a message of another library, and of libzero


@dataclass(frozen=True)
class Verdict:
    text: str
    verdict: str


def number_text(number: float) -> str:
    return "0" if abs(number) < NOTHING else f"{number:.5g}"


def numbers_text(numbers: Sequence[float]) -> str:
    if len(numbers) > 2 and len(set(map(number_text, numbers))) == 1:
        return f"{number_text(numbers[0])} ({len(numbers)}x)"
    return ", ".join(map(number_text, numbers))


def report_text(report: Report) -> str:
    if report.kind == "value":
        return numbers_text(report.numbers)
    if report.kind == "hang":
        return "hangs"
    sentence = re.sub(GLOO_SOURCE, "", report.sentence)
    sentence = re.sub(r"\[(127\.0\.0\.1|[0-9a-f:.]+)\]:\d+", "[its address]", sentence)
    length = OWN_LENGTH if is_refusal(report) else LENGTH
    sentence = re.sub(r"process \d+", "process ...", sentence)
    sentence = sentence if len(sentence) <= length else sentence[:length].rsplit(" ", 1)[0] + " ..."
    quoted = "`" + sentence.replace("`", "'") + "`"
    if is_refusal(report):
        return f"refuses: {quoted}"
    verb = "aborts" if report.kind == "abort" else "raises"
    return f"{verb} {report.error}: {quoted}" if sentence else f"{verb} {report.error}"


def side_text(reports: Sequence[Report]) -> str:
    """Return the text once if all ranks report the same, and otherwise each text with its ranks.
    The first rank's error represents all errors."""
    texts: dict[str, list[int]] = {}
    refusal = ""
    for rank, report in enumerate(reports):
        if report.kind == "absent":
            continue
        text = report_text(report)
        if is_refusal(report):
            text = refusal = refusal or text
        texts.setdefault(text, []).append(rank)
    if len(texts) == 1:
        return next(iter(texts))
    return "; ".join(
        f"{'rank' if len(ranks) == 1 else 'ranks'} {', '.join(map(str, ranks))}: {text}"
        for text, ranks in texts.items()
    )


def same(number: float, right: float, case: Case) -> bool:
    if math.isnan(right) or math.isinf(right):
        return number == right or (math.isnan(number) and math.isnan(right))
    return abs(number - right) <= case.tolerance or (case.at_most and number < right)


# The error of ranks that waited for a rank whose program has ended.
LEFT = "has freed its comm"


@functools.cache
def own_folder() -> str:
    found = importlib.util.find_spec("libzero")
    return os.path.dirname(found.origin) if found is not None and found.origin else os.devnull


def is_refusal(report: Report) -> bool:
    """Return whether the report has libzero's own error: a raise statement in its files that is
    neither an assertion nor a report of a missing feature. Exceptions that another library raises
    in a call of libzero do not count."""
    return (
        report.kind == "error"
        and report.error not in NO_REFUSAL
        and LEFT not in report.sentence
        and report.raised_in.startswith(own_folder() + os.sep)
        and len(report.sentence.split()) >= SENTENCE_WORDS
    )


def verdict_of_rank(report: Report, right: Union[Report, Refusal], case: Case) -> str:
    if is_refusal(report):
        names = right.names if isinstance(right, Refusal) else ""
        return REFUSED if re.search(names, report.sentence) else WRONG
    if (
        isinstance(right, Refusal)
        or report.kind != right.kind
        or len(report.numbers) != len(right.numbers)
    ):
        return WRONG
    return (
        RIGHT
        if all(same(number, other, case) for number, other in zip(report.numbers, right.numbers))
        else WRONG
    )


def right_of_rank(right: Sequence[Report], rank: int) -> Report:
    """Return the right result of a rank. A single report applies to all ranks."""
    return right[0] if len(right) == 1 else right[rank] if rank < len(right) else Report("absent")


def judge(case: Case, right: Sequence[Report], reports: Sequence[Report]) -> Verdict:
    verdicts = set()
    for rank, report in enumerate(reports):
        if report.kind == "absent":
            continue
        wanted = case.right if isinstance(case.right, Refusal) else right_of_rank(right, rank)
        verdicts.add(verdict_of_rank(report, wanted, case))
    text = side_text(reports)
    if not verdicts or WRONG in verdicts:
        return Verdict(text or "no rank has anything to say", WRONG)
    return Verdict(text, REFUSED if REFUSED in verdicts else RIGHT)


def right_text(case: Case, right: Sequence[Report]) -> str:
    if isinstance(case.right, Refusal):
        return case.right.text
    text = side_text(right)
    return f"at most {text}" if case.at_most else text
