"""float32 depthwise convolution for floating-point units and for Helium (MVE) with floats.

The rows under the window are in a ring buffer in the scratch. Each column has the channels of a vector next
to each other. Columns outside the image are zeros. Windows wider than `TAPS` are split into pieces. For each
piece, weights are loaded once for up to 4 adjacent pixels. Biases are added last.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from msgspec import Struct

from microfold.ir.types import Array, DType, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.depthwise_conv2d.portable import (
    as_row,
    channel_multiplier,
    depthwise_matrix,
    depthwise_types,
    plane_in_place,
)
from microfold.kernels.fields import Field, declare, describe
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.packing import float16_weights, product_sum
from microfold.kernels.packing.float32_block import CHANNELS, finish_terms, float_clamping
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import IMAGE_FIELDS, image_parameters
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.window import Window

# Maximum number of adjacent outputs that are computed together.
BLOCK = 4
# Maximum number of taps of a piece, whose weights stay in registers.
TAPS = 3
# Maximum number of pieces of a window, whose addresses are on the stack.
MOST_PIECES = 32
# Maximum number of columns that a block reads: the offset range of vector loads.
MOST_COLUMNS = 32


class ColumnRing(Struct, frozen=True):
    """Ring buffer of the rows under the window, with the channels of a column next to each other.

    Attributes:
        block: number of adjacent outputs that are computed together.
        taps: taps of one piece of a window row.
        pieces: pieces of a window row.
        rows, width: rows and columns of the ring.
    """

    x: TensorType
    out: TensorType
    window: Window
    block: int
    taps: int
    pieces: int
    rows: int
    width: int

    @property
    def copied(self) -> int:
        """Number of columns that are copied from the image."""
        return max(min(self.x.shape[2], self.width - self.window.padding[1][0]), 0)

    @property
    def columns(self) -> frozenset[int]:
        """Offsets of the columns that a block reads for a piece, from its first column."""
        step, dilation = self.window.strides[1], self.window.dilations[1]
        return frozenset(p * step + t * dilation for p in range(self.block) for t in range(self.taps))

    @property
    def blocks(self) -> int:
        """Number of blocks in a row of outputs."""
        return -(-self.out.shape[2] // self.block)


def vector_piece_terms(ring: ColumnRing) -> Terms:
    """Count the code parts for a piece of a window row in a block, with vectors."""
    return Terms(piece=1, tap=ring.taps, column=len(ring.columns), product=ring.block * ring.taps)


class RingDepthwise(Kernel):
    """Base class of kernels that compute the channels of a vector for up to 4 adjacent pixels together.

    The sums stay in registers. The rows under the window are copied to a ring buffer in the scratch, with
    zeros as padding. `weights` is [blocks of channels][pieces of rows][taps of a piece][lanes], see
    `_pack_pieces`. Biases are padded to whole blocks.

    Class attributes:
        core: ``fpu`` or ``mve``.
        dtype: type of all values.
        lanes: number of channels that are computed together, 16 bytes.
        half: whether float32 weights are stored as float16.
    """

    op = DepthwiseConv2D
    core: ClassVar[str]
    dtype: ClassVar[DType] = DType.FLOAT32
    lanes: ClassVar[int] = CHANNELS
    half: ClassVar[bool] = False
    fields = declare(
        "weights",
        Field("channels", "biases"),
        *IMAGE_FIELDS,
        "kernel_height",
        "stride_height",
        "dilation_height",
        "pad_top",
        "pad_left",
        "copied_columns",
        "row_pieces",
        "ring_rows",
        "ring_width",
        *output_range.LIMIT_FIELDS,
    )
    pitch_fields = frozenset({"input_width"})

    def supports(self, layer: LayerContext) -> str | None:
        reason = product_sum.unsupported_constants(layer, self.dtype, self.dtype)
        if reason is not None:
            return reason
        if channel_multiplier(layer) != 1:
            return "it requires one output channel for each input channel"
        ring = self.ring(layer)
        if ring.window.size[0] * ring.pieces > MOST_PIECES:
            return f"the window must have at most {MOST_PIECES} rows of up to {TAPS} taps"
        if max(ring.columns) >= MOST_COLUMNS:
            return f"adjacent outputs must read at most {MOST_COLUMNS} columns"
        return None

    def piece_terms(self, ring: ColumnRing) -> Terms:
        """Count the code parts for a piece of a window row in a block."""
        raise NotImplementedError

    def _row_terms(self, layer: LayerContext, ring: ColumnRing) -> Terms:
        clamp_kind, _ = float_clamping(layer)
        columns = ring.out.shape[2]
        products = ring.window.size[0] * ring.pieces * self.piece_terms(ring)
        outputs = Terms(output=columns) + columns * finish_terms(clamp_kind)
        return ring.blocks * (products + Terms(block=1, block_column=ring.block)) + outputs

    def terms(self, layer: LayerContext) -> Terms:
        ring = self.ring(layer)
        batch, height, _, channels = ring.x.shape
        read = (ring.out.shape[1] - 1) * ring.window.strides[0] + ring.rows
        zeros = max(read - height, 0)
        load = Terms(loaded=(read - zeros) * ring.copied, zeroed=zeros * ring.copied, loaded_row=read)
        row = self._row_terms(layer, ring) + Terms(row=1, row_line=ring.window.size[0])
        images = batch * -(-channels // self.lanes)
        return Terms(call=1) + images * (Terms(image=1) + load + ring.out.shape[1] * row)

    def ring(self, layer: LayerContext) -> ColumnRing:
        """Return the ring with the cheapest size of blocks."""
        plans = [_plan_ring(layer, block) for block in range(1, BLOCK + 1)]
        return min(plans, key=lambda ring: (self.price(layer, self._row_terms(layer, ring)), ring.block))

    def in_place(self, layer: LayerContext, index: int) -> bool:
        x, _, out, _ = depthwise_types(layer)
        ring = self.ring(layer)
        # Number of input rows that have been read before a row of the output is written.
        rows = np.arange(ring.out.shape[1])
        read = rows * ring.window.strides[0] - ring.window.padding[0][0] + ring.rows
        safe = (rows + 1) * ring.out.shape[2] <= read * ring.x.shape[2]
        return plane_in_place(x, out) and bool(np.all(safe | (read >= ring.x.shape[1])))

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def lower(self, layer: LayerContext) -> KernelCall:
        ring = self.ring(layer)
        x, out, window = ring.x, ring.out, ring.window
        clamp_kind, limits = float_clamping(layer)
        spec = (
            ("core", self.core),
            ("values", "half" if self.dtype is DType.FLOAT16 else "float"),
            ("half", self.half),
            ("clamp_kind", clamp_kind),
            ("tail", x.shape[3] % self.lanes != 0),
            ("block", ring.block),
            ("exact", out.shape[2] % ring.block == 0),
            ("taps", ring.taps),
            ("stride_width", window.strides[1]),
            ("dilation_width", window.dilations[1]),
            ("most_pieces", MOST_PIECES),
            ("dual_issue", layer.target.has("dual_issue")),
        )
        biases = product_sum.float_biases(layer, out.shape[3]).astype(self.dtype.numpy)
        weights = _pack_pieces(depthwise_matrix(layer), window.size[1], ring, self.lanes)
        parameters: dict[str, Parameter] = {
            "weights": Constant("weights", float16_weights.pack_words(weights) if self.half else weights),
            "channels": Constant("biases", product_sum.pad_channels(biases, self.lanes)),
            **image_parameters(x, out),
            "kernel_height": window.size[0],
            "stride_height": window.strides[0],
            "dilation_height": window.dilations[0],
            "pad_top": window.padding[0][0],
            "pad_left": window.padding[1][0],
            "copied_columns": ring.copied,
            "row_pieces": ring.pieces,
            "ring_rows": ring.rows,
            "ring_width": ring.width,
        }
        scratch = ring.rows * ring.width * self.lanes * x.dtype.itemsize
        if self.half:
            scratch += weights[0].nbytes
        order = f"[input_channels / {self.lanes}][pieces][{ring.taps}][{self.lanes}]"
        fields = describe(
            self.fields,
            weights=f"pairs of float16, {order}" if self.half else order,
            row_pieces=f"pieces of {ring.taps} taps in a row of the kernel",
        )
        function = CFunction("depthwise_conv2d/f32_ring.c.j2", self.name, spec, fields)
        return KernelCall(function, parameters | dict(limits), scratch)


@register
class DepthwiseConv2DFloatFpu(RingDepthwise):
    """float32 depthwise convolution for FPU cores by VMLA, which rounds products and sums separately.

    This is C without contraction.
    """

    name = "f32_depthwise_conv2d__fpu_4x4"
    features = frozenset({"fpu", "thumb2"})
    core = "fpu"

    def piece_terms(self, ring: ColumnRing) -> Terms:
        return Terms(piece=1, column=max(ring.columns), product=ring.block * ring.taps)


@register
class DepthwiseConv2DFloatMve(RingDepthwise):
    """float32 depthwise convolution for Helium (MVE) by VFMA, fused multiply-add, which rounds once."""

    name = "f32_depthwise_conv2d__mve_4x4"
    features = frozenset({"mve_fp"})
    core = "mve"

    def piece_terms(self, ring: ColumnRing) -> Terms:
        return vector_piece_terms(ring)


class _HalfRingDepthwise(float16_weights.HalfWeights, RingDepthwise):
    """Base class of ring kernels with float16 weights, converted once for each image and 4 channels.

    `HalfWeights` proves that the conversion is exact. The weights have the order of float32, two in a word.
    """

    def conversions(self, layer: LayerContext) -> float:
        ring = self.ring(layer)
        taps = ring.window.size[0] * ring.pieces * ring.taps
        return ring.x.shape[0] * -(-ring.x.shape[3] // CHANNELS) * CHANNELS * taps


@register
class DepthwiseConv2DFloatFpuHalf(_HalfRingDepthwise, DepthwiseConv2DFloatFpu):
    """`DepthwiseConv2DFloatFpu` with float16 weights."""

    name = "f32_f16w_depthwise_conv2d__fpu_4x4"


@register
class DepthwiseConv2DFloatMveHalf(_HalfRingDepthwise, DepthwiseConv2DFloatMve):
    """`DepthwiseConv2DFloatMve` with float16 weights."""

    name = "f32_f16w_depthwise_conv2d__mve_4x4"


def _plan_ring(layer: LayerContext, block: int) -> ColumnRing:
    x, _, out, window = depthwise_types(layer)
    if not layer.indirection_buffer:
        x, out, window = as_row(x, out, window)
    taps = min(window.size[1], TAPS)
    pieces = -(-window.size[1] // taps)
    outputs = -(-out.shape[2] // block) * block
    width = (outputs - 1) * window.strides[1] + (pieces * taps - 1) * window.dilations[1] + 1
    rows = (window.size[0] - 1) * window.dilations[0] + 1
    return ColumnRing(x, out, window, block, taps, pieces, rows, width)


def _pack_pieces(matrix: Array, kernel_width: int, ring: ColumnRing, lanes: int) -> Array:
    """Reorder weights [channels, taps] to [blocks of channels, pieces of rows, taps of a piece, lanes]."""
    rows = product_sum.pad_channels(matrix, lanes).reshape(-1, lanes, ring.window.size[0], kernel_width)
    rows = np.pad(rows, ((0, 0), (0, 0), (0, 0), (0, ring.pieces * ring.taps - kernel_width)))
    pieces = rows.reshape(rows.shape[0], lanes, -1, ring.taps)
    return np.ascontiguousarray(pieces.transpose(0, 2, 3, 1))
