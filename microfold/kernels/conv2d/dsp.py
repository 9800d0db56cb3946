"""int8 convolution for cores with the DSP extension, and the parts that all SMLAD convolutions share.

SMLAD multiplies two pairs of int16 and adds both products to an int32 sum. A patch, the inputs of one output
pixel, is widened from int8 to pairs of int16 in the scratch. The inner loop then computes a block of 4 output
pixels in 2 output channels, so that every loaded word takes part in several products::

                       scratch: panel of 4 interleaved patches
    image  --widen-->  | p0 k0 | p1 k0 | p2 k0 | p3 k0 | p0 k1 | p1 k1 | ...     px = pixel x
                                                                                 kx = pair x of inputs
    weights of channels a, b:  | bias | k0 | k1 | ... | requantisation |

    block of sums:       p0   p1   p2   p3
                    a    .    .    .    .       8 SMLAD for each pair of inputs,
                    b    .    .    .    .       4 words of inputs and 1 or 2 of weights

On some cores 4 channels of 2 pixels (`quads`) are faster, because the loads of one step are adjacent.
`ChannelPlan` says how the output channels are packed and requantised. `packing.smlad` defines the layouts of
the weights. `requantize.pre_shifted_accumulator` and `requantize.folded_bias` prove the requantisation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter, SpecValue
from microfold.kernels.conv2d.patch import (
    WRITTEN_SEGMENT,
    count_segments,
    joins_rows,
    patch_lanes,
    patch_pairs,
)
from microfold.kernels.conv2d.portable import (
    conv_types,
    filter_matrix,
    is_pointwise,
    shape_parameters,
    unsupported_integer_conv,
)
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import product_sum, smlad
from microfold.kernels.requantize import folded_bias, output_range, output_table
from microfold.kernels.requantize.folded_bias import BiaslessRequantization, plan_biasless
from microfold.kernels.requantize.mul_hi import RequantizeForm
from microfold.kernels.requantize.pre_shifted_accumulator import SmladRequantization
from microfold.kernels.shapes import IMAGE_FIELDS, WINDOW_FIELDS
from microfold.ops.convolution.conv2d import Conv2D

# Output pixels of one block.
PIXELS = 4
# Size of the C struct at the start of the scratch, mf_pixel_group or mf_quad_group. The template checks it.
GROUP_BYTES, QUAD_GROUP_BYTES = 32, 24
# Size of the end marker after the panel, which terminates a loop over one of its columns.
END_BYTES = 8
# Pairs of inputs per iteration of the inner loop: blocks of 2 channels, blocks of 4 channels.
UNROLL, QUAD_PAIRS_PER_ITERATION = 8, 16
# Additional code of the inner loop for 4 channels, in bytes.
QUADS_CODE = 600
# The loop over pairs is fully unrolled up to this many pairs, if the layer has at least this many output
# elements.
MAX_UNROLLED_PAIRS = 8
MIN_UNROLLED_OUTPUTS = 8192
# The limits of `ResourceTradeoff.FULLY_UNROLLED`, where the assembler repeats the code of a pair: largest
# number of pairs, smallest number of output elements, and code of one pair in bytes.
LONG_PAIRS = 32
LONG_OUTPUTS = 3000
LONG_PAIR_BYTES = 56


class ChannelPlan(Struct, frozen=True, dict=True):
    """Packing and requantisation of a convolution's output channels, which are computed 2 or 4 at a time.

    Attributes:
        layer: layer that is computed.
        plan: requantisation of the channels, in the order of `smlad.group_channels`.
        packing: layout of the weights, ``paired`` or ``int16``, see `packing.smlad`.
        biasless: requantisation with the bias folded into the addend, used instead of that in `plan`. None if
            the weights are not paired, or if no exact form was found.
        quads: whether a block has 4 channels and 2 pixels instead of 2 channels and 4 pixels. One step of the
            inner loop then loads 4 adjacent words instead of 5 words at two places.
    """

    layer: LayerContext
    plan: SmladRequantization
    packing: str
    biasless: BiaslessRequantization | None = None
    quads: bool = False

    @property
    def form(self) -> str:
        """Name of the requantisation's form in the templates."""
        return self.plan.form.value if self.biasless is None else folded_bias.FORM

    @property
    def shift(self) -> int:
        """Final right shift in bits, if it is the same for all channels; else 0."""
        return self.plan.shift if self.biasless is None else self.biasless.shift

    @property
    def group_bytes(self) -> int:
        """Size of the C struct in front of the panel, in bytes."""
        return QUAD_GROUP_BYTES if self.quads else GROUP_BYTES

    @cached_property
    def limits(self) -> tuple[int, int]:
        return output_range.output_limits(self.layer)

    def terms(self, pairs: int, loops: float) -> Terms:
        """Count the code parts that run for 4 pixels in all channels.

        Args:
            pairs: pairs of inputs of a patch.
            loops: iterations of the loop over these pairs; 0 if the loop is fully unrolled.
        """
        kind = "quad" if self.quads else self.packing
        found = Terms(
            {
                "group": 1,
                f"{kind}_block": self.blocks,
                f"{kind}_pair": self.blocks * pairs,
                "iteration": self.blocks * loops,
                "loop": self.blocks * (loops > 0),
                "pass": self.quads,
            }
        )
        return found + Terms(dict.fromkeys(self._longer_forms(), float(self.blocks)))

    def _longer_forms(self) -> Iterator[str]:
        """Yield the code parts of this requantisation beyond the shortest form."""
        if self.form == RequantizeForm.GENERAL.value:
            yield "general"
        elif not self.shift:
            yield "clamped" if self.clamp else "unshifted"
        else:
            if self.form == RequantizeForm.SHORT.value:
                yield "signed"
            if self.clamp:
                yield "clamped_behind"

    def single_terms(self, pairs: int) -> Terms:
        """Count the code parts that run for one pixel in all channels."""
        general = self.form == RequantizeForm.GENERAL.value
        return Terms(
            single=1,
            single_block=self.blocks,
            single_general=self.blocks * general,
            single_pair=self.blocks * pairs,
        )

    @property
    def together(self) -> int:
        """Number of channels that are computed together."""
        return 4 if self.quads else 2

    @property
    def unroll(self) -> int:
        """Pairs of inputs per iteration, if the pairs are contiguous in the panel."""
        return QUAD_PAIRS_PER_ITERATION if self.quads else UNROLL

    @property
    def blocks(self) -> int:
        """Number of pairs of channels. The last pair of an odd number repeats a channel."""
        return len(self.plan.left) // 2

    @property
    def spec(self) -> tuple[tuple[str, SpecValue], ...]:
        return (
            *self.requantization,
            ("packing", self.packing),
            ("quads", self.quads),
            ("clamp", self.clamp and not self.shift),
            ("clamp_behind", self.clamp and self.shift > 0),
            ("late_loads", self.layer.target.has("late_loads")),
        )

    @property
    def requantization(self) -> tuple[tuple[str, SpecValue], ...]:
        return ("requantize", self.form), ("shift", self.shift)

    @property
    def clamp(self) -> bool:
        """Whether outputs are clamped to less than the range of int8.

        If all channels have the same shift, the outputs are saturated to int8 and stored. They are clamped at
        the end, four in a word. The result is the same, because a value beyond the limits stays beyond them
        when it saturates.
        """
        return self.limits != (-128, 127)

    def parameters(self, lanes: Array) -> dict[str, Parameter]:
        """Return the fields of the layer struct that describe the output channels.

        Args:
            lanes: weights of `plan`, [channels, pairs, 2].
        """
        stream = self.stream(lanes)
        return stream | self.bounds if self.clamp else stream

    @property
    def bounds(self) -> dict[str, Parameter]:
        """Fields with the limits to which outputs are clamped."""
        return {"output_minimum": self.limits[0], "output_maximum": self.limits[1]}

    def stream(self, lanes: Array) -> dict[str, Parameter]:
        """Return the fields with the stream of weights and its size, in words."""
        channels = conv_types(self.layer)[2].shape[3]
        if self.biasless is None:
            stream = smlad.smlad_stream(self.packing, lanes, self.plan)
        else:
            stream = smlad.biasless_stream(lanes, self.biasless.records)
        if self.quads:
            stream = smlad.quad_stream(stream, 2 if self.biasless is None else 0, lanes.shape[1])
        left_over = channels % self.together and channels > 1
        return {
            "weights": Constant("weights", stream),
            "words": stream.size,
            "whole_words": stream.size - (stream.shape[1] if left_over else 0),
            "output_channels": channels,
        }


