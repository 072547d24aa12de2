# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/torch_traces: what torch.optim does with 64 parameters over 20 random gradients.

    python tests/data/make_torch_traces.py        # needs torch 2.13.0, a CPU build is enough

cases.txt has one line a case: name, optimizer, rows, settings; "step:name=value" changes a setting from
that step on. traces.f32 holds rows of 64 little-endian fp32 numbers: the first parameters, the gradients
of each step, and then the rows of each case: parameters after each step, state slots after the last.
"""

import itertools
import pathlib

import torch

PARAMETERS, STEPS = 64, 20
OUT = pathlib.Path(__file__).parent / "torch_traces"
SLOTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer")

# Settings of torch that the library spells differently.
BETAS = ("beta1", "beta2")
FLAGS = ("amsgrad", "maximize", "nesterov")


def adam_cases(optimizer):
    defaults = {"lr": 0.01, "weight_decay": 0.0}
    for amsgrad, maximize, weight_decay in itertools.product((0, 1), (0, 1), (0.0, 0.1)):
        case = dict(defaults, amsgrad=amsgrad, maximize=maximize, weight_decay=weight_decay)
        tags = ("amsgrad" * amsgrad, "maximize" * maximize, "decay" * (weight_decay > 0))
        yield "_".join((optimizer, *filter(None, tags))), case, {}
    yield f"{optimizer}_betas", dict(defaults, beta1=0.6, beta2=0.95, eps=1e-4), {}
    yield f"{optimizer}_no_beta1", dict(defaults, beta1=0.0), {}
    changes = {5: {"lr": 0.002}, 11: {"lr": 0.03, "weight_decay": 0.2, "beta1": 0.8}}
    yield f"{optimizer}_schedule", defaults, changes


def sgd_cases():
    for momentum, nesterov, maximize, weight_decay in itertools.product(
        (0.0, 0.9), (0, 1), (0, 1), (0.0, 0.1)
    ):
        if nesterov and not momentum:
            continue
        case = {"lr": 0.05, "momentum": momentum, "nesterov": nesterov, "maximize": maximize}
        tags = ("momentum" * (momentum > 0), "nesterov" * nesterov, "maximize" * maximize)
        tags += ("decay" * (weight_decay > 0),)
        yield "_".join(("sgd", *filter(None, tags))), dict(case, weight_decay=weight_decay), {}
    dampened = {"lr": 0.05, "momentum": 0.8, "dampening": 0.3}
    yield "sgd_dampening", dampened, {}
    yield "sgd_dampening_decay_maximize", dict(dampened, weight_decay=0.1, maximize=1), {}
    yield "sgd_schedule", dict(dampened, weight_decay=0.1), {4: {"lr": 0.2}, 9: {"momentum": 0.5}}
    # A buffer that appears late starts with that step's gradient; one that rests keeps its values.
    yield "sgd_late_momentum", {"lr": 0.05}, {6: {"momentum": 0.9}}
    pause = {6: {"momentum": 0.0}, 10: {"momentum": 0.9}}
    yield "sgd_paused_momentum", {"lr": 0.05, "momentum": 0.9}, pause


def to_torch(settings, betas):
    """torch's names, for the constructor or for a parameter group."""
    out = {k: bool(v) if k in FLAGS else v for k, v in settings.items() if k not in BETAS}
    if any(k in settings for k in BETAS):
        out["betas"] = tuple(settings.get(k, old) for k, old in zip(BETAS, betas))
    return out


def trace(optimizer, settings, changes, start, gradients):
    parameter = torch.nn.Parameter(start.clone())
    kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam, "sgd": torch.optim.SGD}[optimizer]
    torch_settings = to_torch(settings, (0.9, 0.999))
    instance = kind([parameter], foreach=False, fused=False, **torch_settings)
    group = instance.param_groups[0]
    rows = []
    for step in range(1, STEPS + 1):
        group.update(to_torch(changes.get(step, {}), group.get("betas")))
        parameter.grad = gradients[step - 1].clone()
        instance.step()
        rows.append(parameter.detach().clone())
    state = instance.state[parameter]
    return rows + [state[slot] for slot in SLOTS if state.get(slot) is not None]


def main():
    assert torch.__version__.split("+")[0] == "2.13.0", torch.__version__
    torch.manual_seed(20)
    start = torch.randn(PARAMETERS)
    # Magnitudes from 1e-3 to 1e1 over the parameters, so that eps and decay matter somewhere.
    gradients = torch.randn(STEPS, PARAMETERS) * torch.logspace(-3, 1, PARAMETERS)
    gradients[7] = 0
    rows, lines = [start, *gradients], []
    for optimizer in ("adamw", "adam", "sgd"):
        for name, settings, changes in sgd_cases() if optimizer == "sgd" else adam_cases(optimizer):
            traced = trace(optimizer, settings, changes, start, gradients)
            rows += traced
            words = [f"{key}={float(value)!r}" for key, value in settings.items()]
            words += [f"{s}:{k}={float(v)!r}" for s, c in changes.items() for k, v in c.items()]
            lines.append(" ".join((name, optimizer, str(len(traced)), *words)))
    OUT.mkdir(exist_ok=True)
    (OUT / "cases.txt").write_text("\n".join(lines) + "\n")
    (OUT / "traces.f32").write_bytes(torch.stack(rows).numpy().astype("<f4").tobytes())


if __name__ == "__main__":
    main()
