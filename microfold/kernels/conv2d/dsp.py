"""Convolution for cores with DSP instructions, and what convolutions by SMLAD share.

A patch, all inputs of one output, is widened to pairs of int16, which SMLAD multiplies with pairs of weights.
Four pixels and two channels are computed together, so that each word that is loaded serves several products.
`Channels` tells how output channels are requantised and packed; `packing.smlad` has the layouts,
`requantize.shifted_sum` the proofs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np

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
from microfold.kernels.kernel import Kernel, Trade, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import product_sum, smlad
from microfold.kernels.requantize import biasless_sum, output_range, output_table
from microfold.kernels.requantize.biasless_sum import BiaslessRequantization, plan_biasless
from microfold.kernels.requantize.multiply_high import RequantizeForm
from microfold.kernels.requantize.shifted_sum import SmladRequantization
from microfold.kernels.shapes import IMAGE_FIELDS, WINDOW_FIELDS
from microfold.ops.convolution.conv2d import Conv2D
from microfold.support.frozen import frozen

# Computed together.
PIXELS = 4
# Instructions to clamp an output behind the others' computation.
CLAMPED = 1.8
# The mf_pixel_group or mf_quad_group at the beginning of the scratch, as the template checks; the words that
# end a loop over a panel.
GROUP_BYTES, QUAD_GROUP_BYTES = 32, 24
END_BYTES = 8
# Pairs of inputs in an iteration of the inner loop for two channels, and of that for four.
UNROLL, QUADS_UNROLL = 8, 16
# Bytes of code that these have more.
QUADS_CODE = 600
# Loops over no more pairs than this are written out for layers with at least that many outputs.
WRITTEN_PAIRS = 8
WRITTEN_OUTPUTS = 8192
# The same where an assembler repeats the pairs, and time is worth the flash; bytes of code of a pair.
LONG_PAIRS = 32
LONG_OUTPUTS = 3000
LONG_PAIR_CODE = 56


@frozen
class Channels:
    """How the output channels of a convolution are computed, two or four at a time.

    Attributes:
        layer: the layer.
        plan: their requantisation, in the order of `smlad.group_channels`.
        packing: of the weights: ``paired`` or ``int16``, see `smlad`.
        biasless: with paired weights, their requantisation in place of the plan's, if there is one.
        quads: whether they are computed four at a time, for two pixels: a step has four words to load, not
            five, all side by side.
    """

    layer: LayerContext
    plan: SmladRequantization
    packing: str
    biasless: BiaslessRequantization | None = None
    quads: bool = False

    @property
    def form(self) -> str:
        """Of the requantisation."""
        return self.plan.form.value if self.biasless is None else biasless_sum.FORM

    @property
    def shift(self) -> int:
        """The last shift, if all channels have the same, else 0."""
        return self.plan.shift if self.biasless is None else self.biasless.shift

    @property
    def group_bytes(self) -> int:
        """Of the struct in front of widened inputs."""
        return QUAD_GROUP_BYTES if self.quads else GROUP_BYTES

    @cached_property
    def limits(self) -> tuple[int, int]:
        return output_range.output_limits(self.layer)

    def terms(self, pairs: int, loops: float) -> Terms:
        """Of four pixels in all channels.

        Args:
            pairs: of inputs.
            loops: iterations of the loop over them; 0: it is written out.
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
        """What makes requantisation longer than the shortest form."""
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
        """Of one pixel in all channels."""
        general = self.form == RequantizeForm.GENERAL.value
        return Terms(
            single=1,
            single_block=self.blocks,
            single_general=self.blocks * general,
            single_pair=self.blocks * pairs,
        )

    @property
    def together(self) -> int:
        """Channels that are computed together."""
        return 4 if self.quads else 2

    @property
    def unroll(self) -> int:
        """Pairs of inputs of an iteration, where they lie one behind the other."""
        return QUADS_UNROLL if self.quads else UNROLL

    @property
    def blocks(self) -> int:
        """Pairs of channels."""
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
        """Whether outputs have bounds within those of int8.

        Where channels have a common shift, all are clamped in the end, four in a word: what is beyond the
        bounds is so once it has saturated, too.
        """
        return self.limits != (-128, 127)

    def parameters(self, lanes: Array) -> dict[str, Parameter]:
        """Fields of the layer struct.

        Args:
            lanes: weights [channels, pairs, 2] made from the plan's matrix.
        """
        stream = self.stream(lanes)
        return stream | self.bounds if self.clamp else stream

    @property
    def bounds(self) -> dict[str, Parameter]:
        """Those of them that say where outputs are clamped."""
        return {"output_minimum": self.limits[0], "output_maximum": self.limits[1]}

    def stream(self, lanes: Array) -> dict[str, Parameter]:
        """Those of them that tell of the weights."""
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


# Several kernels ask for it, one after the other, each for what it supports and for its variants.
@lru_cache(maxsize=8)
def plan_requantization(layer: LayerContext, *, common: bool) -> SmladRequantization:
    """That of a convolution's channels, see `smlad.plan_requantization`."""
    multipliers = product_sum.channel_multipliers(layer)
    return smlad.plan_requantization(layer, filter_matrix(layer), multipliers, common=common)


# As `plan_requantization`.
@lru_cache(maxsize=8)
def plan_channels(layer: LayerContext, together: int = 2) -> Channels:
    """How a convolution's channels are requantised, and which are computed together, with int16 weights."""
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
    return Channels(layer, ordered, "int16")