# The plan is cached, because several kernels ask for it in `supports` and again in `variants`.
@lru_cache(maxsize=8)
def plan_requantization(layer: LayerContext, *, common: bool) -> SmladRequantization:
    """Return the requantisation of a convolution's channels, see `smlad.plan_requantization`.

    Args:
        common: whether to look for one final shift for all channels.
    """
    multipliers = product_sum.channel_multipliers(layer)
    return smlad.plan_requantization(layer, filter_matrix(layer), multipliers, common=common)


@lru_cache(maxsize=8)
def plan_channels(layer: LayerContext, together: int = 2) -> ChannelPlan:
    """Return the plan of a convolution's channels with int16 weights, which fit every layer."""
    plan = plan_requantization(layer, common=True)
    order = smlad.group_channels(conv_types(layer)[2].shape[3], together).reshape(-1)
    low, high = plan.bounds
    ordered = replace(
        plan,
        left=plan.left[order],
        matrix=plan.matrix[order],
        bounds=(low[order], high[order]),
        records=plan.records[order],
    )
    return ChannelPlan(layer, ordered, "int16")


@lru_cache(maxsize=8)
def channel_plans(layer: LayerContext) -> list[tuple[ChannelPlan, frozenset[ResourceTradeoff]]]:
    """Return the possible packings of the weights, each with its trades.

    Paired lanes come first, if the weights fit. int16 weights are faster, but twice as large.
    """
    int16 = plan_channels(layer)
    if not smlad.fits_paired(int16.plan.matrix, int16.plan.bounds):
        return [(int16, frozenset())]
    paired = replace(int16, packing="paired", biasless=_plan_paired_biasless(layer, 2))
    return [(paired, frozenset()), (int16, frozenset({ResourceTradeoff.WIDE_WEIGHTS}))]


