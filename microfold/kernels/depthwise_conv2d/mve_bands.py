"""What depthwise convolution kernels for Helium have in common: bands of interleaved rows.

Four rows of a column and channel make a word, so that a vector of four words holds 16 taps.
"""

from __future__ import annotations

from functools import lru_cache

from microfold.ir.types import Array, TensorType
from microfold.kernels.cost.terms import Terms
from microfold.kernels.depthwise_conv2d.portable import depthwise_matrix
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import mve, product_sum

ROWS = 4  # rows that are interleaved: a word holds 4 of them, of one column and channel
OUTSIDE = 16  # bytes before the band that stand for what lies outside of the image
SLACK = 64  # bytes behind the band: the last interleaved vectors are written whole


# Asked for by the planner, too: by how many rows a band serves.
@lru_cache(maxsize=8)
def requantization(layer: LayerContext) -> tuple[mve.MveForm, Array]:
    """The form of the requantisation that suits all channels, and its records."""
    multipliers = product_sum.channel_multipliers(layer)
    return mve.requantization(layer, depthwise_matrix(layer), multipliers)


def load_terms(x: TensorType, groups: int) -> Terms:
    """Of the filling of a band."""
    return Terms(band_row=groups, loaded=groups * x.shape[2] * x.shape[3] / mve.LANES)


def is_pipelined(layer: LayerContext, form: mve.MveForm, clamp: bool) -> bool:
    """Whether sums are made beside the requantisation of those before, by code that is longer."""
    return form is mve.MveForm.RELU and not clamp and not layer.compiled_for_size
