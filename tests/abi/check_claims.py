# SPDX-License-Identifier: Apache-2.0
"""Checks the claims of comparison.md, security.md and reliability.md. Each row under a heading "test" must name a
test or say why it has none, and every file, test and function that is named must exist. Also checks that errors.md
lists every status, and that memory-order.md lists every file of src that uses atomics.

usage: check_claims.py SOURCE_ROOT
"""
import pathlib
import re
import sys

NO_TEST = {"**not yet**", "adapter", "no need", "no test"}
PAGES = {"docs/comparison.md": 100, "docs/security.md": 20, "docs/reliability.md": 20}  # the least rows with a test


def pattern_of(test: str) -> str:
    """Return a pattern for the definition of a test: Suite.name in C++, test_name in Python, or a phase of a C
    program."""
    if "." in test:
        suite, name = test.split(".", 1)
        return rf"^TEST(_F|_P)?\({suite}, {name}\)"
    return rf"^ +def {test}\(" if test.startswith("test_") else rf"^static void {test}\(void\)"


def faults_of_link(page: pathlib.Path, text: str, target: str) -> list[str]:
    file = (page.parent / target).resolve()
    if not file.is_file():
        return [f"{target} does not exist"]
    if "/tests" not in target:
        return []
    if re.search(pattern_of(text), file.read_text(encoding="utf-8"), flags=re.M):
        return []
    return [f"{target} has no test {text}"]


def faults_of_row(cells: list[str], columns: int) -> list[str]:
    faults = []
    if len(cells) != columns:
        faults.append(f"{len(cells)} cells under {columns} headings")
    for part in cells[-1].split(", "):
        if part not in NO_TEST and not re.fullmatch(r"\[[^\]]+\]\([^)]+/tests[^)]+\)", part):
            faults.append(f"'{part}' is neither a linked test nor one of {sorted(NO_TEST)}")
    return faults


def is_false(root: pathlib.Path, page: pathlib.Path, least: int) -> bool:
    header = set(re.findall(r"\w+", (root / "include/zero.h").read_text(encoding="utf-8")))
    faults, rows, links = [], 0, 0
    heading: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        found = []
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        heading = (heading or cells) if cells else []
        for text, target in re.findall(r"\[([^\]]+)\]\(([^)#]+)[^)]*\)", line):
            links += 1
            found += faults_of_link(page, text, target)
        ours = cells[-1] if heading[-1:] == ["zero.h"] else re.sub(r"\]\([^)]+\)", "]", line)
        for name in re.findall(r"\bzero_\w+|\bZERO_\w+", ours):
            if name not in header and page.name == "comparison.md":
                found.append(f"{name} is not in zero.h")
        if heading[-1:] == ["test"] and cells != heading and not line.startswith("| ---"):
            rows += 1
            found += faults_of_row(cells, len(heading))
        faults += [f"{page.name}:{number}: {fault}" for fault in found]
    print("\n".join(faults + [f"{page.name}: {rows} rows, {links} links, {len(faults)} faults"]))
    return bool(faults) or rows < least or links < rows // 2


def is_complete(root: pathlib.Path, name: str, words: set[str], least: int) -> bool:
    """Return whether a page has each of the words as code."""
    page = set(re.findall(r"`([^`\n]+)`", (root / name).read_text(encoding="utf-8")))
    print("\n".join([f"{name} lacks `{word}`" for word in sorted(words - page)] + [f"{name}: {len(words)} words"]))
    return words <= page and len(words) >= least


def statuses(root: pathlib.Path) -> set[str]:
    return set(re.findall(r"\bZERO_ERR_(\w+) = ", (root / "include/zero.h").read_text(encoding="utf-8")))


def files_with_atomics(root: pathlib.Path) -> set[str]:
    return {str(path.relative_to(root / "src")) for path in (root / "src").rglob("*.*")
            if re.search(r"\bstd::(atomic|memory_order)|\b__atomic_", path.read_text(encoding="utf-8"))}


def main(root: pathlib.Path) -> int:
    complete = [is_complete(root, "docs/errors.md", statuses(root), 20),
                is_complete(root, "docs/memory-order.md", files_with_atomics(root), 30)]
    return any([is_false(root, root / page, least) for page, least in PAGES.items()]) or not all(complete)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
