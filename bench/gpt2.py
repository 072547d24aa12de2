# SPDX-License-Identifier: Apache-2.0
"""The shapes of GPT-2's parameters."""

from __future__ import annotations


def gpt2_shapes(width: int = 768, layers: int = 12) -> dict[str, tuple[int, ...]]:
    """Returns shapes by name, in registration order: 124M parameters; 1.5B with width 1600, 48 layers."""
    shapes: dict[str, tuple[int, ...]] = {}

    def linear(name: str, inputs: int, outputs: int) -> None:
        shapes[f"{name}.weight"] = (inputs, outputs)
        shapes[f"{name}.bias"] = (outputs,)

    def norm(name: str) -> None:
        shapes[f"{name}.weight"] = (width,)
        shapes[f"{name}.bias"] = (width,)

    shapes["wte.weight"] = (50257, width)
    shapes["wpe.weight"] = (1024, width)
    for layer in range(layers):
        norm(f"h.{layer}.ln_1")
        linear(f"h.{layer}.attn.c_attn", width, 3 * width)
        linear(f"h.{layer}.attn.c_proj", width, width)
        norm(f"h.{layer}.ln_2")
        linear(f"h.{layer}.mlp.c_fc", width, 4 * width)
        linear(f"h.{layer}.mlp.c_proj", 4 * width, width)
    norm("ln_f")
    return shapes