@lru_cache(maxsize=8)
def block_plans(layer: LayerContext) -> list[tuple[ChannelPlan, frozenset[ResourceTradeoff]]]:
    """Return the plans for blocks of several pixels: 4 channels at a time if that can be faster, then 2.

    Blocks of 4 channels need more instructions and more code. Because all loads of a step are adjacent, they
    need fewer cycles if a load that directly follows another one is cheaper than a single load.
    """
    timing = layer.target.timing
    ways = channel_plans(layer)
    if layer.compiled_for_size or timing is None or timing.next_transfer >= timing.load:
        return ways
    if layer.target.has("late_loads") or conv_types(layer)[2].shape[3] < 4:
        return ways
    int16 = plan_channels(layer, 4)
    if not smlad.fits_paired(int16.plan.matrix, int16.plan.bounds):
        return ways
    quads = replace(int16, packing="paired", biasless=_plan_paired_biasless(layer, 4), quads=True)
    return [(quads, frozenset()), *ways] if quads.shift else ways


def _plan_paired_biasless(layer: LayerContext, together: int) -> BiaslessRequantization | None:
    """Return the biasless requantisation of paired weights; None if no exact form was found.

    Channels have the order of `smlad.group_channels`. In each pair, the sum of the second channel is shifted
    left by 8 bits.
    """
    out = conv_types(layer)[2]
    assert out.quant is not None
    order = smlad.group_channels(out.shape[3], together).reshape(-1)
    bias, bounds = product_sum.bias_and_bounds(layer, filter_matrix(layer))
    return plan_biasless(
        bias,
        bounds,
        product_sum.channel_multipliers(layer),
        out.quant.zero_point,
        output_range.integer_bounds(layer.node),
        taken=np.arange(len(order)) % 2 * 8,
        order=order,
    )


