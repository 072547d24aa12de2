# SPDX-License-Identifier: Apache-2.0
"""The prefixes that DistributedDataParallel and torch.compile put before the names of
parameters."""

from __future__ import annotations

import re
from collections.abc import Collection

_PREFIXES = ("module.", "_orig_mod.")
_ANYWHERE = re.compile(r"(^|(?<=\.))(module\.|_orig_mod\.)+")


def bare(name: str) -> str:
    """Return the name without the prefixes of wrappers, including prefixes of inner modules."""
    return _ANYWHERE.sub("", name)


def prefix_of(names: Collection[str]) -> str:
    """Return the prefix that wrappers have put before every one of these names, or "" if they have
    no common prefix."""
    prefix = ""
    while names:
        longer = [f"{prefix}{one}" for one in _PREFIXES]
        found = [one for one in longer if all(name.startswith(one) for name in names)]
        if not found:
            break
        prefix = found[0]
    return prefix


def partly(names: Collection[str]) -> str:
    """If some names have the prefix of a wrapper and others do not, return the reason why they do
    not form a model. Otherwise return ""."""
    for prefix in _PREFIXES:
        wrapped = [name for name in names if name.startswith(prefix)]
        others = [name for name in names if not name.startswith(prefix)]
        if wrapped and others:
            return (
                f"{wrapped[0]!r} begins with {prefix!r}, like names of a wrapped module, and {others[0]!r} does "
                f"not: save all of them with it, or none"
            )
    return ""
