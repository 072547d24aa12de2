#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the English that users read: each sentence against prose_rules.py and prose_foreign.py, sentences over 35
words, libzero's own words on pages that do not explain them or link to an explanation, and pages that deny a call that
exists.

usage: check_prose.py SOURCE_ROOT [FILE...]   checks all prose, or these files of it
       check_prose.py --each TEXT             shows which lines of TEXT, one sentence per line, have a finding
       check_prose.py --self-test
"""
import pathlib
import re
import sys

import prose
from prose_foreign import FOREIGN
from prose_rules import DENIALS, IDIOMS, OWN_WORDS, OwnWord

RULES = [*IDIOMS, *FOREIGN]
LONGEST = 35  # words in a sentence
LEAST_WORDS = 30000
# The largest number of findings per 10,000 words is 10 in all files together, and 20 in one file. Pages of LevelDB,
# NCCL, UCX, UCC, libuv, zstd and mpi4py have 6. A short file may have two findings.
IN_MODELS = 10
Finding = tuple[str, int, str, str]  # file, line, rule, words


def of_rules(sentence: prose.Sentence) -> list[Finding]:
    found = []
    for rule in RULES:
        match = rule.found_in(sentence)
        if match:
            found.append((sentence.file, sentence.line, rule.name, around(sentence.words, *match.span())))
    return found


def around(words: str, start: int, end: int) -> str:
    return ("..." if start > 30 else "") + words[max(start - 30, 0):end + 30] + ("..." if end + 30 < len(words) else "")


def of_length(sentence: prose.Sentence) -> list[Finding]:
    count = sentence.count()
    if count <= LONGEST:
        return []
    return [(sentence.file, sentence.line, f"{count} words", sentence.words[:60] + "...")]


def names_of_calls(root: pathlib.Path) -> set[str]:
    """Return the functions, options and constants of zero.h, and the public names of the Python and Rust bindings."""
    header = (root / "include/zero.h").read_text(encoding="utf-8")
    names = set(re.findall(r"\b(?:zero_|ZERO_)\w+", header))
    names |= set(re.findall(r"^    [\w ]+[ *](\w+_\w+);", header, re.M))
    for path in (root / "bindings/python/libzero").rglob("*.py"):
        names |= set(re.findall(r"^ *(?:def|class) ([A-Za-z]\w+)", path.read_text(encoding="utf-8"), re.M))
    for path in (root / "bindings/rust").rglob("src/*.rs"):
        names |= set(re.findall(r"\bpub (?:fn|struct|enum) (\w+)", path.read_text(encoding="utf-8")))
    return names


def of_denials(sentence: prose.Sentence, names: set[str]) -> list[Finding]:
    """Find a sentence that says "not yet" or "not there", and names a call that exists."""
    match = re.search(DENIALS, sentence.words)
    if not match:
        return []
    called = [code for code in sentence.codes if "_ERR" not in code
              and re.split(r"\W+", re.sub(r"\(.*", "", code))[-1] in names]
    if not called:
        return []
    return [(sentence.file, sentence.line, "denies what exists", f"{called[0]}: {match[0]}")]


def explains(text: str, word: OwnWord) -> bool:
    """Return whether a page explains a word: "a W is", "W (", "called W", ", a W,", or W in bold or italics."""
    noun = rf"[`*_]*(?:{word.pattern})[`*_]*"
    shapes = [rf"(?i)\b(?:an?|the|each|every|its) {noun} (?:is|are|means|holds|consists|\()",
              rf"(?im)^[-* |]*{noun}(?: \||:| (?:is|are|means)\b)", rf"(?i){noun} \(", rf"\|\s*{noun}\s*\|",
              rf"[*_]{noun}[*_]", rf"\({noun}\)",
              rf"(?i)\b(?:called|named|a libzero|known as|or|as) (?:an? |the )?{noun}",
              rf"(?i), (?:an? |the ){noun},", rf"(?i){noun}, (?:an?|the|that|which)\b"]
    return any(re.search(shape, text) for shape in shapes)


def is_linked(page: pathlib.Path, text: str, word: OwnWord) -> bool:
    """Return whether a link of the page has the word in its text or anchor, and leads to a page that explains it."""
    for shown, target, anchor in re.findall(r"\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)", text):
        if re.search(rf"(?i)\b(?:{word.pattern})\b", shown) or word.name in anchor:
            file = page.parent / target if target else page
            if file.is_file() and explains(" ".join(file.read_text(encoding="utf-8").split()), word):
                return True
    return False


def of_own_words(root: pathlib.Path, name: str, sentences: list[prose.Sentence]) -> list[Finding]:
    """Find libzero's own words that a page neither explains nor links to an explanation."""
    page = root / name
    text = " ".join(page.read_text(encoding="utf-8").split())
    found = []
    for word in OWN_WORDS:
        uses = [sentence for sentence in sentences if re.search(rf"(?i)\b(?:{word.pattern})\b", sentence.words)]
        if uses and not explains(text, word) and not is_linked(page, text, word):
            found.append((name, uses[0].line, "unexplained", f"{word.name} ({word.meaning})"))
    return found


