# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/torch_traces: what torch.optim does with 64 parameters over 20 random gradients, and
what the papers of Lion, LAMB and LARS do, which torch does not have.

    python tests/data/make_torch_traces.py        # needs torch 2.13.0, a CPU build is enough

cases.txt has one line a case: name, optimizer, rows, settings; "step:name=value" changes a setting from
that step on. traces.f32 holds rows of 64 little-endian fp32 numbers: the first parameters, the gradients
of each step, and then the rows of each case: parameters after each step, state slots after the last.

params.txt and params.f32 are four tensors of 16 numbers that freeze and thaw ("frozen=tensor:first-last",
in steps) and that have settings of their own ("tensor:lr_scale=", "tensor:weight_decay="), in torch by
requires_grad and by groups. Rows: the first tensors, their gradients of each step, and for each case the
tensors after every fifth step.
"""

import itertools
import pathlib

import numpy
import torch

PARAMETERS, STEPS = 64, 20
OUT = pathlib.Path(__file__).parent / "torch_traces"
SLOTS = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "square_avg", "momentum_buffer", "grad_avg")
SLOTS += ("sum", "exp_inf", "acc_delta", "prev", "step_size")

# Settings of torch that the library spells differently.
TUPLES = {
    "betas": (("beta1", "beta2"), (0.9, 0.999)),
    "etas": (("eta_minus", "eta_plus"), (0.5, 1.2)),
    "step_sizes": (("step_size_min", "step_size_max"), (1e-6, 50)),
}
SPLIT = [key for keys, _ in TUPLES.values() for key in keys]
FLAGS = ("amsgrad", "maximize", "nesterov", "centered", "decoupled_weight_decay", "always_adapt")


class Paper(torch.optim.Optimizer):
    """A rule by its paper: each step in fp64, of numbers kept in fp32; a tensor is a layer."""

    def __init__(self, params, foreach=False, **settings):
        super().__init__(params, {**self.DEFAULTS, **settings})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    gradient = parameter.grad.double() * (-1 if group["maximize"] else 1)
                    new = self.update(group, self.state[parameter], parameter.double(), gradient)
                    parameter.copy_(new)

    def kept(self, state, slot, parameter):
        """The slot as it was kept, zeros at first."""
        return state.get(slot, torch.zeros_like(parameter)).double()

    def ratio(self, group, size, by, *norms):
        adapts = group["weight_decay"] != 0 or group["always_adapt"]
        return size / by if adapts and all(norm > 0 for norm in norms) else 1.0


class Lion(Paper):
    DEFAULTS = {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0.0, "maximize": False}

    def update(self, group, state, parameter, gradient):
        beta1, beta2 = group["betas"]
        average = self.kept(state, "exp_avg", parameter)
        direction = (beta1 * average + (1 - beta1) * gradient).sign()
        state["exp_avg"] = (beta2 * average + (1 - beta2) * gradient).float()
        return parameter - group["lr"] * (direction + group["weight_decay"] * parameter)


class Lamb(Paper):
    DEFAULTS = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01}
    DEFAULTS |= {"always_adapt": False, "maximize": False}

    def update(self, group, state, parameter, gradient):
        beta1, beta2 = group["betas"]
        state["step"] = state.get("step", 0) + 1
        average = beta1 * self.kept(state, "exp_avg", parameter) + (1 - beta1) * gradient
        square = beta2 * self.kept(state, "exp_avg_sq", parameter) + (1 - beta2) * gradient**2
        state["exp_avg"], state["exp_avg_sq"] = average.float(), square.float()
        m_hat = average / (1 - beta1 ** state["step"])
        v_hat = square / (1 - beta2 ** state["step"])
        direction = m_hat / (v_hat.sqrt() + group["eps"]) + group["weight_decay"] * parameter
        norms = parameter.norm(), direction.norm()
        return parameter - group["lr"] * self.ratio(group, *norms, *norms) * direction


class Lars(Paper):
    DEFAULTS = {"lr": 1.0, "momentum": 0.0, "weight_decay": 0.0, "nesterov": False}
    DEFAULTS |= {"trust_coefficient": 1e-3, "eps": 1e-8, "always_adapt": False, "maximize": False}

    def update(self, group, state, parameter, gradient):
        norm, of_gradient = parameter.norm(), gradient.norm()
        by = of_gradient + group["weight_decay"] * norm + group["eps"]
        ratio = self.ratio(group, group["trust_coefficient"] * norm, by, norm, of_gradient)
        step = ratio * (gradient + group["weight_decay"] * parameter)
        if group["momentum"]:
            if "momentum_buffer" in state:
                buffer = group["momentum"] * state["momentum_buffer"].double() + step
            else:
                buffer = step
            state["momentum_buffer"] = buffer.float()
            step = step + group["momentum"] * buffer if group["nesterov"] else buffer
        return parameter - group["lr"] * step


OPTIMIZERS = {
    "adamw": torch.optim.AdamW,
    "adam": torch.optim.Adam,
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
    "adamax": torch.optim.Adamax,
    "adadelta": torch.optim.Adadelta,
    "radam": torch.optim.RAdam,
    "nadam": torch.optim.NAdam,
    "rprop": torch.optim.Rprop,
    "lion": Lion,
    "lamb": Lamb,
    "lars": Lars,
}


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


def decay_cases(optimizer, defaults, *flags):
    """All combinations of weight decay, maximize and the flags."""
    for switches in itertools.product((0, 1), repeat=len(flags) + 2):
        case, tags = dict(defaults), []
        for (key, value), on in zip((*flags, ("maximize", 1), ("weight_decay", 0.1)), switches):
            case[key] = value * on
            tags += [key.removesuffix("_weight_decay").replace("weight_", "")] * on
        if case["weight_decay"] or not case.get("decoupled_weight_decay"):
            yield "_".join((optimizer, *tags)), case, {}


def rmsprop_cases():
    defaults = {"lr": 0.01}
    yield from decay_cases("rmsprop", defaults, ("centered", 1), ("momentum", 0.9))
    yield "rmsprop_alpha", dict(defaults, alpha=0.6, eps=1e-4), {}
    yield "rmsprop_alpha_centered", dict(defaults, alpha=0.9, eps=1e-3, centered=1), {}
    pause = {6: {"momentum": 0.0, "lr": 0.002}, 10: {"momentum": 0.5, "alpha": 0.9}}
    yield "rmsprop_paused_momentum", dict(defaults, momentum=0.9), pause


def adagrad_cases():
    defaults = {"lr": 0.05}
    yield from decay_cases("adagrad", defaults)
    yield "adagrad_initial", dict(defaults, initial_accumulator_value=0.3), {}
    slower = dict(defaults, lr_decay=0.1, initial_accumulator_value=0.01, eps=1e-3)
    yield "adagrad_lr_decay", slower, {}
    yield "adagrad_schedule", slower, {5: {"lr": 0.01}, 11: {"lr_decay": 0.5, "weight_decay": 0.2}}


def lion_cases():
    defaults = {"lr": 0.01}
    yield from decay_cases("lion", defaults)
    yield "lion_betas", dict(defaults, beta1=0.5, beta2=0.8), {}
    yield "lion_no_betas", dict(defaults, beta1=0.0, beta2=0.0), {}
    yield "lion_schedule", defaults, {5: {"lr": 0.002}, 11: {"beta1": 0.8, "weight_decay": 0.2}}


def adamax_cases():
    defaults = {"lr": 0.01}
    yield from decay_cases("adamax", defaults)
    yield "adamax_betas", dict(defaults, beta1=0.6, beta2=0.5, eps=1e-3), {}
    yield "adamax_schedule", defaults, {5: {"lr": 0.002}, 11: {"beta1": 0.8, "weight_decay": 0.2}}


def adadelta_cases():
    yield from decay_cases("adadelta", {})
    yield "adadelta_rho", {"lr": 0.5, "rho": 0.6, "eps": 1e-4}, {}
    yield "adadelta_schedule", {}, {5: {"lr": 0.2}, 11: {"rho": 0.8, "weight_decay": 0.2}}


def radam_cases(optimizer):
    defaults = {"lr": 0.01}
    yield from decay_cases(optimizer, defaults, ("decoupled_weight_decay", 1))
    # Of the second moment's averages the first is long enough early, and the second never.
    yield f"{optimizer}_short", dict(defaults, beta1=0.6, beta2=0.9, eps=1e-4), {}
    yield f"{optimizer}_shorter", dict(defaults, beta2=0.5), {}
    changes = {5: {"lr": 0.002}, 11: {"lr": 0.03, "weight_decay": 0.2, "beta1": 0.8}}
    yield f"{optimizer}_schedule", defaults, changes


def nadam_cases():
    yield from radam_cases("nadam")
    yield "nadam_momentum_decay", {"lr": 0.01, "momentum_decay": 2.5}, {}
    yield "nadam_no_momentum_decay", {"lr": 0.01, "momentum_decay": 0.0}, {}
    yield "nadam_momentum_schedule", {"lr": 0.01}, {7: {"momentum_decay": 0.1, "beta1": 0.5}}


def rprop_cases():
    for maximize in (0, 1):
        yield "rprop" + "_maximize" * maximize, {"lr": 0.01, "maximize": maximize}, {}
    yield "rprop_etas", {"lr": 0.02, "eta_minus": 0.3, "eta_plus": 1.5}, {}
    yield "rprop_step_sizes", {"lr": 0.01, "step_size_min": 0.008, "step_size_max": 0.012}, {}
    yield "rprop_schedule", {"lr": 0.01}, {4: {"eta_plus": 1.7}, 9: {"step_size_max": 0.005}}


def lamb_cases():
    defaults = {"lr": 0.01, "weight_decay": 0.0}
    yield from decay_cases("lamb", defaults, ("always_adapt", 1))
    yield "lamb_betas", dict(defaults, beta1=0.6, beta2=0.95, eps=1e-4, weight_decay=0.1), {}
    changes = {5: {"lr": 0.002}, 11: {"lr": 0.03, "weight_decay": 0.2, "beta1": 0.8}}
    yield "lamb_schedule", defaults, changes


def lars_cases():
    defaults = {"lr": 0.5, "trust_coefficient": 0.02}
    yield from decay_cases("lars", defaults, ("always_adapt", 1), ("momentum", 0.9))
    steep = dict(defaults, momentum=0.8, weight_decay=0.1, nesterov=1)
    yield "lars_nesterov", steep, {}
    yield "lars_schedule", dict(steep, eps=0.1), {4: {"lr": 0.1}, 9: {"trust_coefficient": 0.1}}
    pause = {6: {"momentum": 0.0}, 10: {"momentum": 0.9}}
    yield "lars_paused_momentum", dict(defaults, momentum=0.9, weight_decay=0.1), pause


CASES = {
    "adamw": adam_cases("adamw"),
    "adam": adam_cases("adam"),
    "sgd": sgd_cases(),
    "rmsprop": rmsprop_cases(),
    "adagrad": adagrad_cases(),
    "lion": lion_cases(),
    "adamax": adamax_cases(),
    "adadelta": adadelta_cases(),
    "radam": radam_cases("radam"),
    "nadam": nadam_cases(),
    "rprop": rprop_cases(),
    "lamb": lamb_cases(),
    "lars": lars_cases(),
}
CASES = [(o, *case) for o, cases in CASES.items() for case in cases]


def to_torch(settings, group):
    """torch's names, for the constructor or for a parameter group."""
    out = {k: bool(v) if k in FLAGS else v for k, v in settings.items() if k not in SPLIT}
    for name, (keys, defaults) in TUPLES.items():
        if any(k in settings for k in keys):
            olds = group.get(name, defaults)
            out[name] = tuple(settings.get(k, old) for k, old in zip(keys, olds))
    return out


