# SPDX-License-Identifier: Apache-2.0
"""Tests which calls libzero.torch.Optimizer rejects, the errors, and that nothing has changed after
them."""

from __future__ import annotations

import pickle
import re
import unittest
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from libzero.torch import Optimizer
from native import refusal
from support import InAllWorlds, results_of

WORLDS = (1, 2, 3)


def refused(rank: int, world: int) -> Any:
    def fresh() -> list[nn.Parameter]:
        return [nn.Parameter(torch.ones(4, 3)), nn.Parameter(torch.ones(5))]

    gaps = nn.Parameter(torch.ones(6, 4)[:, ::2])
    told = [
        refusal(lambda: Optimizer(fresh(), "adamv")),
        refusal(lambda: Optimizer(fresh(), torch.optim.ASGD)),
        refusal(lambda: Optimizer(fresh(), print)),
        refusal(lambda: Optimizer(fresh(), "lion", momentum=0.9)),
        refusal(lambda: Optimizer(fresh(), "adamw", lr=-1.0)),
        refusal(lambda: Optimizer(fresh(), arenas="some")),
        refusal(lambda: Optimizer(fresh(), partition="manual")),
        refusal(lambda: Optimizer(fresh(), reduction="max")),
        refusal(lambda: Optimizer([])),
        refusal(lambda: Optimizer(torch.ones(3))),
        refusal(lambda: Optimizer([gaps])),
        refusal(lambda: Optimizer([nn.Parameter(torch.ones(3).to_sparse())])),
        refusal(lambda: Optimizer(fresh(), buffers={"mask": torch.ones(3, dtype=torch.bool)})),
    ]
    params = fresh()
    places = [param.data_ptr() for param in params]
    told.append(refusal(lambda: Optimizer(params, "lion", arenas=True, lr=-1.0)))
    unmoved = [param.data_ptr() for param in params] == places
    optimizer = Optimizer(params, "sgd", lr=0.5, arenas=True)
    told += [
        refusal(lambda: optimizer.step()),
        refusal(lambda: optimizer.step(grads=None)),
        refusal(lambda: optimizer.clip_grad_norm(1.0, params=[torch.ones(2)])),
        refusal(lambda: Optimizer([torch.ones(3, dtype=torch.uint8)])),
        refusal(lambda: optimizer.consolidate_state_dict(to=world)),
        refusal(lambda: pickle.dumps(optimizer)),
        refusal(lambda: optimizer.add_param_group({"params": [gaps]})),
        refusal(lambda: optimizer.load("/nowhere/at/all")),
        refusal(lambda: optimizer.load_state_dict({"state": {}, "param_groups": []})),
    ]
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(params[0].sum()).backward()
    told.append(refusal(lambda: scaler.step(optimizer)))
    optimizer.zero_grad()
    (params[0].sum() + params[1].sum()).backward()
    optimizer.step()
    values = [param.unique().tolist() for param in params]
    optimizer.close()
    told.append(refusal(lambda: optimizer.step()))
    return told, unmoved, values


def ranks_that_differ(rank: int, world: int) -> Any:
    params = [nn.Parameter(torch.ones(3 + rank)), nn.Parameter(torch.ones(4))]
    places = [param.data_ptr() for param in params]
    told = refusal(lambda: Optimizer(params, arenas=True))
    unmoved = [param.data_ptr() for param in params] == places
    dist.barrier()
    optimizer = Optimizer(params[1:], "sgd", lr=0.5, arenas=True)
    differing = refusal(lambda: optimizer.add_param_group({"params": params[:1]}))
    params[1].sum().backward()
    optimizer.step()
    return told, unmoved, differing, params[1].unique().tolist(), len(optimizer.param_groups)


CASES = (refused, ranks_that_differ)


class NativeRefusals(InAllWorlds):
    worlds, cases = WORLDS, CASES

    def test_what_cannot_be_is_refused_and_changes_nothing(self) -> None:
        wanted = (
            "ValueError: optimizer 'adamv' is unknown",
            "ValueError: ASGD is not one",
            "TypeError: optimizer is <built-in",
            "TypeError: lion: option 'momentum' is unknown",
            "ValueError: Invalid learning rate",
            "ValueError: arenas is 'some'",
            "ValueError: partition 'manual'",
            "ValueError: reduction 'max'",
            "ValueError: Optimizer got no parameters",
            "TypeError: params is a tensor",
            "ValueError: parameter 0 of shape (6, 2) has strides",
            "TypeError: parameter 0 is sparse",
            "TypeError: buffer 'mask' is bool",
            "ArgumentError: ",
            "ZeroError: ",
            "TypeError: step() has no argument grads",
            "ValueError: a tensor of shape (2,) is not a parameter",
            "TypeError: parameter 0 is torch.uint8, which libzero cannot save",
            "ValueError: to is",
            "TypeError: Optimizer cannot",
            "ValueError: parameter 2 of shape",
            "CheckpointError: ",
            "ValueError: the state has 0 parameter groups",
            "RuntimeError: GradScaler decides",
            "RuntimeError: this Optimizer is closed",
        )
        for told, unmoved, values in self.of(refused):
            for said, begins in zip(told, wanted):
                # A rank that only receives another rank's failure raises PeerError.
                self.assertRegex(said, rf"^({re.escape(begins)}|PeerError: [\w.]+: rank . in )")
            self.assertEqual(len(told), len(wanted))
            self.assertTrue(unmoved)
            self.assertEqual(values, [[0.5], [0.5]])

    def test_ranks_with_other_parameters_are_told_and_keep_their_memory(self) -> None:
        for world in (2, 3):
            found = results_of(self.found[world], ranks_that_differ)
            for told, unmoved, late, value, groups in found:
                for said in (told, late):
                    self.assertRegex(said, "ZERO_ERR_(MISMATCH|PEER)")
                    self.assertIn("'0'" if said is told else "'1'", said)
                self.assertTrue(unmoved)
                self.assertEqual((value, groups), ([0.5], 1))


if __name__ == "__main__":
    unittest.main()
