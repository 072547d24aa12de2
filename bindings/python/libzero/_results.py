# SPDX-License-Identifier: Apache-2.0
"""The figures that an optimizer reports about its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import _handles


@dataclass(frozen=True)
class Result:
    """The outcome that the ranks agreed on in the last step that was made or skipped. It is the
    same on every rank, except for `status`.

    step         steps made since the start, without skipped ones; saved with the state
    skipped      steps skipped since the optimizer was created
    nonfinite    elements that were not finite in the last step's reduced gradients
    grad_norm    the norm of all reduced gradients, before clipping; -1 if it was not computed
    clip_factor  the factor by which clipping multiplied the gradients; 1 if they were not clipped
    status       status of this rank's latest step: 0, 1 if it was skipped, or its error code
    loss_scale   the factor for the next loss; 1 without loss scaling
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
    """Figures of this rank, since the optimizer was created. Times are wall-clock seconds, summed
    over all calls. Sizes are bytes, either allocated now or moved since then.

    parameter_elements  elements of all registered parameters
    owned_elements      elements that this rank owns
    state_bytes         optimizer state, including masters
    staging_bytes       memory for parameters and gradients outside of arenas, reduction and custom
                        rules
    control_bytes       tables that ranks read from each other
    copied_bytes        copied into and out of staging and host memory
    moved_bytes         read and written by reducing, updating and publishing
    steps               steps made
    skipped             steps skipped
    nonfinite_elements  gradient elements that were not finite, over all steps
    gather_seconds      time spent summing gradients
    vote_seconds        time spent waiting for the other ranks
    apply_seconds       time spent updating the elements that this rank owns
    publish_seconds     time spent copying new parameters to every rank
    save_seconds        time spent in save()
    load_seconds        time spent in load()
    early_elements      gradient elements that were summed before a call needed them
    early_updates       parameter elements that were updated before their step()
    host_waits          on a GPU: how often the host waited for a stream in a call
    idle_ranks          ranks that own nothing because the model is too small

    Traffic of the comm with ranks on other hosts (a user comm knows no hosts: with all other
    ranks). Gradients and parameters are counted by sent_data_bytes, sent_data_messages,
    received_data_bytes and received_data_messages. Agreements between ranks and broadcasts are
    counted by sent_control_bytes, sent_control_messages, received_control_bytes and
    received_control_messages.
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


def fields_of(struct: _handles.Struct, *left_out: str) -> dict[str, Any]:
    names = [field[0] for field in struct._fields_]
    return {name: getattr(struct, name) for name in names if name not in ("struct_size", *left_out)}
