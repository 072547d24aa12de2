# SPDX-License-Identifier: Apache-2.0
"""Checks that the subject of every new commit is one imperative line of at most 72 characters.

usage: check_commits.py ROOT

Commits up to FIRST are exempt. The check is skipped (77) without the history: in an archive, a shallow clone, or
without git.
"""
import re
import subprocess
import sys

FIRST = "07c9f55d3fd1"
LONGEST = 72
# The pattern accepts imperatives such as Bring, Need and Pass. It rejects "adds", "added", "adding", and a noun with
# its article.
IMPERATIVE = re.compile(r"(?!(A|An|The|This|It|No) )(?!\w+[^s\W]s )(?!\w+[^e\W]ed )(?!\w{3,}ing )[A-Z][a-z]+(-\w+)? \S(.*[^.])?")
ALLOWED = re.compile(r"Embed |Revert \"|Bring |String ")


def refusal(subject: str) -> str:
    """Return what is wrong with a subject, or ""."""
    if len(subject) > LONGEST:
        return f"has {len(subject)} characters, at most {LONGEST} are allowed"
    if not ALLOWED.match(subject) and not IMPERATIVE.fullmatch(subject):
        return "is not imperative: write \"Add x\", without a full stop"
    return ""


GOOD = ("Add x", "Need a name", "Bring it back", "Pass the name on", "Re-read the file", "Embed the headers")
BAD = ("Adds x", "Added x", "Adding x", "add x", "Add x.", "A file is added", "docs/tools.md says x", "Add", "Add " + 70 * "x")


def main() -> int:
    for subject in (*GOOD, *BAD):  # tests the check itself
        assert bool(refusal(subject)) == (subject in BAD), subject
    git = ["git", "-C", sys.argv[1]]
    try:
        known = subprocess.run([*git, "merge-base", "--is-ancestor", FIRST, "HEAD"], capture_output=True, check=False)
    except FileNotFoundError:
        return 77
    if known.returncode != 0:
        return 77
    log = subprocess.run([*git, "log", "--no-merges", "--format=%h %s", f"{FIRST}..HEAD"], capture_output=True, text=True,
                         check=True).stdout.splitlines()
    wrong = 0
    for line in log:
        commit, subject = line.split(" ", 1)
        if why := refusal(subject):
            print(f"{commit}: the subject {subject!r} {why}")
            wrong += 1
    print(f"{len(log)} new commits, {wrong} refused")
    return 1 if wrong else 0


sys.exit(main())