class SmladConvolution(Kernel, Struct, frozen=True, eq=False):
    """Base class of SMLAD convolutions. Weights are paired lanes or, for fewer instructions, int16.

    The constants are one stream, int32 [channels / 2][words]. For every two channels it has their biases,
    then pairs of weights, then the requantisation (`smlad_stream`). `biasless_stream` has no biases.

    `plan_smlad_requantization` or `plan_biasless` proves the requantisation exact. `fits_paired` proves that
    two channels can share the lanes of a word.

    Attributes:
        planned: packing and requantisation of the output channels; None until `variants` has chosen one.
    """

    planned: ChannelPlan | None = None
    trades: frozenset[ResourceTradeoff] = frozenset()

    @property
    def channels(self) -> ChannelPlan:
        assert self.planned is not None
        return self.planned

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        return [replace(self, planned=plan, trades=trades) for plan, trades in channel_plans(layer)]


@register
class Conv2DDsp(SmladConvolution, frozen=True):
    """SMLAD convolution that widens the patches of 4 pixels to int16, then computes 4 pixels by 2 channels.

    The panel interleaves the patches: 4 words with the first pair of inputs of each pixel, then 4 words with
    the second pair, and so on. `patch` defines the pairs. `unsupported_integer_conv` checks that all sums fit
    int32.

    Attributes:
        group: pixels that are computed together, `PIXELS` or 1. One pixel needs a quarter of the scratch.
        long: pairs of a loop that is fully unrolled although it has more than `MAX_UNROLLED_PAIRS`, up to
            `LONG_PAIRS`; 0 if it is not.
    """

    group: int = 1
    long: int = 0

    name = "s8_conv2d__dsp_4x2"
    op = Conv2D
    features = frozenset({"dsp"})
    code = 1400
    fields = declare(
        Field("weights", "a stream of biases, pairs of weights and requantisation, two channels at a time"),
        Field("words", "words of that stream"),
        Field("whole_words", "words without the last block, if it repeats channels of the block before"),
        Field("pairs", "pairs of inputs of a patch"),
        Field("skip", "pairs that the first iteration of the loop after the first pair skips"),
        Field("segment", "contiguous bytes that are widened together"),
        "output_channels",
        "pixels",
        *IMAGE_FIELDS,
        *WINDOW_FIELDS,
        "input_zero_point",
        Field("border", "offset of a spare segment in the scratch"),
        *output_range.LIMIT_FIELDS,
        output_table.TABLE_FIELD,
    )

    @property
    def function_bytes(self) -> int:
        quads = self.planned is not None and self.planned.quads
        # The unrolled pairs replace the pairs of one iteration.
        written = LONG_PAIR_BYTES * (self.long - UNROLL) if self.long else 0
        return self.code + quads * QUADS_CODE + written

    def supports(self, layer: LayerContext) -> str | None:
        # The instruction order for cores with late loads has no slot for a table lookup.
        return unsupported_integer_conv(layer, tables=not layer.target.has("late_loads"))

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        out = conv_types(layer)[2]
        single = [
            replace(self, planned=plan, trades=self.trades | trades) for plan, trades in channel_plans(layer)
        ]
        if out.size // out.shape[3] < PIXELS or out.shape[3] == 1:
            return single
        together = [
            replace(
                self,
                planned=plan,
                group=PIXELS,
                trades=self.trades | trades | {ResourceTradeoff.INPUT_SCRATCH},
            )
            for plan, trades in block_plans(layer)
        ]
        pairs = patch_pairs(layer)
        long = MAX_UNROLLED_PAIRS < pairs <= LONG_PAIRS and out.size >= LONG_OUTPUTS
        if long and layer.target.has("late_loads"):
            together += [
                replace(each, long=pairs, trades=each.trades | {ResourceTradeoff.FULLY_UNROLLED})
                for each in together
            ]
        return [*together, *single]

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out, window = conv_types(layer)
        pixels = out.size // out.shape[3]
        segments, segment = count_segments(layer)
        pairs, channels = patch_pairs(layer), self.channels
        if is_pointwise(window):
            widen = Terms(pixels=1, widened=segment)
        else:
            edges = 1 - out.shape[0] * window.positions_inside(*x.shape[1:3]) / pixels
            kind = "together" if segment <= WRITTEN_SEGMENT and _neighbours(layer) else "apart"
            widen = Terms({kind: segments, f"widened_{kind}": segments * segment})
            widen += Terms(edge=4 * edges * segments)
        single = channels.single_terms(pairs) + widen * 0.25
        if self.group == 1:
            return pixels * single + output_table.table_terms(layer)
        loops = 0 if self._written(layer) else pairs / channels.unroll
        group = channels.terms(pairs, loops) + widen
        # A pointwise layer computes its last 2 or 3 pixels as a full group that repeats pixels of the group
        # before. With blocks of 4 channels it does so even for a single last pixel.
        alone = 1 if channels.quads else 2
        left = group if is_pointwise(window) and pixels % 4 >= alone else pixels % 4 * single
        return Terms(call=1) + pixels // 4 * group + left + output_table.table_terms(layer)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(layer)
        return window_overlap(x, out, window, self.group, across_rows=True)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return not is_pointwise(conv_types(layer)[3])

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = conv_types(layer)
        assert x.quant is not None
        channels = self.channels
        segments, segment = count_segments(layer)
        pairs, group = patch_pairs(layer), self.group
        pointwise = is_pointwise(window)
        written = not pointwise and segment <= WRITTEN_SEGMENT
        spec = (
            *channels.spec,
            *output_table.table_spec(layer.node),
            ("pointwise", pointwise),
            ("group", group),
            ("steps", pairs if self._written(layer) else 0),
            ("segment", segment if written else 0),
            ("joined", segments if joins_rows(layer) else 0),
            ("neighbours", written and group == PIXELS and _neighbours(layer)),
            ("unroll", channels.unroll),
            ("group_bytes", channels.group_bytes),
        )
        parameters = channels.parameters(patch_lanes(layer, channels.plan.matrix))
        parameters |= {"pairs": pairs, "skip": _skip(pairs, channels.unroll), "segment": segment}
        parameters |= output_table.table_parameters(layer.node)
        if group == 1:
            # The loop over the channels of one pixel counts channels instead.
            del parameters["words"], parameters["whole_words"], parameters["skip"]
        # Each loop over the panel ends at a marker. Blocks of 4 channels loop twice, over 2 pixels each.
        ends = 2 if channels.quads and not self._written(layer) else 1
        scratch = 4 * pairs if group == 1 else channels.group_bytes + 16 * pairs + ends * END_BYTES
        if pointwise:
            parameters |= {"pixels": out.size // out.shape[3]}
        else:
            parameters |= shape_parameters(layer) | {
                "input_zero_point": x.quant.zero_point,
                "border": scratch,
            }
            scratch += segment + -segment % 4
        return KernelCall(CFunction("conv2d/dsp.c.j2", self.name, spec, self.fields), parameters, scratch)

    def _written(self, layer: LayerContext) -> bool:
        """Return whether the loop over pairs is fully unrolled: few pairs, and many outputs.

        A single pair is always unrolled on cores with late loads, whose instruction order has no loop for it.
        """
        few = self.group == PIXELS and patch_pairs(layer) <= MAX_UNROLLED_PAIRS
        alone = patch_pairs(layer) == 1 and layer.target.has("late_loads")
        return self.long > 0 or (few and (alone or conv_types(layer)[2].size >= MIN_UNROLLED_OUTPUTS))


def _skip(pairs: int, unroll: int) -> int:
    """Return the pairs that the first iteration skips, so that the other iterations are complete.

    The very first pair is computed before the loop.
    """
    return -(pairs - 1) % unroll if pairs > 1 else unroll


def _neighbours(layer: LayerContext) -> bool:
    """Return whether an output row has 4 adjacent windows inside the image whose rows are contiguous."""
    x, _, out, window = conv_types(layer)
    stride, left = window.strides[1], window.padding[1][0]
    first = -(-left // stride)
    last = min((x.shape[2] + left - window.size[1]) // stride, out.shape[2] - 1)
    return window.dilations[1] == 1 and last - first + 1 >= PIXELS
