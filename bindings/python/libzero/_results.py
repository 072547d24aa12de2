# SPDX-License-Identifier: Apache-2.0
"""What an optimizer tells of its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import _structs


@dataclass(frozen=True)
class Result:
    """What the ranks agreed in the last step that was made or skipped; the same on every rank but
    for `status`.

    step         steps made since the start, without skipped ones; saved with the state
    skipped      steps skipped since the optimizer was made
    nonfinite    elements that were not finite in the last step's reduced gradients
    grad_norm    the norm of all reduced gradients, before clipping; -1 where none was taken
    clip_factor  what clipping by that norm multiplied gradients with; 1 if nothing
    status       of this rank's latest step: 0, 1 if it was skipped, or its error's code
    loss_scale   what the next loss is multiplied with; 1 without loss scaling
    """

    step: int
    skipped: int
    nonfinite: int
    grad_norm: float
    clip_factor: float
    status: int
    loss_scale: float


@dataclass(frozen=True)
class Statistics:
    """Of this rank, since the optimizer was made. Times are seconds of wall clock, of all calls
    together; sizes are bytes, of what is allocated now, or moved since then.

    parameter_elements  elements of all parameters that are registered
    owned_elements      of them, this rank's
    state_bytes         optimizer state, with masters
    staging_bytes       for parameters and gradients outside of arenas, reduction and your own rules
    control_bytes       tables that ranks read of each other
    copied_bytes        copied so far into and out of staging and the host's memory
    moved_bytes         read and written so far by reducing, updating and sharing
    steps               steps made
    skipped             steps skipped
    nonfinite_elements  elements of gradients that were not finite, over all steps
    gather_seconds      summing gradients
    vote_seconds        waiting for the other ranks
    apply_seconds       updating what this rank owns
    publish_seconds     putting new parameters on every rank
    save_seconds        in save()
    load_seconds        in load()
    early_elements      elements of gradients that were summed before a call needed them
    early_updates       elements of parameters that were updated before their step()
    host_waits          on a GPU: how often a call let the host wait for a stream
    idle_ranks          ranks that own nothing, as the model is too small to be split so far

    Of the comm, to and from ranks of other hosts, so far (a user comm knows no hosts: other ranks):

    sent_data_bytes, sent_data_messages, received_data_bytes, received_data_messages
                        gradients and parameters
    sent_control_bytes, sent_control_messages, received_control_bytes, received_control_messages
                        what ranks agree on, and broadcasts
    """

    parameter_elements: int
    owned_elements: int
    state_bytes: int
    staging_bytes: int
    control_bytes: int
    copied_bytes: int
    moved_bytes: int
    steps: int
    skipped: int
    nonfinite_elements: int
    gather_seconds: float
    vote_seconds: float
    apply_seconds: float
    publish_seconds: float
    save_seconds: float
    load_seconds: float
    early_elements: int
    early_updates: int
    host_waits: int
    idle_ranks: int
    sent_data_bytes: int
    sent_data_messages: int
    received_data_bytes: int
    received_data_messages: int
    sent_control_bytes: int
    sent_control_messages: int
    received_control_bytes: int
    received_control_messages: int


def fields_of(struct: _structs.Struct, *left_out: str) -> dict[str, Any]:
    names = [field[0] for field in struct._fields_]
    return {name: getattr(struct, name) for name in names if name not in ("struct_size", *left_out)}
