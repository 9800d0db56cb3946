"""float32 convolution for floating-point units and for Helium (MVE) with floats."""

from __future__ import annotations

from typing import ClassVar

from msgspec.structs import replace

from microfold.ir.types import DType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.conv2d.portable import (
    PATCH_FIELDS,
    conv_types,
    filter_matrix,
    is_pointwise,
    patch_parameters,
    unsupported_grouping,
)
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import product_sum
from microfold.kernels.packing.float16_weights import HalfWeights
from microfold.kernels.packing.float32_block import CHANNELS, block_weights, finish_terms, float_clamping
from microfold.kernels.requantize import output_range
from microfold.ops.convolution.conv2d import Conv2D

# Number of pixels that are computed together.
PIXELS = 4


class _BlockConv(Kernel):
    """Base class of convolutions in blocks of 4 pixels by 4 channels, whose sums stay in registers.

    A sum adds all products, then the bias. Patches are gathered unless the layer is pointwise. `weights` is
    [output_channels / 4][patch][4], padded with zeros after the last channel, like the biases.

    Class attributes:
        core: ``fpu`` or ``mve``.
        half: whether weights are stored as float16.
    """

    op = Conv2D
    core: ClassVar[str]
    half: ClassVar[bool] = False
    fields = declare(
        Field("weights", "[output_channels / 4][patch][4]"),
        Field("channels", "biases"),
        # With narrower types, GCC's static analyser warns that sums may be uninitialised.
        *(replace(field, c_type="int32_t") for field in PATCH_FIELDS[:3]),
        *PATCH_FIELDS[3:],
        *output_range.LIMIT_FIELDS,
    )

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_grouping(layer) or product_sum.unsupported_constants(
            layer, DType.FLOAT32, DType.FLOAT32
        )

    def block_terms(self, depth: int) -> tuple[Terms, Terms]:
        """Count the code parts for the sums of 4 channels: of 4 pixels, and of 1 pixel."""
        raise NotImplementedError

    def segment_terms(self, words: int) -> Terms:
        """Count the code parts that copy a segment of a patch."""
        raise NotImplementedError

    def terms(self, layer: LayerContext) -> Terms:
        x, weights, out, window = conv_types(layer)
        clamp_kind, _ = float_clamping(layer)
        depth = weights.size // weights.shape[0]
        blocks = -(-out.shape[3] // CHANNELS)
        pixels = out.size // out.shape[3]
        four, one = self.block_terms(depth)
        finish = finish_terms(clamp_kind)
        groups, singles = divmod(pixels, PIXELS)
        found = groups * (Terms(group=1) + blocks * (four + PIXELS * finish))
        found += singles * blocks * (one + finish)
        if not is_pointwise(window):
            segment = x.shape[3] * (1 if window.dilations[1] > 1 else window.size[1])
            found += Terms(patch=pixels) + pixels * (depth // segment) * self.segment_terms(segment)
        return found + Terms(call=1)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(layer)
        # Each group of 4 channels needs the complete patches, which pointwise layers read in place.
        return window_overlap(x, out, window, PIXELS, reads_first=not is_pointwise(window), across_rows=True)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return not is_pointwise(conv_types(layer)[3])

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = conv_types(layer)
        clamp_kind, limits = float_clamping(layer)
        pointwise = is_pointwise(window)
        matrix = filter_matrix(layer)
        spec = (
            ("core", self.core),
            ("half", self.half),
            ("clamp_kind", clamp_kind),
            ("pointwise", pointwise),
            ("dilated", window.dilations[1] > 1),
            ("tail", out.shape[3] % CHANNELS != 0),
        )
        biases = product_sum.float_biases(layer, out.shape[3])
        parameters: dict[str, Parameter] = {
            "weights": block_weights(matrix, self.half),
            "channels": Constant("biases", product_sum.pad_channels(biases, CHANNELS)),
            "patch": matrix.shape[1],
            "output_channels": out.shape[3],
        }
        traversal, scratch = patch_parameters(layer, PIXELS * matrix.shape[1] * x.dtype.itemsize)
        parameters |= traversal
        return KernelCall(
            CFunction("conv2d/f32_block.c.j2", self.name, spec, self.fields),
            parameters | dict(limits),
            scratch,
        )


@register
class Conv2DFloatFpu(_BlockConv):
    """float32 convolution for FPU cores, with products and sums rounded separately in the reference's order.

    This is C without contraction.
    """

    name = "f32_conv2d__fpu_4x4"
    features = frozenset({"fpu", "thumb2"})
    core = "fpu"

    def block_terms(self, depth: int) -> tuple[Terms, Terms]:
        block = Terms(block=1, block_four=depth // 4, block_rest=depth % 4)
        return block, Terms(single=1, single_eight=depth // 8, single_rest=depth % 8)

    def segment_terms(self, words: int) -> Terms:
        return Terms(segment=1, segment_eight=words // 8, segment_rest=words % 8)


@register
class Conv2DFloatMve(_BlockConv):
    """float32 convolution for Helium (MVE), with fused multiply-add, which rounds once."""

    name = "f32_conv2d__mve_4x4"
    features = frozenset({"mve_fp"})
    core = "mve"

    def block_terms(self, depth: int) -> tuple[Terms, Terms]:
        block = Terms(block=1, block_pair=depth // 2, block_rest=depth % 2)
        return block, Terms(single=1, single_pair=depth // 2, single_rest=depth % 2)

    def segment_terms(self, words: int) -> Terms:
        return Terms(segment=1, segment_vector=-(-words // 4))


class _HalfBlockConv(HalfWeights, _BlockConv):
    """Base class of block convolutions with float16 weights, which are converted for every 4 pixels.

    `HalfWeights` proves that the conversion is exact. A word of the weights has two inputs,
    [output_channels / 4][(patch + 1) / 2][4], see `float16_weights.pack_pairs`.
    """

    def conversions(self, layer: LayerContext) -> float:
        _, weights, out, _ = conv_types(layer)
        pixels = out.size // out.shape[3]
        blocks = -(-out.shape[3] // CHANNELS)
        return blocks * (weights.size // weights.shape[0]) * (pixels // PIXELS + pixels % PIXELS)

    fields = describe(
        _BlockConv.fields, weights="pairs of float16, [output_channels / 4][(patch + 1) / 2][4]"
    )


@register
class Conv2DFloatFpuHalf(_HalfBlockConv, Conv2DFloatFpu):
    """`Conv2DFloatFpu` with float16 weights, which VCVTB and VCVTT convert one by one in FPU registers."""

    name = "f32_f16w_conv2d__fpu_4x4"


@register
class Conv2DFloatMveHalf(_HalfBlockConv, Conv2DFloatMve):
    """`Conv2DFloatMve` with float16 weights. VCVTB and VCVTT convert four weights each, for two inputs."""

    name = "f32_f16w_conv2d__mve_4x4"
