# SPDX-License-Identifier: Apache-2.0
"""Replaces the names of zero.h with Python names in messages of the library."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

# Functions whose method has a different name. All others follow the pattern: zero_comm_create_local
# is Comm.local, zero_comm_barrier is Comm.barrier, and zero_step is Optimizer.step.
_CALLS = {
    "zero_arena_alloc": "Comm.arena",
    "zero_arena_free": "Comm.arena",
    "zero_bind_params": "Optimizer.bind",
    "zero_comm_create_env": "Comm.from_env",
    "zero_comm_free": "Comm.close",
    "zero_create": "Optimizer",
    "zero_free": "Optimizer.close",
    "zero_group_get": "Group.__getitem__",
    "zero_group_set": "Group.__setitem__",
    "zero_group_set_from": "Group.read_from",
    "zero_nccl_unique_id": "nccl_unique_id",
    "zero_param_set_trainable": "Optimizer.set_trainable",
    "zero_partition_plan": "partition_plan",
    "zero_register_params": "Optimizer.register",
    "zero_rule_info": "rules",
    "zero_set_interrupt_callback": "interrupt_waits",
    "zero_set_log_callback": "set_log_level",
    "zero_state_info": "Optimizer.state_names",
    "zero_state_list": "list_checkpoints",
    "zero_state_load": "Optimizer.load",
    "zero_state_prune": "prune_checkpoints",
    "zero_state_save": "Optimizer.save",
    "zero_state_save_begin": "Optimizer.save_begin",
    "zero_state_save_poll": "Optimizer.save_ended",
    "zero_state_save_wait": "Optimizer.save_wait",
    "zero_step_result": "Optimizer.result",
    "zero_trace_start": "Comm.trace_start",
    "zero_trace_stop": "Comm.trace_stop",
}
_INTERNAL = {"zero_build_info", "zero_last_error", "zero_status_name", "zero_version"}
_CONSTANTS = {
    "ZERO_ALL_GROUPS": "Optimizer.settings",
    "ZERO_ALL_PARAMS": "param=None",
    "ZERO_ALL_RANKS": "to=None",
    "ZERO_CUSTOM_WHOLE_TENSORS": "whole_tensors=True",
    "ZERO_LOAD_KEEP_SETTINGS": "keep_settings=True",
    "ZERO_OPTIMIZER_CUSTOM": "a CustomOptimizer",
    "ZERO_ORDINAL_LOCAL_RANK": "device_ordinal=None",
    "ZERO_PARAM_FROZEN": "frozen=True",
    "ZERO_PARAM_PADDED": "padded=True",
    "ZERO_REDUCE_ACCUMULATE": "accumulate=True",
    "ZERO_ROOT_NONE": "root=None",
    "ZERO_SAVE_REPLACE": "replace=True",
    "ZERO_SHARE_KEEP_MASTERS": "keep_masters=True",
}
# Words within a path or quotes belong to the program and are not replaced.
_WORD = re.compile(r"(?<![\w'\"/.-])(?:(zero_\w+)\.)?(zero_\w+|ZERO_\w+|(?<=\.)[a-z]\w*)")


def calls_of(functions: Iterable[str]) -> dict[str, str]:
    """Return the Python name of each function that has one."""
    found = {}
    for name in functions:
        kind, _, rest = name.removeprefix("zero_").partition("_")
        if name in _CALLS:
            found[name] = _CALLS[name]
        elif kind == "comm":
            found[name] = f"Comm.{rest.removeprefix('create_')}"
        elif name not in _INTERNAL:
            found[name] = f"Optimizer.{name.removeprefix('zero_')}"
    return found


def constants_of(choices: Iterable[tuple[str, str, Mapping[str, int]]]) -> dict[str, str]:
    """Return the Python words for constants. `choices` are tuples of a prefix, an argument and its
    values. Each constant is translated to the argument with that value, or to the value alone if
    the argument has no name."""
    found = dict(_CONSTANTS)
    for prefix, argument, values in choices:
        for value in values:
            told = f'{argument}="{value}"' if argument else f'"{value}"'
            found.setdefault(f"{prefix}{value.upper()}", told)
    return found


def translator(words: Mapping[str, str], structs: Iterable[str]) -> Callable[[str], str]:
    """Return a function that replaces C names with `words`, and removes the name of the struct
    before a field."""
    known = set(structs)

    def in_python(text: str) -> str:
        def replaced(match: re.Match[str]) -> str:
            struct, word = match.groups()
            if struct is not None:
                return word if struct in known else match[0]
            return words.get(word, word)

        return _WORD.sub(replaced, text)

    return in_python
