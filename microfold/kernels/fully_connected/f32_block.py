"""float32 fully connected layers for floating-point units and for Helium (MVE) with floats."""

from __future__ import annotations

from typing import ClassVar

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.fully_connected.portable import fully_connected_types
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum
from microfold.kernels.packing.float16_weights import HalfWeights
from microfold.kernels.packing.float32_block import CHANNELS, block_weights, finish_terms, float_clamping
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import MATRIX_FIELDS, matrix_parameters
from microfold.ops.fully_connected.fully_connected import FullyConnected


class _BlockFullyConnected(Kernel):
    """Base class of kernels for 4 or 16 units at a time, in the reference's order.

    A sum adds all products, then the bias. Weights are [outputs / 4][inputs][4], padded with zeros after the
    last unit, like the biases.

    Class attributes:
        core: ``fpu`` or ``mve``.
        half: whether weights are stored as float16.
    """

    op = FullyConnected
    core: ClassVar[str]
    half: ClassVar[bool] = False
    fields = declare(
        Field("weights", "[outputs / 4][inputs][4]"),
        Field("channels", "biases"),
        *MATRIX_FIELDS,
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        return product_sum.unsupported_constants(layer, DType.FLOAT32, DType.FLOAT32)

    def row_terms(self, layer: LayerContext, finish: Terms) -> Terms:
        """Count the code parts for one row of the batch."""
        raise NotImplementedError

    def terms(self, layer: LayerContext) -> Terms:
        x, _, _ = fully_connected_types(layer)
        clamp_kind, _ = float_clamping(layer)
        return Terms(call=1) + x.shape[0] * (Terms(row=1) + self.row_terms(layer, finish_terms(clamp_kind)))

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out = fully_connected_types(layer)
        weights = layer.array(1)
        assert weights is not None
        clamp_kind, limits = float_clamping(layer)
        biases = product_sum.float_biases(layer, out.shape[1])
        tail = out.shape[1] % CHANNELS != 0
        spec = (("core", self.core), ("half", self.half), ("clamp_kind", clamp_kind), ("tail", tail))
        parameters: dict[str, Parameter] = {
            "weights": block_weights(weights, self.half),
            "channels": Constant("biases", product_sum.pad_channels(biases, CHANNELS)),
            **matrix_parameters(x, out),
        }
        return KernelCall(
            CFunction("fully_connected/f32_block.c.j2", self.name, spec, self.fields),
            parameters | dict(limits),
        )


@register
class FullyConnectedFloatFpu(_BlockFullyConnected):
    """float32 fully connected layer for FPU cores, bit-identical because it rounds products and sums."""

    name = "f32_fully_connected__fpu_4"
    features = frozenset({"fpu", "thumb2"})
    core = "fpu"

    def row_terms(self, layer: LayerContext, finish: Terms) -> Terms:
        x, _, out = fully_connected_types(layer)
        depth = x.shape[1]
        return -(-out.shape[1] // CHANNELS) * (Terms(block=1, eight=depth // 8, rest=depth % 8) + finish)


@register
class FullyConnectedFloatMve(_BlockFullyConnected):
    """float32 fully connected layer for Helium (MVE), with fused multiply-add, which rounds once."""

    name = "f32_fully_connected__mve_16"
    features = frozenset({"mve_fp"})
    core = "mve"

    def row_terms(self, layer: LayerContext, finish: Terms) -> Terms:
        x, _, out = fully_connected_types(layer)
        pairs, units = -(-x.shape[1] // 2), out.shape[1]
        blocks, rest = units // 16, -(-(units % 16) // CHANNELS)
        whole = blocks * (Terms(block=1, block_pair=pairs) + 4 * finish)
        return whole + rest * (Terms(single=1, single_pair=pairs) + finish)


class _HalfBlockFullyConnected(HalfWeights, _BlockFullyConnected):
    """Base class of block kernels with float16 weights. `HalfWeights` proves that the conversion is exact.

    A word has the weights of two inputs, [outputs / 4][(inputs + 1) / 2][4]. They are converted for each row.
    """

    fields = describe(
        _BlockFullyConnected.fields, weights="pairs of float16, [outputs / 4][(inputs + 1) / 2][4]"
    )

    def conversions(self, layer: LayerContext) -> float:
        x, _, out = fully_connected_types(layer)
        return x.size * -(-out.shape[1] // CHANNELS)


@register
class FullyConnectedFloatFpuHalf(_HalfBlockFullyConnected, FullyConnectedFloatFpu):
    """`FullyConnectedFloatFpu` with float16 weights, which are converted in FPU registers."""

    name = "f32_f16w_fully_connected__fpu_4"


@register
class FullyConnectedFloatMveHalf(_HalfBlockFullyConnected, FullyConnectedFloatMve):
    """`FullyConnectedFloatMve` with float16 weights. One instruction converts four weights of an input."""

    name = "f32_f16w_fully_connected__mve_16"
