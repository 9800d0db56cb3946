"""int8 depthwise convolution for cores without SIMD, with two pixels in one word.

`packing.two_pixels_per_word` has the proof of the sums.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from msgspec import Struct

from microfold.ir.types import Array
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.depthwise_conv2d.portable import (
    channel_multiplier,
    depthwise_matrix,
    depthwise_types,
    plane_in_place,
    unsupported_integer_depthwise,
)
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.kernel import Kernel, ResourceTradeoff, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import product_sum, two_pixels_per_word
from microfold.kernels.requantize import output_range, output_table
from microfold.kernels.requantize.multiply_accumulate_long import FORM, expects_short_form, sum_records
from microfold.kernels.shapes import IMAGE_FIELDS, image_parameters
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.window import Window

# Number of adjacent taps in one run.
TAPS = 3
# Words of a run in the scratch: an offset and its weights.
RUN_WORDS = 1 + TAPS
# Maximum number of runs of a window, so that a byte can count the runs of a channel and their parts.
LARGEST_WINDOW = 100


class _Plane(Struct, frozen=True):
    """Padded copy of one channel, whose words have a pixel for the upper and one for the lower outputs.

    Attributes:
        half: rows of outputs in the upper half.
        size: rows and columns of words.
        columns: words of a row that are copied from the image.
    """

    half: int
    size: tuple[int, int]
    columns: int


def _plan_plane(layer: LayerContext) -> _Plane:
    x, _, out, window = depthwise_types(layer)
    half = (out.shape[1] + 1) // 2
    last = (half - 1, out.shape[2] - 1)
    rows, width = (
        last[i] * window.strides[i] + (window.size[i] - 1) * window.dilations[i] + 1 for i in range(2)
    )
    return _Plane(half, (rows, width), max(min(x.shape[2], width - window.padding[1][0]), 0))


def tap_runs(window: Window, width: int) -> list[tuple[int, tuple[int, ...]]]:
    """Return the runs of up to `TAPS` adjacent taps: offset of the first input, and indices of the weights.

    Args:
        width: length of a row of inputs.
    """
    runs: list[tuple[int, tuple[int, ...]]] = []
    together = TAPS if window.dilations[1] == 1 else 1
    for i in range(window.size[0]):
        for j in range(0, window.size[1], together):
            offset = i * window.dilations[0] * width + j * window.dilations[1]
            taps = range(j, min(j + together, window.size[1]))
            runs.append((offset, tuple(i * window.size[1] + t for t in taps)))
    return runs


def pack_tap_runs(matrix: Array, runs: list[tuple[int, ...]]) -> tuple[Array, Array]:
    """Pack the runs of each channel, and count them.

    A run whose sum might not fit 16 bits is split into several runs, with parts of its weights.

    Args:
        matrix: int8 weights [channels, taps].
        runs: indices of the weights of each run.

    Returns:
        int8 [runs, 1 + TAPS], index and weights of each run; int64 [channels], the runs of each channel.
    """
    # The result is cached, because callers ask several times for each layer.
    rows, counts = _tap_run_rows(matrix.tobytes(), matrix.shape, tuple(runs))
    return np.array(rows, np.int8), np.array(counts, np.int64)


@lru_cache(maxsize=512)
def _tap_run_rows(
    array: bytes, shape: tuple[int, int], runs: tuple[tuple[int, ...], ...]
) -> tuple[list[list[int]], list[int]]:
    """Return the rows and counts of `pack_tap_runs`."""
    rows: list[list[int]] = []
    counts: list[int] = []
    for weights in np.frombuffer(array, np.int8).reshape(shape).astype(np.int64):
        before = len(rows)
        for index, taps in enumerate(runs):
            run = np.pad(weights[list(taps)], (0, TAPS - len(taps)))
            if run.any():
                rows += [[index, *part] for part in _parts(run)]
        if len(rows) == before:
            rows.append([0] * RUN_WORDS)
        counts.append(len(rows) - before)
    return rows, counts


def _parts(run: Array) -> list[list[int]]:
    """Split the weights of a run into the fewest parts whose sums fit 16 bits."""
    count = 1
    while True:
        parts = [(run + k) // count for k in range(count)]
        if all(two_pixels_per_word.runs_fit(part[None], TAPS, TAPS) for part in parts):
            return [part.tolist() for part in parts]
        count += 1


class _PairDepthwise(Kernel):
    """Base class of kernels that copy a channel to a plane of words, then compute two outputs together.

    `weights` has runs of an index and three weights. `runs` has the number of runs of each channel, `offsets`
    the offset of each run's inputs. `pack_tap_runs` splits runs whose sums might not fit 16 bits. `channels`
    has records whose form `sum_records` proves.
    """

    op = DepthwiseConv2D
    superseded_by = frozenset({"dsp"})
    trades = frozenset({ResourceTradeoff.INPUT_SCRATCH})
    thumb1: bool
    fields = declare(
        Field("weights", "index and three weights of each run of each channel"),
        Field("runs", "number of runs of each channel"),
        "offsets",
        "channels",
        *IMAGE_FIELDS,
        "channel_multiplier",
        "plane_rows",
        "plane_width",
        "copied_columns",
        "pad_top",
        "pad_left",
        Field("half", "rows of outputs between the lower and the upper halves of words"),
        Field("second_row", "rows of inputs between the lower and the upper halves of words"),
        Field("row_step", "words of the plane from the inputs of one output row to the next"),
        "input_zero_point",
        *output_range.LIMIT_FIELDS,
        output_table.TABLE_FIELD,
    )
    pitch_fields = frozenset({"input_width"})

    def supports(self, layer: LayerContext) -> str | None:
        # The assembly that stores two columns together has no register for a table.
        reason = unsupported_integer_depthwise(layer, tables=self.thumb1)
        if reason is not None:
            return reason
        window = depthwise_types(layer)[3]
        if len(tap_runs(window, 0)) > LARGEST_WINDOW:
            return f"the window must have at most {LARGEST_WINDOW} runs of {TAPS} taps"
        return None

    def _runs(self, layer: LayerContext) -> tuple[Array, Array, Array]:
        """Return the offsets of the runs, their packed weights, and the number of runs of each channel."""
        window = depthwise_types(layer)[3]
        runs = tap_runs(window, _plan_plane(layer).size[1])
        offsets = np.array([offset for offset, _ in runs], np.int32)
        return offsets, *pack_tap_runs(depthwise_matrix(layer), [taps for _, taps in runs])

    def input_scratch(self, layer: LayerContext) -> int:
        rows, width = _plan_plane(layer).size
        # After the plane are the missing taps of the last run, and the runs of a channel.
        return 4 * (rows * width + TAPS - 1 + RUN_WORDS * int(self._runs(layer)[2].max()))

    def terms(self, layer: LayerContext) -> Terms:
        x, _, out, window = depthwise_types(layer)
        plane = _plan_plane(layer)
        rows, width = plane.size
        _, _, counts = self._runs(layer)
        short = expects_short_form(layer, narrow=self.thumb1)
        columns = self._columns(window, clamp=not short)
        fast = short and (self.thumb1 or columns == 2)
        steps = plane.half * -(-out.shape[2] // columns)
        runs, kind = int(counts.sum()), "fast" if fast else "slow"
        image = Terms(
            {
                "plane_row": x.shape[3] * rows,
                "word": x.shape[3] * rows * width,
                "run": runs,
                f"{kind}_run": runs * steps,
                f"{kind}_outputs": out.shape[3] * steps,
                f"{kind}_row": out.shape[3] * plane.half,
                "channel": out.shape[3],
            }
        )
        return Terms(call=1) + x.shape[0] * image + output_table.table_terms(layer)

    def _columns(self, window: Window, *, clamp: bool) -> int:
        """Return the number of adjacent columns that are computed together with the short requantisation."""
        return 2 if not self.thumb1 and not clamp and window.strides[1] == 1 else 1

    def in_place(self, layer: LayerContext, index: int) -> bool:
        x, _, out, _ = depthwise_types(layer)
        return plane_in_place(x, out)

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def lower(self, layer: LayerContext) -> KernelCall:
        x, _, out, window = depthwise_types(layer)
        assert x.quant is not None
        plane = _plan_plane(layer)
        offsets, weights, counts = self._runs(layer)
        multipliers = product_sum.channel_multipliers(layer)
        records = sum_records(layer, depthwise_matrix(layer), multipliers, narrow=self.thumb1)
        # Doubled byte offsets leave a bit that marks the last run.
        columns = self._columns(window, clamp=records.clamp) if records.form == FORM else 1
        spec = (
            ("thumb1", self.thumb1),
            ("columns", columns),
            ("requantize", records.form),
            ("clamp", records.clamp),
            *output_table.table_spec(layer.node),
            ("stride_width", window.strides[1]),
        )
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", weights),
            "runs": Constant("runs", counts.astype(np.uint8)),
            "offsets": Constant("offsets", offsets * (8 if columns == 2 else 4)),
            "channels": records.constant,
            **image_parameters(x, out),
            "channel_multiplier": channel_multiplier(layer),
            "plane_rows": plane.size[0],
            "plane_width": plane.size[1],
            "copied_columns": plane.columns,
            "pad_top": window.padding[0][0],
            "pad_left": window.padding[1][0],
            "half": plane.half,
            "second_row": plane.half * window.strides[0],
            "row_step": window.strides[0] * plane.size[1],
            "input_zero_point": x.quant.zero_point,
            **output_table.table_parameters(layer.node),
        }
        step = "twice the bytes" if columns == 2 else "the bytes"
        fields = describe(self.fields, offsets=f"{step} to each run's first input in the plane, by index")
        function = CFunction("depthwise_conv2d/pairs.c.j2", self.name, spec, fields)
        return KernelCall(function, {**parameters, **records.limits}, self.input_scratch(layer))


@register
class DepthwiseConv2DThumb2(_PairDepthwise):
    """Depthwise convolution for ARMv7-M.

    Requantisation uses one 64-bit product if `plan_affine` finds one for each channel.
    """

    name = "s8_depthwise_conv2d__thumb2_pairs"
    features = frozenset({"thumb2"})
    code = 800
    thumb1 = False


@register
class DepthwiseConv2DThumb1(_PairDepthwise):
    """Depthwise convolution for ARMv6-M.

    Requantisation uses 32-bit products, for which `plan_narrow` finds the shortest form.
    """

    name = "s8_depthwise_conv2d__thumb1_pairs"
    features = frozenset({"thumb1"})
    code = 850
    thumb1 = True
