"""How depthwise convolutions with DSP instructions cut a layer: bands of rows, one axis unrolled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from microfold.ir.types import TensorType
from microfold.kernels.depthwise_conv2d.portable import (
    depthwise_types,
    plane_in_place,
)
from microfold.kernels.layer import LayerContext
from microfold.kernels.requantize import output_range


@dataclass(frozen=True)
class WindowAxis:
    """Geometry along one axis: of the image, the outputs and the window."""

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
        """Inputs under the windows of neighbouring outputs."""
        return (outputs - 1) * self.stride + self.span


@dataclass(frozen=True)
class Tiling:
    """How a layer is cut.

    Attributes:
        vertical: the rows are along the inner axis, else the columns.
        band: how many output rows of the image are computed at a time.
        corrected: some outputs of negative sums round otherwise.
    """

    x: TensorType
    out: TensorType
    rows: WindowAxis
    columns: WindowAxis
    vertical: bool
    band: int
    corrected: bool

    @property
    def inner(self) -> WindowAxis:
        return self.rows if self.vertical else self.columns

    @property
    def outer(self) -> WindowAxis:
        return self.columns if self.vertical else self.rows

    @property
    def lanes(self) -> int:
        """Channels expanded together."""
        return min(self.x.shape[3], 4)

    @property
    def band_outputs(self) -> tuple[int, int]:
        """Outputs of a full band along the outer and the inner axis."""
        return (self.columns.outputs, self.band) if self.vertical else (self.band, self.columns.outputs)

    def steps(self, image: TensorType) -> tuple[int, int]:
        """Bytes from a pixel of an input or output to the next one along the outer and the inner axis."""
        _, _, width, channels = image.shape
        return (channels, width * channels) if self.vertical else (width * channels, channels)

    @property
    def pitch(self) -> int:
        """Words of one row of a plane."""
        return -(-self.inner.reads(self.band_outputs[1]) // 2)

    @property
    def plane(self) -> int:
        """Words of one channel's plane."""
        return self.pitch * self.outer.reads(self.band_outputs[0])

    @property
    def scratch(self) -> int:
        return 4 * self.plane * self.lanes

    @property
    def row_words(self) -> int:
        """Weight words of one row of taps; see the template."""
        taps = self.inner.taps
        odd = (taps - 1) // 2 if self.inner.dilation == 1 and self.inner.stride % 2 else 0
        return taps // 2 + odd + (taps % 2 if not odd else 0)

    @property
    def in_place(self) -> bool:
        """One band is the whole image, so that channels are finished one after the other."""
        return self.band == self.rows.outputs and plane_in_place(self.x, self.out)

    @cached_property
    def overlap(self) -> int:
        """Smallest input address less output address; bytes.

        A band reads its input rows again for every four channels, and writes in between. When the band is the
        whole image, each channel is copied before it is written.
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

    @property
    def extra_memory(self) -> int:
        """Bytes of scratch, and by how far the output may not lie over the input."""
        return min(max(self.overlap, 0), self.x.nbytes) + self.scratch

    @cached_property
    def instructions(self) -> float:
        """Estimate for the whole layer."""
        full, rest = divmod(self.rows.outputs, self.band)
        total = full * self._band_instructions(self.band) + (self._band_instructions(rest) if rest else 0.0)
        return total * self.x.shape[0]

    def _band_instructions(self, band: int) -> float:
        outers, inners = (self.columns.outputs, band) if self.vertical else (band, self.columns.outputs)
        blocks = -(-self.x.shape[3] // self.lanes)
        pairs = self.inner.reads(inners) / 2
        expand = self.outer.reads(outers) * (28 + pairs * (4 + 2.5 * self.lanes)) + 60
        columns = inners // 4 * self._block(4)
        columns += (self._block(2) if inners & 2 else 0) + (self._block(1) if inners & 1 else 0)
        filters = 55 + self.outer.taps * (4 + 3 * self.inner.taps) + outers * (9 + columns)
        if inners >= 4 and self._in_assembly:
            filters += 35 + 12 * outers
        return blocks * expand + self.out.shape[3] * filters

    @property
    def _in_assembly(self) -> bool:
        """Four outputs are computed by the assembly of dsp_block.j2, if their requantisation is short."""
        axis = self.inner
        return self.outer.taps <= 3 and axis.taps == 3 and axis.stride <= 2 and axis.dilation == 1

    def _block(self, count: int) -> float:
        """Instructions for neighbouring outputs of one row."""
        axis = self.inner
        if count == 4 and self._in_assembly:
            return self.outer.taps * (12 if axis.stride == 1 else 14) + 19 + 8 * self.corrected
        loads = ((count - 1) * axis.stride + axis.span) / 2 + 1
        products = count * (axis.taps if axis.dilation > 1 else (axis.taps + 1.5) / 2)
        each = 6 if self.corrected else 4
        return self.outer.taps * (loads + self.row_words * 0.8 + products) + each * count + 5


def axes(layer: LayerContext) -> tuple[WindowAxis, WindowAxis]:
    """Geometry along rows and columns."""
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


def tilings(layer: LayerContext) -> Iterator[Tiling]:
    """All cuts into bands of about the same height."""
    x, _, out, _ = depthwise_types(layer)
    rows, columns = axes(layer)
    assert out.quant is not None
    corrected = output_range.integer_bounds(layer.node)[0] < out.quant.zero_point
    bands = sorted({-(-rows.outputs // n) for n in range(1, rows.outputs + 1)})
    for vertical in (False, True):
        for band in bands:
            yield Tiling(x, out, rows, columns, vertical, band, corrected)
