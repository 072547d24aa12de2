# SPDX-License-Identifier: Apache-2.0
"""Checks that every line of src/ that can wait has a comment that says what ends the wait.

usage: check_waits.py ROOT

The comment begins with "Wait:" and is on the line itself or on the lines directly above it. It says which deadline
bounds the wait, or why none is needed. If a wait is one iteration of a loop, the comment describes the loop. Locks
that are held for a few instructions are not checked.
"""
import pathlib
import re
import sys

WAITS = re.compile(
    r"\.wait(_for|_until)?\(lock"              # condition variables with a lock of this name
    r"|\bunique_lock(<.*>)? (?!lock\b)\w+[({]"  # with a lock of another name
    r"|\bpthread_join\(|\bthread_?\.join\(\)"
    r"|\bos\(\)\.(poll|flock|connect|accept4|getaddrinfo|recvmsg|sendmsg|getrandom)\("
    r"|\bFUTEX_WAIT(_PRIVATE)?\b|\bepoll_\w*wait\(|\bwaitpid\("
    r"|\bsleep_ms\(|\bnanosleep\(|\busleep\(|\bsleep_(for|until)\("
    r"|\b(pause_cpu|relax)\(\);"               # spinning
    r"|\bcall_once\("
    r"|\bwhile\b.*\bEINTR\b"                  # repeated after a signal
    r"|\bcu(da)?(Stream|Event|Device|Ctx)Synchronize\b")
# Calls that do not wait because of their arguments, and a declaration.
NONE = re.compile(r"\bpoll\(.*, 0\)|\bMSG_DONTWAIT\b|\bLOCK_NB\b|^void sleep_ms\(int milliseconds\);")
SAYS = re.compile(r"//.*\bWait: \S.{4,}")
SAMPLE = ["done_.wait(lock, [this] { return !running_; });", "while (got < 0 && errno == EINTR) {",
          "} while (errno == EINTR);", "pthread_join(thread_, nullptr);", "os().poll(nullptr, 0, 1);",
          "std::unique_lock guard(mutex_);"]


def waits(line: str) -> bool:
    code = line.split("//")[0].rstrip()
    return WAITS.search(code) is not None and NONE.search(code) is None


def is_said(lines: list[str], at: int) -> bool:
    if SAYS.search(lines[at]):
        return True
    while at > 0 and lines[at - 1].lstrip().startswith("//"):
        at -= 1
        if SAYS.search(lines[at]):
            return True
    return False


def silent(text: str) -> list[int]:
    lines = text.splitlines()
    return [at + 1 for at, line in enumerate(lines) if waits(line) and not is_said(lines, at)]


def main() -> int:
    for line in SAMPLE:  # tests the check itself
        assert silent(line) == [1] and silent("// Wait: until the deadline.\n" + line) == [], line
    root = pathlib.Path(sys.argv[1])
    files = [path for path in sorted((root / "src").rglob("*")) if path.suffix in (".cpp", ".h", ".cu")]
    found = [f"{path.relative_to(root)}:{at}" for path in files
             for at in silent(path.read_text(encoding="utf-8"))]
    for place in found:
        print(f"{place}: waits, and no comment \"Wait: ...\" right above says by what that ends")
    said = sum(len(SAYS.findall(path.read_text(encoding="utf-8"))) for path in files)
    print(f"{said} waits tell by what they end, {len(found)} do not")
    return 1 if found or said == 0 else 0


sys.exit(main())