def trace(optimizer, settings, changes, start, gradients):
    parameter = torch.nn.Parameter(start.clone())
    instance = OPTIMIZERS[optimizer]([parameter], foreach=False, **to_torch(settings, {}))
    group = instance.param_groups[0]
    assert not group.get("fused")
    rows = []
    for step in range(1, STEPS + 1):
        group.update(to_torch(changes.get(step, {}), group))
        parameter.grad = gradients[step - 1].clone()
        instance.step()
        rows.append(parameter.detach().clone())
    state = instance.state[parameter]
    return rows + [state[slot] for slot in SLOTS if state.get(slot) is not None]


TENSORS, NUMBERS, EVERY = 4, 16, 5
FROZEN = {0: [(11, 19)], 1: [(1, 6)], 2: [(3, 3), (5, 8), (20, 20)]}
OWN = {1: {"lr_scale": 0.5, "weight_decay": 0.3}, 2: {"weight_decay": 0.0}, 3: {"lr_scale": 3.0}}
OWN_CASES = {
    "adamw": {"lr": 0.01, "weight_decay": 0.1},
    "sgd": {"lr": 0.05, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.1},
    "rmsprop": {"lr": 0.01, "momentum": 0.5, "centered": 1, "weight_decay": 0.1},
    "lamb": {"lr": 0.01, "weight_decay": 0.1},
    "lars": {"lr": 0.5, "momentum": 0.9, "trust_coefficient": 0.02, "weight_decay": 0.1},
}


