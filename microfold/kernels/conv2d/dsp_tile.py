"""int8 convolution with windows of several pixels, for cores with the DSP extension.

A tile is some adjacent outputs of a row. Inputs are widened once for all windows of a tile, not once for each
patch as in `conv2d.dsp`. The same tap of adjacent outputs reads adjacent words. If the stride is larger than
1, pixels whose columns have the same remainder by the stride, a phase, are stored together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, KernelCall, Parameter, SpecValue
from microfold.kernels.conv2d.dsp import PIXELS, ChannelPlan, SmladConvolution, block_plans
from microfold.kernels.conv2d.portable import (
    conv_types,
    is_pointwise,
    shape_parameters,
    unsupported_integer_conv,
)
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing.smlad import pair_order
from microfold.kernels.requantize import output_range, output_table
from microfold.kernels.shapes import IMAGE_FIELDS
from microfold.ops.convolution.conv2d import Conv2D

# Range of the offset of an LDRD, and of an LDR, which blocks of 4 channels use, in words.
REACH, FAR_REACH = 1020 // 4, 4092 // 4
# Scratch in addition to the patches of 4 pixels: SLACK bytes. A variant for arenas with room may also use
# 1 / SPARE_PART of the bytes of input and output.
SLACK, SPARE_PART = 128, 8
# Largest number of pairs of inputs in an iteration, which computes all taps of a row. More pairs do not fit a
# C99 string, unless the assembler repeats the rows.
MAX_PAIRS = 8
MAX_REPEATED_PAIRS = 18


class InputTile(Struct, frozen=True):
    """Layout of the inputs of a tile, adjacent outputs of a row.

    Attributes:
        outputs: number of outputs.
        phases: (remainder by the stride, first word, number of pixels) of each phase.
        taps: first word of each tap.
        pitch: words of a row for a pair of channels.
        rows: number of rows: kernel rows times pairs of channels.
    """

    outputs: int
    phases: tuple[tuple[int, int, int], ...]
    taps: tuple[int, ...]
    pitch: int
    rows: int

    @property
    def words(self) -> int:
        return self.rows * self.pitch

    def scratch(self, channels: ChannelPlan) -> int:
        """Return the size of the group, the tile, and the end marker of each group's loop, in bytes."""
        return channels.group_bytes + 4 * (self.words + self.outputs)

    def unroll(self, quads: bool) -> int:
        """Return the number of rows per iteration of the inner loop."""
        numbers, most = ((6, 4, 2, 1), MAX_REPEATED_PAIRS) if quads else ((4, 2, 1), MAX_PAIRS)
        return next(u for u in numbers if self.rows % u == 0 and len(self.taps) * u <= most)

    def is_read(self, quads: bool) -> bool:
        """Return whether the offsets of load instructions reach all inputs of an iteration."""
        return self.unroll(quads) * self.pitch + 2 <= (FAR_REACH if quads else REACH)


