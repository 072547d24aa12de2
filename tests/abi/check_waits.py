# SPDX-License-Identifier: Apache-2.0
"""No call waits without a deadline: every line of src/ that can wait says by what its wait ends.

usage: check_waits.py ROOT

The words stand in a comment that begins with "Wait:", on the line itself or in the lines right above
it: which deadline bounds the wait, or why it needs none. Where a wait is one slice of a loop, they
tell of the loop. A lock that is held for a few instructions is not looked for.
"""
import pathlib
import re
import sys

WAITS = re.compile(
    r"\.wait(_for|_until)?\(lock"              # condition variables, by a lock that is called so
    r"|\bunique_lock(<.*>)? (?!lock\b)\w+[({]"  # by another one
    r"|\bpthread_join\(|\bthread_?\.join\(\)"
    r"|\bos\(\)\.(poll|flock|connect|accept4|getaddrinfo|recvmsg|sendmsg|getrandom)\("
    r"|\bFUTEX_WAIT(_PRIVATE)?\b|\bepoll_\w*wait\(|\bwaitpid\("
    r"|\bsleep_ms\(|\bnanosleep\(|\busleep\(|\bsleep_(for|until)\("
    r"|\b(pause_cpu|relax)\(\);"               # spinning
    r"|\bcall_once\("
    r"|\bwhile\b.*\bEINTR\b"                  # again, as a signal interrupted it
    r"|\bcu(da)?(Stream|Event|Device|Ctx)Synchronize\b")
# Calls that say themselves that they do not wait; a declaration.
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
    for line in SAMPLE:  # the check itself
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