def trace_params(optimizer, settings, frozen, own, start, gradients):
    tensors = [torch.nn.Parameter(row.clone()) for row in start]
    groups = []
    for tensor, parameter in enumerate(tensors):
        group = {"params": [parameter], **own.get(tensor, {})}
        if "lr_scale" in group:
            group["lr"] = settings["lr"] * group.pop("lr_scale")
        groups.append(group)
    instance = OPTIMIZERS[optimizer](groups, foreach=False, **to_torch(settings, {}))
    rows = []
    for step in range(1, STEPS + 1):
        for tensor, parameter in enumerate(tensors):
            still = any(first <= step <= last for first, last in frozen.get(tensor, []))
            parameter.requires_grad_(not still)
            parameter.grad = None if still else gradients[step - 1][tensor].clone()
        instance.step()
        if step % EVERY == 0:
            rows += [parameter.detach().clone() for parameter in tensors]
    return rows


def param_cases():
    """Settings without a schedule, what is frozen, and settings of tensors' own."""
    for optimizer, name, settings, changes in CASES:
        if not changes:
            yield f"{name}_frozen", optimizer, settings, FROZEN, {}
    for optimizer, settings in OWN_CASES.items():
        yield f"{optimizer}_own", optimizer, settings, {}, OWN
        yield f"{optimizer}_both", optimizer, settings, FROZEN, OWN