def make_tile(layer: LayerContext, outputs: int) -> InputTile:
    """Return the tile of a number of outputs."""
    x, _, _, window = conv_types(layer)
    stride = window.strides[1]
    columns = [j * window.dilations[1] for j in range(window.size[1])]
    phases: list[tuple[int, int, int]] = []
    pitch = 0
    for phase in sorted({c % stride for c in columns}):
        count = outputs + max(c // stride for c in columns if c % stride == phase)
        phases.append((phase, pitch, count))
        pitch += count
    begin = {phase: first for phase, first, _ in phases}
    taps = tuple(begin[c % stride] + c // stride for c in columns)
    return InputTile(outputs, tuple(phases), taps, pitch, window.size[0] * x.shape[3] // 2)


def tiles(layer: LayerContext) -> list[InputTile]:
    """Return the tiles of all widths."""
    out = conv_types(layer)[2]
    return [make_tile(layer, outputs) for outputs in range(PIXELS, min(out.shape[2], 64) + PIXELS, PIXELS)]


def _terms(layer: LayerContext, tile: InputTile, channels: ChannelPlan) -> Terms:
    x, _, out, window = conv_types(layer)
    full, last = divmod(out.shape[2], tile.outputs)
    pairs = tile.rows * len(tile.taps)
    pixels = sum(count for _, _, count in tile.phases)
    widen = Terms(filled=pixels * x.shape[3], filled_pixel=pixels, phase=len(tile.phases))
    fill = Terms(tile=1) + window.size[0] * widen
    group = channels.terms(pairs, tile.rows / tile.unroll(channels.quads))
    row = (full + (last > 0)) * fill + (full * tile.outputs + last) // PIXELS * group
    rows = out.shape[0] * out.shape[1]
    return Terms(call=1) + rows * (row + last % PIXELS * channels.single_terms(pairs))


@register
class Conv2DTileDsp(SmladConvolution, frozen=True):
    """SMLAD convolution that widens the inputs of a tile to int16, then computes 4 pixels by 2 channels.

    The same tap of adjacent outputs reads adjacent words, so that all taps of a row share the widened inputs.
    The stream has the layout of `SmladConvolution`, with weights in the order of `_lanes`: rows, pairs of
    channels, taps.

    Attributes:
        cut: tile that is widened at a time; None until it is chosen.
    """

    cut: InputTile | None = None

    name = "s8_conv2d__dsp_tile"
    op = Conv2D
    features = frozenset({"dsp"})
    code = 1550
    fields = declare(
        Field("weights", "a stream of biases, pairs of weights and requantisation, two channels at a time"),
        Field("words", "words of that stream"),
        Field("whole_words", "words without the last block, if it repeats channels of the block before"),
        Field("blocks", "iterations of the loop over the pairs of a group"),
        "tile_words",
        Field("row_words", "words of a row of a tile"),
        *IMAGE_FIELDS,
        "output_channels",
        "kernel_height",
        "stride_height",
        "dilation_height",
        "pad_top",
        "pad_left",
        Field("padding", "the input's zero point as a pair"),
        *output_range.LIMIT_FIELDS,
        output_table.TABLE_FIELD,
    )

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_integer_conv(layer, tables=not layer.target.has("late_loads"))
        if reason is not None:
            return reason
        x, _, out, window = conv_types(layer)
        if is_pointwise(window):
            return "it does not compute pointwise layers"
        if window.size[1] > MAX_PAIRS:
            return f"the window may be at most {MAX_PAIRS} pixels wide"
        if x.shape[3] % 4 or out.shape[3] == 1 or out.shape[2] < PIXELS:
            return f"it needs a multiple of 4 input channels, 2 output channels and {PIXELS} outputs in a row"
        return None if self.variants(layer) else "no tile is small enough"

    def variants(self, layer: LayerContext) -> Sequence[Kernel]:
        x, _, out, window = conv_types(layer)
        patches = 2 * PIXELS * window.size[0] * window.size[1] * x.shape[3]
        needed = SLACK + patches
        found: list[Kernel] = []
        for plan, trades in block_plans(layer):
            for tile in tiles(layer):
                if not tile.is_read(plan.quads):
                    continue
                if tile.scratch(plan) <= needed:
                    found.append(replace(self, planned=plan, trades=trades, cut=tile))
                elif tile.scratch(plan) <= needed + (x.nbytes + out.nbytes) // SPARE_PART:
                    more = trades | {ResourceTradeoff.SPARE_SCRATCH}
                    found.append(replace(self, planned=plan, trades=more, cut=tile))
        return found

    @property
    def _tile(self) -> InputTile:
        assert self.cut is not None
        return self.cut

    def terms(self, layer: LayerContext) -> Terms:
        return _terms(layer, self._tile, self.channels) + output_table.table_terms(layer)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(layer)
        return window_overlap(x, out, window, self._tile.outputs)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, _, window = conv_types(layer)
        tile, channels = self._tile, self.channels
        assert x.quant is not None
        unroll = tile.unroll(channels.quads)
        spec: tuple[tuple[str, SpecValue], ...] = (
            *channels.spec,
            *output_table.table_spec(layer.node),
            ("tile", tile.outputs),
            ("stride", window.strides[1]),
            ("phases", tile.phases),
            ("taps", tile.taps),
            ("pitch", tile.pitch),
            ("unroll", unroll),
            ("dual_issue", layer.target.has("dual_issue")),
            ("group_bytes", channels.group_bytes),
        )
        parameters: dict[str, Parameter] = channels.parameters(_lanes(channels.plan.matrix, layer))
        parameters |= output_table.table_parameters(layer.node)
        parameters |= shape_parameters(layer) | {
            "blocks": tile.rows // unroll,
            "tile_words": tile.words,
            "row_words": tile.words // window.size[0],
            "padding": int(np.frombuffer(np.full(2, x.quant.zero_point, np.int16), np.int32)[0]),
        }
        unused = ("kernel_width", "stride_width", "dilation_width")
        kept = {name: value for name, value in parameters.items() if name not in unused}
        function = CFunction("conv2d/dsp_tile.c.j2", self.name, spec, self.fields)
        return KernelCall(function, kept, tile.scratch(channels))


def _lanes(matrix: Array, layer: LayerContext) -> Array:
    """Reorder weights [channels, K] to [channels, pairs, 2]: rows, then pairs of channels, then taps."""
    x, _, _, window = conv_types(layer)
    taps = matrix.reshape(matrix.shape[0], *window.size, x.shape[3])
    pairs = taps[..., pair_order(x.shape[3])]
    return pairs.transpose(0, 1, 3, 2, 4).reshape(matrix.shape[0], -1, 2)
