"""Advice on a quantised model: the layer in which most is lost, the cause, and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from microfold.ir.node import primary_name
from microfold.quantization.compare import LayerQuality
from microfold.quantization.schemes import FLOAT, Scheme
from microfold.quantization.wording import lossiest_layer

# Saturation is the cause of a loss if saturated values have more than this share of it.
_MAIN_CAUSE = 0.5


def advise(scheme: Scheme, layers: Sequence[LayerQuality]) -> list[str]:
    """Return sentences about the layer that alone loses most, or about none if no layer loses anything."""
    worst = lossiest_layer(layers)
    if worst is None:
        return []
    name = f"layer {worst.number} ({worst.operator}, {primary_name(worst.tensor) or worst.tensor!r})"
    found = [f"most is lost in {name}: alone, it has {worst.own_snr:.1f} dB"]
    if worst.overflowed_biases:
        found.append(
            f"cause: {worst.overflowed_biases} of its {worst.biases} biases exceed 32 bits and are wrong, "
            f"because the scales of its inputs and weights are small; remedy: {_kept(worst, scheme)}"
        )
    elif worst.saturation_noise > _MAIN_CAUSE:
        found.append(
            f"cause: {100 * worst.saturated:.2g} % of its values are outside of the range that calibration "
            "has found; remedy: more calibration data that are like the device's (--samples), or "
            f"{_kept(worst, scheme)}"
        )
    elif (worst.own_snr or 0.0) < 0:
        # Rounding cannot do this. ai-edge-quantizer drops the scales of weights that are quantised already.
        found.append(
            "cause: the differences are larger than the values, so ai-edge-quantizer has misread this layer; "
            f"remedy: {_kept(worst, scheme)}, or another --scheme (--compare shows all)"
        )
    else:
        found.append(
            f"cause: rounding; remedy: {_kept(worst, scheme)}, or another --scheme (--compare shows all)"
        )
    return found


def _kept(layer: LayerQuality, scheme: Scheme) -> str:
    """Return the options that compute a layer more exactly."""
    option = f"--layer {layer.number}="
    if scheme.activations is None or layer.type not in ("int8", "int16"):
        return f"keep it in float ({option}{FLOAT})"
    if layer.overflowed_biases and layer.type == "int16":
        return f"compute it in int8 ({option}int8) or float ({option}{FLOAT})"
    if layer.overflowed_biases:
        return f"compute it in float ({option}{FLOAT})"
    if scheme.weights == 4:
        return f"give it int8 weights ({option}int8)"
    if layer.type == "int8":
        return f"compute it in int16 ({option}int16x8) or float ({option}{FLOAT})"
    return f"compute it in float ({option}{FLOAT})"
