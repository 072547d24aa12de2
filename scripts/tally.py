# SPDX-License-Identifier: Apache-2.0
"""Counts single test cases in the output of test programs.

usage: tally.py meson TESTLOG.json | python LOG STATUS | cargo LOG STATUS     prints "passed failed skipped"

A program counts as one failure if it failed without naming a case, or if it ran no cases.
"""
import json
import re
import sys


def number(pattern: str, text: str) -> int:
    return sum(int(found) for found in re.findall(pattern, text, flags=re.M))


def at_least_one(counts: tuple[int, int, int], sound: bool) -> tuple[int, int, int]:
    passed, failed, skipped = counts
    if (not sound and failed == 0) or passed + failed + skipped == 0:
        failed += 1
    return passed, failed, skipped


def gtest(text: str) -> tuple[int, int, int]:
    return (len(re.findall(r"^\[       OK \]", text, re.M)),
            number(r"^\[  FAILED  \] (\d+) tests?, listed below", text),
            number(r"^\[  SKIPPED \] (\d+) tests?, listed below", text))


def tap(text: str) -> tuple[int, int, int]:
    return len(re.findall(r"^ok\b", text, re.M)), len(re.findall(r"^not ok\b", text, re.M)), 0


def meson(path: str) -> tuple[int, int, int]:
    total = [0, 0, 0]
    for line in open(path, encoding="utf-8"):
        test = json.loads(line)
        text, result = test.get("stdout") or "", test["result"]
        sound = result in ("OK", "SKIP", "EXPECTEDFAIL")
        if "[==========]" in text:
            counts = gtest(text)
        elif re.search(r"^(not )?ok \d+ - ", text, re.M):
            counts = tap(text)
        else:
            counts = (int(result == "OK"), int(not sound), int(result == "SKIP"))
        total = [a + b for a, b in zip(total, at_least_one(counts, sound))]
    return tuple(total)


def python(text: str) -> tuple[int, int, int]:
    ran = number(r"^Ran (\d+) tests? in", text)
    last = (re.findall(r"^(?:OK|FAILED|NO TESTS RAN).*$", text, re.M) or [""])[-1]
    failed = number(r"(?:failures|errors|unexpected successes)=(\d+)", last)
    skipped = number(r"skipped=(\d+)", last)
    return max(ran - failed - skipped, 0), failed, skipped


def cargo(text: str) -> tuple[int, int, int]:
    lines = "\n".join(re.findall(r"^test result: .*$", text, re.M))
    return number(r"(\d+) passed", lines), number(r"(\d+) failed", lines), number(r"(\d+) ignored", lines)


def main(kind: str, path: str, status: str = "0") -> None:
    if kind == "meson":
        counts = at_least_one(meson(path), True)
    else:
        text = open(path, encoding="utf-8", errors="replace").read()
        counts = at_least_one({"python": python, "cargo": cargo}[kind](text), status == "0")
    print(*counts)


if __name__ == "__main__":
    main(*sys.argv[1:])
