"""Tiling of depthwise convolutions for cores with the DSP extension: bands of rows, one axis unrolled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from msgspec import Struct

from microfold.ir.types import TensorType
from microfold.kernels.cost.terms import Terms
from microfold.kernels.depthwise_conv2d.portable import (
    depthwise_types,
    plane_in_place,
)
from microfold.kernels.layer import LayerContext

# Maximum number of taps of a window that the template unrolls.
UNROLLED_TAPS = 25
# Maximum number of output rows for which all tilings are tried. Their number grows with its square root.
MAX_ROWS = 1 << 14


class WindowAxis(Struct, frozen=True):
    """Geometry of image, outputs and window along one axis."""

    inputs: int
    outputs: int
    taps: int
    stride: int
    dilation: int
    padding: int

    @property
    def span(self) -> int:
        return (self.taps - 1) * self.dilation + 1

    def reads(self, outputs: int) -> int:
        """Return the number of inputs under the windows of adjacent outputs."""
        return (outputs - 1) * self.stride + self.span

    def copied(self, first: int, outputs: int) -> int:
        """Return the number of inputs of the image under the windows of adjacent outputs.

        Args:
            first: first output.
            outputs: number of outputs.
        """
        begin = first * self.stride - self.padding
        return max(min(begin + self.reads(outputs), self.inputs) - max(begin, 0), 0)


class BandTiling(Struct, frozen=True, dict=True):
    """Tiling of a layer.

    Attributes:
        vertical: whether `rows` is the inner axis; otherwise `columns` is.
        band: number of output rows of the image that are computed at a time.
    """

    x: TensorType
    out: TensorType
    rows: WindowAxis
    columns: WindowAxis
    vertical: bool
    band: int

    @property
    def inner(self) -> WindowAxis:
        return self.rows if self.vertical else self.columns

    @property
    def outer(self) -> WindowAxis:
        return self.columns if self.vertical else self.rows

    @property
    def lanes(self) -> int:
        """Number of channels that are expanded together."""
        return min(self.x.shape[3], 4)

    @property
    def band_outputs(self) -> tuple[int, int]:
        """Number of outputs of a full band along the outer and the inner axis."""
        return (self.columns.outputs, self.band) if self.vertical else (self.band, self.columns.outputs)

    def steps(self, image: TensorType) -> tuple[int, int]:
        """Return the bytes from a pixel of an image to the next one along the outer and the inner axis."""
        _, _, width, channels = image.shape
        return (channels, width * channels) if self.vertical else (width * channels, channels)

    @property
    def pitch(self) -> int:
        """Number of words of one row of a plane."""
        return -(-self.inner.reads(self.band_outputs[1]) // 2)

    @property
    def plane(self) -> int:
        """Number of words of one channel's plane."""
        return self.pitch * self.outer.reads(self.band_outputs[0])

    @property
    def scratch(self) -> int:
        return 4 * self.plane * self.lanes

    @property
    def row_words(self) -> int:
        """Number of words of weights of one row of taps, see the template."""
        taps = self.inner.taps
        odd = (taps - 1) // 2 if self.inner.dilation == 1 and self.inner.stride % 2 else 0
        return taps // 2 + odd + (taps % 2 if not odd else 0)

    @property
    def in_place(self) -> bool:
        """Whether one band is the whole image and channels are computed one after the other, in place."""
        return self.band == self.rows.outputs and plane_in_place(self.x, self.out)

    @cached_property
    def overlap(self) -> int:
        """Smallest ``input address - output address``, in bytes.

        A band reads its input rows again for every 4 channels, and writes outputs in between. If the band is
        the whole image, each channel is copied before it is written.
        """
        batch, height, _, _ = self.x.shape
        row_in = self.x.nbytes // (batch * height)
        row_out = self.out.nbytes // (batch * self.rows.outputs)
        if self.in_place:
            return 0
        begins = np.arange(0, self.rows.outputs, self.band)
        ends = np.minimum(begins + self.band, self.rows.outputs)
        first = np.clip(begins * self.rows.stride - self.rows.padding, 0, height)
        image = np.arange(batch)[:, None]
        behind = (image * self.rows.outputs + ends) * row_out
        lowest = (image * height + first) * row_in
        return int((behind - lowest).max())

    def terms(self, form: str, assembled: bool) -> Terms:
        """Count the code parts of the whole layer.

        Args:
            form: form of the requantisation.
            assembled: whether the assembly of dsp_block.j2 supports it, see `in_assembly` for the window.
        """
        lines = pairs = singles = doubles = quads = 0
        columns = self.columns.copied(0, self.columns.outputs)
        for (band, rows), times in self._bands().items():
            along, across = (rows, columns) if self.vertical else (columns, rows)
            outers, inners = (self.columns.outputs, band) if self.vertical else (band, self.columns.outputs)
            lines += times * across
            pairs += times * across * -(-along // 2)
            singles += times * outers * (inners & 1)
            doubles += times * outers * (inners >> 1 & 1)
            quads += times * outers * (inners // 4)
        bands = -(-self.rows.outputs // self.band)
        blocks, filters = -(-self.x.shape[3] // self.lanes), self.out.shape[3]
        expanded = Terms(expansion=bands, row=lines, pair=pairs, pair_lane=pairs * self.lanes)
        words = Terms(filter=1, tap_row=self.outer.taps, tap=self.outer.taps * self.inner.taps)
        found = bands * words
        for times, count in ((singles, 1), (doubles, 2), (quads, 4)):
            found += times * self._block_terms(count, form, assembled)
        return self.x.shape[0] * (blocks * expanded + filters * found)

    def _bands(self) -> Counter[tuple[int, int]]:
        """Return the number of bands, by their rows of outputs and their rows of inputs inside the image."""
        whole, rest = divmod(self.rows.outputs, self.band)
        step = self.band * self.rows.stride
        reads = self.rows.reads(self.band)
        # Bands from `begin` to `end` read no padding.
        begin = min(max(-(-self.rows.padding // step), 0), whole)
        end = min(max((self.rows.inputs - reads + self.rows.padding) // step + 1, begin), whole)
        found = Counter({(self.band, reads): end - begin})
        found.update(
            (self.band, self.rows.copied(number * self.band, self.band))
            for number in (*range(begin), *range(end, whole))
        )
        if rest:
            found[rest, self.rows.copied(whole * self.band, rest)] += 1
        return found

    @property
    def in_assembly(self) -> bool:
        """Whether the assembly of dsp_block.j2 supports the window, if the requantisation is short."""
        axis = self.inner
        return self.outer.taps <= 3 and axis.taps == 3 and axis.stride <= 2 and axis.dilation == 1

    def _block_terms(self, count: int, form: str, assembled: bool) -> Terms:
        """Count the code parts for adjacent outputs of one row."""
        axis, rows = self.inner, self.outer.taps
        if count == 4 and assembled and self.in_assembly:
            return Terms({f"assembled_{form}": 1, f"assembled_row_{axis.stride}": rows})
        loads = ((count - 1) * axis.stride + axis.span) / 2 + 1
        products = count * (axis.taps if axis.dilation > 1 else (axis.taps + 1.5) / 2)
        parts = {"load": rows * loads, "weight": rows * self.row_words, "product": rows * products}
        looped = rows if rows * axis.taps > UNROLLED_TAPS else 0
        return Terms({"block": 1, f"finished_{form}": count, "loop": looped, **parts})


def axes(layer: LayerContext) -> tuple[WindowAxis, WindowAxis]:
    """Return the geometry along rows and columns."""
    x, _, out, window = depthwise_types(layer)
    rows, columns = (
        WindowAxis(
            x.shape[1 + i],
            out.shape[1 + i],
            window.size[i],
            window.strides[i],
            window.dilations[i],
            window.padding[i][0],
        )
        for i in range(2)
    )
    return rows, columns


def too_tall(layer: LayerContext) -> str | None:
    """Return the reason if the image has too many tilings to try them all, else None."""
    rows = depthwise_types(layer)[2].shape[1]
    return f"its output may have at most {MAX_ROWS} rows; it has {rows}" if rows > MAX_ROWS else None


def tilings(layer: LayerContext) -> Iterator[BandTiling]:
    """Yield all tilings into bands of about the same height."""
    x, _, out, _ = depthwise_types(layer)
    rows, columns = axes(layer)
    bands = sorted({-(-rows.outputs // n) for n in range(1, rows.outputs + 1)})
    for vertical in (False, True):
        for band in bands:
            yield BandTiling(x, out, rows, columns, vertical, band)