# As `plan_requantization`.
@lru_cache(maxsize=8)
def channel_plans(layer: LayerContext) -> list[tuple[Channels, frozenset[Trade]]]:
    """The ways to pack weights, with what they take: paired lanes where they fit, and int16 for less time."""
    int16 = plan_channels(layer)
    if not smlad.fits_paired(int16.plan.matrix, int16.plan.bounds):
        return [(int16, frozenset())]
    paired = replace(int16, packing="paired", biasless=_plan_paired_biasless(layer, 2))
    return [(paired, frozenset()), (int16, frozenset({Trade.WIDE_WEIGHTS}))]


# As `plan_requantization`.
@lru_cache(maxsize=8)
def block_plans(layer: LayerContext) -> list[tuple[Channels, frozenset[Trade]]]:
    """The ways to compute blocks of several pixels: those of `channel_plans`, and four channels at a time.

    These take more instructions, all loads of a step side by side, and fewer cycles where such loads do; and
    more code.
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
    """In the order of `smlad.group_channels`: sums of second channels are 8 bits up."""
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


@frozen(eq=False)
class SmladConvolution(Kernel):
    """Base of kernels with weights in paired lanes or, for fewer instructions, of int16.

    The stream of `smlad_stream` is int32 [channels / 2][words]: of two channels their biases, pairs of
    weights, and requantisation; that of `biasless_stream` has no biases. `plan_smlad_requantization` or
    `plan_biasless` proves the form, `fits_paired` that two channels share words.

    Attributes:
        planned: how the channels of a layer are computed; None before that is chosen.
    """

    planned: Channels | None = None
    trades: frozenset[Trade] = frozenset()

    @property
    def channels(self) -> Channels:
        assert self.planned is not None
        return self.planned

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        return [replace(self, planned=plan, trades=trades) for plan, trades in channel_plans(layer)]


@register
@frozen(eq=False)
class Conv2DDsp(SmladConvolution):
    """Widens the patches of four pixels to int16, then computes blocks of 4 pixels by 2 channels.

    The patches lie interleaved: four words with a pair of inputs of each pixel, then the next four. SMLAD
    multiplies them with pairs of weights; loads are shared by channels or pixels. `patch` says which pairs
    there are; `unsupported_integer_conv` checks that sums fit int32.

    Attributes:
        group: pixels computed together: `PIXELS`, or one at a time, in a quarter of the scratch.
        long: pairs of a loop over up to `LONG_PAIRS` of them that is written out; 0: there is none.
    """

    group: int = 1
    long: int = 0

    name = "s8_conv2d__dsp_4x2"
    op = Conv2D
    features = frozenset({"dsp"})
    code = 1400
    fields = declare(
        Field("weights", "a stream of biases, pairs of weights and requantisation, two channels at a time"),
        Field("words", "of it"),
        Field("whole_words", "without the last channels, if they come with those before once more"),
        Field("pairs", "of inputs of a patch"),
        Field("skip", "pairs that the first iteration of the loop behind the first pair leaves out"),
        Field("segment", "neighbouring bytes that are widened together"),
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
        # In place of the pairs of an iteration.
        written = LONG_PAIR_CODE * (self.long - UNROLL) if self.long else 0
        return self.code + quads * QUADS_CODE + written

    def supports(self, layer: LayerContext) -> str | None:
        # Where two instructions are issued together, their order has no place for a table.
        return unsupported_integer_conv(layer, tables=not layer.target.has("late_loads"))

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        out = conv_types(layer)[2]
        single = [
            replace(self, planned=plan, trades=self.trades | trades) for plan, trades in channel_plans(layer)
        ]
        if out.size // out.shape[3] < PIXELS or out.shape[3] == 1:
            return single
        together = [
            replace(self, planned=plan, group=PIXELS, trades=self.trades | trades | {Trade.INPUT_SCRATCH})
            for plan, trades in block_plans(layer)
        ]
        pairs = patch_pairs(layer)
        long = WRITTEN_PAIRS < pairs <= LONG_PAIRS and out.size >= LONG_OUTPUTS
        if long and layer.target.has("late_loads"):
            together += [
                replace(each, long=pairs, trades=each.trades | {Trade.WRITTEN_OUT}) for each in together
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
        # Two or three pixels that are left over make another group with those before, in quads also one.
        alone = 1 if channels.quads else 2
        left = group if is_pointwise(window) and pixels % 4 >= alone else pixels % 4 * single
        return Terms(call=1) + pixels // 4 * group + left + output_table.table_terms(layer)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(layer)
        return window_overlap(x, out, window, self.group, across_rows=True)

    def reads_rows(self, layer: LayerContext) -> bool:
        return not is_pointwise(conv_types(layer)[3])

    def rows_held(self, layer: LayerContext) -> int:
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
            # The loop over one pixel's channels counts them.
            del parameters["words"], parameters["whole_words"], parameters["skip"]
        # Words behind the panel end a loop over each column that is one.
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
        """The loop over the pairs is written out: they are few, and there are many outputs.

        The order for two instructions at a time has no loop of one pair.
        """
        few = self.group == PIXELS and patch_pairs(layer) <= WRITTEN_PAIRS
        alone = patch_pairs(layer) == 1 and layer.target.has("late_loads")
        return self.long > 0 or (few and (alone or conv_types(layer)[2].size >= WRITTEN_OUTPUTS))


def _skip(pairs: int, unroll: int) -> int:
    """Pairs that the first iteration of the loop leaves out; the first pair of all is not part of it."""
    return -(pairs - 1) % unroll if pairs > 1 else unroll


def _neighbours(layer: LayerContext) -> bool:
    """At least four neighbouring windows of a row are runs of bytes inside of the image."""
    x, _, out, window = conv_types(layer)
    stride, left = window.strides[1], window.padding[1][0]
    first = -(-left // stride)
    last = min((x.shape[2] + left - window.size[1]) // stride, out.shape[2] - 1)
    return window.dilations[1] == 1 and last - first + 1 >= PIXELS
