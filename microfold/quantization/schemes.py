"""Quantisation schemes, and the recipes that ai-edge-quantizer receives for them.

Format of recipes: https://github.com/google-ai-edge/ai-edge-quantizer
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

_EVERY_LAYER = ".*"
# Pattern that matches every layer, too. A second entry with the regex of the first one would replace it.
_EVERY_LAYER_AGAIN = ""
# Scheme of a single layer that is not quantised.
FLOAT = "float"


class Scheme(Struct, frozen=True):
    """Types of weights and activations.

    Attributes:
        weights: bits of a weight; 16: float16.
        activations: bits of an activation; None: activations are float32 in the file.
    """

    name: str
    weights: int
    activations: int | None = None


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("int8", 8, 8),
        Scheme("int16x8", 8, 16),
        Scheme("int4", 4, 8),  # layers without support for 4 bits have int8 weights
        Scheme("dynamic", 8),  # activations are quantised at run time
        Scheme("float16", 16),
    )
}
# Schemes of a single layer. The others would not change the layers around it.
LAYER_SCHEMES = ("int8", "int16x8", FLOAT)

Recipe = list[dict[str, Any]]


def recipe(scheme: Scheme, layers: Mapping[str, str]) -> Recipe:
    """Return the recipe for a model.

    Args:
        layers: one of `LAYER_SCHEMES` for some layers, by scope, see `FileOperator`.
    """
    found = [_entry(_EVERY_LAYER, scheme, scheme.weights)]
    if scheme.weights == 4:
        # Layers without support for 4 bits keep the first entry, else they would stay float.
        found = [_entry(_EVERY_LAYER, scheme, 8), _entry(_EVERY_LAYER_AGAIN, scheme, 4)]
    for scope, name in layers.items():
        regex = f"^{re.escape(scope)}$"
        if name == FLOAT:
            found.append({"regex": regex, "operation": "*", "algorithm_key": "no_quantize", "op_config": {}})
        else:
            found.append(_entry(regex, SCHEMES[name], SCHEMES[name].weights))
    return found


def _entry(regex: str, scheme: Scheme, weights: int) -> dict[str, Any]:
    casts = weights == 16
    config: dict[str, Any] = {
        "weight_tensor_config": _tensor(weights, symmetric=True, kind="FLOAT" if casts else "INT")
        | {"granularity": "CHANNELWISE"},
        "compute_precision": "FLOAT" if casts else "INTEGER",
        "explicit_dequantize": casts,
    }
    if scheme.activations is not None:
        # Kernels for int16 require zero points of 0.
        config["activation_tensor_config"] = _tensor(
            scheme.activations, symmetric=scheme.activations == 16, kind="INT"
        )
    algorithm = "float_casting" if casts else "min_max_uniform_quantize"
    return {"regex": regex, "operation": "*", "algorithm_key": algorithm, "op_config": config}


def _tensor(bits: int, *, symmetric: bool, kind: str) -> dict[str, Any]:
    return {"num_bits": bits, "symmetric": symmetric, "granularity": "TENSORWISE", "dtype": kind}
