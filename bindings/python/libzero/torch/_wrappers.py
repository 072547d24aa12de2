# SPDX-License-Identifier: Apache-2.0
"""What wrappers of a module put before the names of its parameters: DistributedDataParallel and
torch.compile."""

from __future__ import annotations

import re
from collections.abc import Collection

_PREFIXES = ("module.", "_orig_mod.")
_ANYWHERE = re.compile(r"(^|(?<=\.))(module\.|_orig_mod\.)+")


def bare(name: str) -> str:
    """Without what any wrapper has put there, also that of a module within."""
    return _ANYWHERE.sub("", name)


def prefix_of(names: Collection[str]) -> str:
    """What wrappers have put before every one of these, or ""."""
    prefix = ""
    while names:
        longer = [f"{prefix}{one}" for one in _PREFIXES]
        found = [one for one in longer if all(name.startswith(one) for name in names)]
        if not found:
            break
        prefix = found[0]
    return prefix


def partly(names: Collection[str]) -> str:
    """Why names that have a wrapper's prefix and names that have none are no model's, or "" if there
    are no such two."""
    for prefix in _PREFIXES:
        wrapped = [name for name in names if name.startswith(prefix)]
        others = [name for name in names if not name.startswith(prefix)]
        if wrapped and others:
            return (
                f"{wrapped[0]!r} begins with {prefix!r}, as in a module that is wrapped, and {others[0]!r} does "
                f"not: save all of them with it, or none"
            )
    return ""