def findings_of(root: pathlib.Path, corpus: dict[str, list[prose.Sentence]]) -> tuple[list[Finding], list[Finding]]:
    """Return the findings of the rules, which have limits, and all other findings, which are never allowed."""
    names = names_of_calls(root)
    idioms: list[Finding] = []
    none: list[Finding] = []
    for name, sentences in corpus.items():
        for sentence in sentences:
            idioms += of_rules(sentence)
            none += of_length(sentence) + of_denials(sentence, names)
        if name.endswith(".md") and name != "CHANGELOG.md":
            none += of_own_words(root, name, sentences)
    return idioms, none


def count(sentences: list[prose.Sentence]) -> int:
    return sum(sentence.count() for sentence in sentences)


def faults_of_limits(corpus: dict[str, list[prose.Sentence]], idioms: list[Finding], whole: bool) -> list[str]:
    """Return the limits that are exceeded: for a rule in all files, for all rules in all files, and for all rules in
    one file."""
    words = sum(count(sentences) for sentences in corpus.values())
    faults = []
    for rule in RULES if whole else []:
        found = sum(finding[2] == rule.name for finding in idioms)
        if found > rule.limit * words / 10000:
            faults.append(f"{rule.name}: {found}, at most {rule.limit} per 10,000 words: write {rule.advice}")
    if whole and len(idioms) > IN_MODELS * words / 10000:
        faults.append(f"all rules: {len(idioms)} in {words} words, at most {IN_MODELS} per 10,000")
    for name, sentences in corpus.items():
        found = sum(finding[0] == name for finding in idioms)
        if found > max(2, 2 * IN_MODELS * count(sentences) / 10000):
            faults.append(f"{name}: {found} in {count(sentences)} words, at most {2 * IN_MODELS} per 10,000, or 2")
    return faults


def check(root: pathlib.Path, wanted: list[str]) -> bool:
    corpus = prose.read(root)
    if not wanted and sum(count(sentences) for sentences in corpus.values()) < LEAST_WORDS:
        sys.exit("too little prose: were the pages read?")
    corpus = {name: corpus[name] for name in corpus if not wanted or name in wanted}
    idioms, none = findings_of(root, corpus)
    for file, line, rule, words in sorted(idioms + none):
        print(f"{file}:{line}: {rule}: {words}")
    faults = faults_of_limits(corpus, idioms, not wanted)
    print("\n".join(f"over the limit: {fault}" for fault in faults))
    total = sum(count(sentences) for sentences in corpus.values())
    print(f"{len(corpus)} files, {total} words, {len(idioms) + len(none)} findings")
    return not faults and not none


def sentences_in(text: str) -> list[prose.Sentence]:
    return [sentence for block in prose.blocks_of([(1, text)]) for sentence in prose.sentences_of("text", block)]


def each(path: str) -> None:
    lines = [line.strip() for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]
    caught = 0
    for line in lines:
        found = [finding for sentence in sentences_in(line) for finding in of_rules(sentence) + of_length(sentence)]
        caught += bool(found)
        print("found  " if found else "nothing", line[:90], sorted({finding[2] for finding in found}))
    print(f"{len(lines)} sentences, {caught} with a finding")


GOOD = ["`zero_step` returns `ZERO_SKIPPED` if any gradient is not finite.",
        "Each rank updates its shard and then sends the new parameters to the other ranks.",
        "If a rank exits before the barrier, the call fails with `ZERO_ERR_PEER_DEAD` and names the rank.",
        "The library copies the array, so you can free it as soon as the call returns."]
BAD = {"behind": "The log is closed behind the last write.", "who": "The rank who holds the lock writes the file.",
       "begins with a relative clause": "What this rank has not sent is dropped.",
       "a X as rate": "The table takes 8 bytes a parameter.", "agreement": "The number of thread is fixed.",
       "verb form": "The call can blocked.", "pattern of verb": "It waits the end.", "preposition": "It depends from n.",
       "article": "The lock is held by user.", "order of words": "It supports also RDMA.",
       "linked clauses": "Although it fails, but it returns.", "please": "If it fails, please set the option.",
       "no subject": "It waits until is empty.", "no, not": "If the key not exists, it fails.",
       "two verbs": "It is must be set.", "clause after a preposition": "It waits during you read.",
       "relative clause": "Pass a file which size is 0.", "place of a word": "It runs already.",
       "false friend": "Any eventual errors are logged.", "Asian English": "Most of applications use it."}


def self_test() -> bool:
    clean = all(not of_rules(sentence) + of_length(sentence) for text in GOOD for sentence in sentences_in(text))
    found = all(rule in [finding[2] for sentence in sentences_in(text) for finding in of_rules(sentence)]
                for rule, text in BAD.items())
    long = of_length(sentences_in("It reads " + "one more page and " * 12 + "ends.")[0])
    denied = of_denials(sentences_in("There is no `zero_step` yet.")[0], {"zero_step"})
    fenced = prose.blocks_of(list(enumerate(["```", "behind whom", "```"], 1)))
    print(f"self-test: {clean=} {found=} {bool(long)=} {bool(denied)=} {fenced=}")
    return clean and found and bool(long) and bool(denied) and not fenced


if __name__ == "__main__":
    if sys.argv[1] == "--each":
        each(sys.argv[2])
    elif sys.argv[1] == "--self-test":
        sys.exit(not self_test())
    else:
        sys.exit(not (self_test() and check(pathlib.Path(sys.argv[1]), sys.argv[2:])))