def write_params():
    torch.manual_seed(21)
    start = torch.randn(TENSORS, NUMBERS)
    gradients = torch.randn(STEPS, TENSORS, NUMBERS) * torch.logspace(-2, 1, NUMBERS)
    rows, lines = [*start, *gradients.reshape(-1, NUMBERS)], []
    for name, optimizer, settings, frozen, own in param_cases():
        rows += trace_params(optimizer, settings, frozen, own, start, gradients)
        words = [f"{key}={float(value)!r}" for key, value in settings.items()]
        words += [f"{t}:{k}={v!r}" for t, of in own.items() for k, v in of.items()]
        words += [f"frozen={t}:{a}-{b}" for t, spans in frozen.items() for a, b in spans]
        lines.append(" ".join((name, optimizer, *words)))
    (OUT / "params.txt").write_text("\n".join(lines) + "\n")
    (OUT / "params.f32").write_bytes(torch.stack(rows).numpy().astype("<f4").tobytes())


def main():
    assert torch.__version__.split("+")[0] == "2.13.0", torch.__version__
    torch.manual_seed(20)
    start = torch.randn(PARAMETERS)
    # Magnitudes from 1e-3 to 1e1 over the parameters, so that eps and decay matter somewhere.
    gradients = torch.randn(STEPS, PARAMETERS) * torch.logspace(-3, 1, PARAMETERS)
    gradients[7] = 0
    rows, lines = [start, *gradients], []
    for optimizer, name, settings, changes in CASES:
        traced = trace(optimizer, settings, changes, start, gradients)
        rows += traced
        words = [f"{key}={float(value)!r}" for key, value in settings.items()]
        words += [f"{s}:{k}={float(v)!r}" for s, c in changes.items() for k, v in c.items()]
        lines.append(" ".join((name, optimizer, str(len(traced)), *words)))
    OUT.mkdir(exist_ok=True)
    (OUT / "cases.txt").write_text("\n".join(lines) + "\n")
    (OUT / "traces.f32").write_bytes(torch.stack(rows).numpy().astype("<f4").tobytes())
    write_params()


if __name__ == "__main__":
    main()
