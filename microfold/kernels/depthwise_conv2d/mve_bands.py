"""Bands of interleaved rows, which the int8 depthwise kernels for Helium (MVE) share.

Four rows of one column and channel form a word, so that a vector of four words has 16 taps.
"""

from __future__ import annotations

from functools import lru_cache

from microfold.ir.types import Array, TensorType
from microfold.kernels.cost.terms import Terms
from microfold.kernels.depthwise_conv2d.portable import depthwise_matrix
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import mve, product_sum

ROWS = 4  # Number of interleaved rows: a word has 4 of them, of one column and channel.
OUTSIDE = 16  # Bytes before the band that represent the outside of the image.
SLACK = 64  # Bytes after the band, because the last interleaved vectors are written as a whole.


# The result is cached, because planning and lowering ask for it.
@lru_cache(maxsize=8)
def requantization(layer: LayerContext) -> tuple[mve.MveForm, Array]:
    """Return the form of the requantisation for all channels, and its records."""
    multipliers = product_sum.channel_multipliers(layer)
    return mve.requantization(layer, depthwise_matrix(layer), multipliers)


def load_terms(x: TensorType, groups: int) -> Terms:
    """Count the code parts that fill a band."""
    return Terms(band_row=groups, loaded=groups * x.shape[2] * x.shape[3] / mve.LANES)


def is_pipelined(layer: LayerContext, form: mve.MveForm, clamp: bool) -> bool:
    """Return whether longer, pipelined code overlaps sums with the requantisation of the sums before."""
    return form is mve.MveForm.RELU and not clamp and not layer.compiled_for_size
