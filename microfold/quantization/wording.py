"""Texts of figures that the terminal, the HTML page and notebooks share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from microfold.ir.node import primary_name
from microfold.quantization.compare import LayerQuality, OutputQuality

if TYPE_CHECKING:
    from microfold.quantization.session import SchemeResult


def decibels_text(snr: float | None) -> str:
    """Return a ratio of powers in dB, without the unit."""
    return "exact" if snr is None else f"{snr:.1f}"


def percent_text(share: float | None) -> str:
    """Return a share in percent, without the unit; empty if it is unknown."""
    return "" if share is None else f"{100 * share:.1f}"


def layer_name(layer: LayerQuality) -> str:
    """Return the name of a layer; a tensor's name can list several names."""
    return primary_name(layer.tensor) or layer.tensor


def lossiest_layer(layers: Sequence[LayerQuality]) -> LayerQuality | None:
    """Return the layer that alone loses most; None if no layer loses anything."""
    lossy = [layer for layer in layers if layer.own_snr is not None]
    return min(lossy, key=lambda layer: layer.own_snr or 0.0, default=None)


def lowest_snr(outputs: Sequence[OutputQuality]) -> float | None:
    """Return the lowest SNR of all outputs in dB; None if nothing differs."""
    return min((output.snr for output in outputs if output.snr is not None), default=None)


def lowest_agreement(outputs: Sequence[OutputQuality]) -> float | None:
    """Return the lowest share of equal answers of all outputs; None if no output has answers."""
    return min((output.agreement for output in outputs if output.agreement is not None), default=None)


def verification_text(result: SchemeResult) -> str:
    """Return whether the C code has the same bits as the reference."""
    exact = {True: "exact", False: "NOT exact", None: "not verified"}
    return exact[result.verified.exact] if result.verified is not None else "none"
