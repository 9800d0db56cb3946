"""int8 convolution for cores without SIMD, with two pixels in one word.

`packing.two_pixels_per_word` has the proof of the sums.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.conv2d.portable import (
    conv_types,
    filter_matrix,
    is_pointwise,
    shape_parameters,
    unsupported_integer_conv,
)
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.packing import product_sum, two_pixels_per_word
from microfold.kernels.requantize import output_range, output_table
from microfold.kernels.requantize.multiply_accumulate_long import expects_short_form, sum_records
from microfold.kernels.shapes import IMAGE_FIELDS, WINDOW_FIELDS
from microfold.ops.convolution.conv2d import Conv2D

# Number of pixels that are computed together, in two words.
PIXELS = 4
# Longest row of the window, in bytes, that is faster to copy as a whole than to widen tap by tap.
SHORT_ROW = 8
# Largest patch, in words, so that word indices fit int16.
MAXIMUM_WORDS = (1 << 15) - 1


class _PairConv(Kernel):
    """Base class of convolutions that widen each input of 4 pixels to 2 words, and compute by channel.

    `weights` is [output_channels][inputs of a patch, in whole runs]. `rests` has the remainders that
    `split_long_runs` subtracts from weights whose runs would not fit 16 bits. `channels` has records whose
    form `sum_records` proves.
    """

    op = Conv2D
    superseded_by = frozenset({"dsp"})
    trades = frozenset({ResourceTradeoff.INPUT_SCRATCH})
    longest: int
    """Maximum number of weights in an iteration of the inner loop."""
    unsigned: bool
    """Whether weights are stored as uint8, and each run begins with two words of its own."""
    nibbles = False
    """Whether weights are stored in 4 bits."""
    lengths = range(1, two_pixels_per_word.LONGEST_RUN + 1)
    """Lengths of runs to choose from."""

    fields = declare(
        "weights",
        "channels",
        Field("rests", "for each channel their number, then word index and weight of each"),
        Field("words", "words of the patches of 4 pixels"),
        Field("offset", "total of the start values of all runs, which is subtracted from sums"),
        "output_channels",
        "depth",
        "pixels",
        *IMAGE_FIELDS,
        *WINDOW_FIELDS,
        "input_zero_point",
        *output_range.LIMIT_FIELDS,
        output_table.TABLE_FIELD,
    )

    def supports(self, layer: LayerContext) -> str | None:
        reason = unsupported_integer_conv(layer, tables=True)
        if reason is None and self._words(layer) > MAXIMUM_WORDS:
            return f"its patches may have at most {MAXIMUM_WORDS} words; they have {self._words(layer)}"
        return reason

    def _layout(self, layer: LayerContext) -> tuple[int, int, int]:
        """Return the inputs of a segment, the length of a run, and the runs of a patch."""
        _, weights, _, window = conv_types(layer)
        matrix = filter_matrix(layer)
        segment = matrix.shape[1]
        if self.unsigned and not is_pointwise(window):
            # Rows of the window are widened separately, in whole runs.
            segment = window.size[1] * weights.shape[3]
        product, run, rest, rests = (self.coefficient(layer, t) for t in ("product", "run", "rest", "rests"))
        costs = product, run, rest, rests
        length = two_pixels_per_word.plan_run(matrix, segment, *costs, lengths=self.lengths)
        return segment, length, matrix.shape[1] // segment * -(-segment // length)

    def _unroll(self, length: int, runs: int) -> int:
        """Return the runs per iteration of the inner loop."""
        return next(n for n in (4, 3, 2, 1) if runs % n == 0 and (n == 1 or n * length <= self.longest))

    def _gather(self, layer: LayerContext) -> str:
        """Return how windows that cross the image border are gathered.

        This is by ``taps``, by whole ``rows``, or empty if windows are inside the image and not dilated.
        """
        x, _, _, window = conv_types(layer)
        if window.padding == ((0, 0), (0, 0)) and window.dilations[1] == 1:
            return ""
        ragged = self.unsigned and x.shape[3] % self._layout(layer)[1] != 0
        return "rows" if ragged or window.size[1] * x.shape[3] <= SHORT_ROW else "taps"

    def _words(self, layer: LayerContext) -> int:
        _, length, runs = self._layout(layer)
        return 2 * runs * (length + self.unsigned)

    def input_scratch(self, layer: LayerContext) -> int:
        x, _, _, window = conv_types(layer)
        rows = {"": 0, "taps": 1, "rows": PIXELS}[self._gather(layer)]
        return 4 * self._words(layer) + rows * window.size[1] * x.shape[3]

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out, window = conv_types(layer)
        segment, length, runs = self._layout(layer)
        matrix = filter_matrix(layer)
        rests = int(np.count_nonzero(two_pixels_per_word.split_long_runs(matrix, segment, length)[1]))
        pixels, channels = out.size // out.shape[3], out.shape[3]
        groups = -(-pixels // PIXELS)
        edges = pixels - out.shape[0] * window.positions_inside(*x.shape[1:3])
        finish = "short_output" if expects_short_form(layer, narrow=self.unsigned) else "output"
        group = Terms(
            {
                "run": channels * runs,
                "product": channels * runs * length,
                "rests": channels * (rests > 0),
                "rest": rests,
                finish: channels * PIXELS,
                "input": PIXELS * matrix.shape[1],
                "row": 0 if is_pointwise(window) else window.size[0],
            }
        )
        edge = Terms(edge_row=window.size[0], edge_input=matrix.shape[1])
        return Terms(call=1) + groups * group + edges * edge + output_table.table_terms(layer)

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, _, out, window = conv_types(layer)
        return window_overlap(x, out, window, PIXELS, across_rows=True)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return not is_pointwise(conv_types(layer)[3])

    def row_release_granularity(self, layer: LayerContext) -> int:
        return 1

    def pack(self, matrix: Array, segment: int, length: int, unroll: int) -> Array:
        """Return weights in the layout of the inner loop.

        Args:
            segment: inputs of a segment.
            length: length of a run.
            unroll: runs per iteration.
        """
        return two_pixels_per_word.pack_runs(matrix, segment, length, unsigned=self.unsigned)

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = conv_types(layer)
        assert x.quant is not None
        segment, length, runs = self._layout(layer)
        matrix = filter_matrix(layer)
        multipliers = product_sum.channel_multipliers(layer)
        records = sum_records(layer, matrix, multipliers, narrow=self.unsigned)
        pointwise, gather = is_pointwise(window), self._gather(layer)
        fitting, rests = two_pixels_per_word.split_long_runs(matrix, segment, length)
        packed = self.pack(fitting, segment, length, self._unroll(length, runs))
        spec = (
            ("unsigned", self.unsigned),
            ("nibbles", self.nibbles),
            ("requantize", records.form),
            ("clamp", records.clamp),
            *output_table.table_spec(layer.node),
            ("pointwise", pointwise),
            ("gather", gather),
            ("ragged", segment % length != 0),
            ("dilated", window.dilations[1] > 1),
            ("run", length),
            ("rests", bool(rests.any())),
            ("unroll", self._unroll(length, runs)),
        )
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", packed),
            "channels": records.constant,
            "words": self._words(layer),
            "offset": runs << 15,
            "output_channels": out.shape[3],
            **output_table.table_parameters(layer.node),
        }
        if rests.any():
            places = two_pixels_per_word.word_indices(segment, length, runs, 2 if self.unsigned else 0)
            parameters |= {"rests": Constant("rests", two_pixels_per_word.pack_remainders(rests, places))}
        if pointwise:
            parameters |= {"depth": segment, "pixels": out.size // out.shape[3]}
        else:
            parameters |= shape_parameters(layer) | {"input_zero_point": x.quant.zero_point}
            if not gather:
                # All windows are inside the image, and their rows are contiguous.
                del parameters["dilation_width"], parameters["input_zero_point"]
        order = f"[output_channels][inputs of a patch, in whole runs of {length}]"
        fields = describe(self.fields, weights=f"{order}, nibbles" if self.nibbles else order)
        function = CFunction("conv2d/pairs.c.j2", self.name, spec, fields)
        return KernelCall(function, {**parameters, **records.limits}, self.input_scratch(layer))


@register
class Conv2DThumb2(_PairConv):
    """Convolution for ARMv7-M with int8 weights.

    Requantisation uses 64-bit products if `plan_affine` finds one for each channel.
    """

    name = "s8_conv2d__thumb2_4x1"
    features = frozenset({"thumb2"})
    code = 850
    longest = 20
    unsigned = False


@register
class Conv2DThumb1(_PairConv):
    """Convolution for ARMv6-M with uint8 weights (int8 plus 128), because byte loads do not extend the sign.

    Requantisation uses 32-bit products.
    """

    name = "s8_conv2d__thumb1_4x1"
    features = frozenset({"thumb1"})
    code = 850
    longest = 14  # Conditional branches have a range of 256 bytes.
    unsigned = True
