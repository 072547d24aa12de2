# SPDX-License-Identifier: Apache-2.0
"""The numbers that an optimizer reports about its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import _handles


@dataclass(frozen=True)
class Result:
    """The outcome of the last step that was taken or skipped, on which the ranks agreed. All fields
    except `status` are the same on every rank.

    step         the number of steps taken since the start, which is saved with the state; skipped
                 steps do not count
    skipped      the number of steps skipped since the optimizer was created
    nonfinite    the number of elements of the last step's reduced gradients that were not finite
    grad_norm    the norm of all reduced gradients, before clipping; -1 if it was not computed
    clip_factor  the factor by which clipping multiplied the gradients; 1 if they were not clipped
    status       the status of this rank's latest step, which is 0, 1 if the step was skipped, or an
                 error code
    loss_scale   the factor by which to multiply the next loss; 1 without loss scaling
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
    """Statistics of this rank since the optimizer was created. Times are wall-clock seconds, summed
    over all calls. Sizes are in bytes that are either allocated now or have been moved since then.

    parameter_elements  the number of elements of all registered parameters
    owned_elements      the number of elements that this rank owns
    state_bytes         the size of the optimizer state, including master weights
    staging_bytes       the size of staging memory for reductions, for custom rules, and for
                        parameters and gradients outside arenas
    control_bytes       the size of tables that ranks read from each other
    copied_bytes        the bytes copied into and out of staging and host memory
    moved_bytes         the bytes read and written while gradients are reduced and parameters are
                        updated and copied to the other ranks
    steps               the number of steps taken
    skipped             the number of steps skipped
    nonfinite_elements  the number of gradient elements that were not finite, over all steps
    gather_seconds      time spent summing gradients
    vote_seconds        time spent waiting for the other ranks
    apply_seconds       time spent updating the elements that this rank owns
    publish_seconds     time spent copying new parameters to every rank
    save_seconds        time spent in save()
    load_seconds        time spent in load()
    early_elements      the number of gradient elements that were summed before a call needed them
    early_updates       the number of parameter elements that were updated before their step()
    host_waits          the number of times that a call made the host wait for a stream (on a GPU)
    idle_ranks          the number of ranks that own nothing because the model is too small

    The remaining fields count the traffic of the comm with ranks on other hosts. A user comm does
    not know the hosts, so it counts the traffic with all other ranks. Transfers of gradients and
    parameters are counted in sent_data_bytes, sent_data_messages, received_data_bytes and
    received_data_messages. Control messages and broadcasts are counted in sent_control_bytes,
    sent_control_messages, received_control_bytes and received_control_messages.
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
