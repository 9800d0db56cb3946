"""Overlap of an output with an input that the kernel is still reading."""

from __future__ import annotations

import math

import numpy as np

from microfold.ir import limits
from microfold.ir.types import Array, TensorType
from microfold.kernels.kernel import Kernel
from microfold.kernels.layer import LayerContext
from microfold.ops.window import Window


def overlap_of(kernel: Kernel, layer: LayerContext, index: int) -> int | None:
    """Return `Kernel.overlap`, computed once for each layer because planners ask often."""
    return layer.remembered((overlap_of, kernel, index), lambda: kernel.overlap(layer, index))


def window_overlap(
    x: TensorType,
    out: TensorType,
    window: Window,
    group: int,
    *,
    reads_first: bool = True,
    across_rows: bool = False,
) -> int:
    """Return the smallest ``input address - output address`` for a kernel that slides a window in row order.

    The kernel computes outputs row by row, `group` adjacent pixels with all their channels at a time.

    Args:
        x, out: NHWC types.
        group: number of pixels that are computed together.
        reads_first: whether all reads of a group come before its first write; otherwise they are mixed.
        across_rows: whether a group may continue in the next row or image; otherwise it ends with its row.

    Returns:
        The largest distance in bytes by which writes run ahead of the bytes that are still to be read. For
        outputs of more than `limits.OVERLAP_PIXELS` pixels, an upper bound that permits no overlap.
    """
    if _is_large(out):
        return out.nbytes
    batch, rows, columns, _ = out.shape
    lowest, behind = _accesses(x, out, window)
    if across_rows:
        begins = np.arange(0, lowest.size, group)
    else:
        begins = (np.arange(batch * rows)[:, None] * columns + np.arange(0, columns, group)).reshape(-1)
    lowest = np.minimum.reduceat(lowest.reshape(-1), begins)
    behind = np.maximum.reduceat(behind.reshape(-1), begins)
    return _run_ahead(lowest, behind, x, reads_first=reads_first)


def band_overlap(x: TensorType, out: TensorType, window: Window, group: int, rows: int) -> int:
    """Return the smallest ``input address - output address`` for a kernel that computes bands in order.

    The kernel computes `group` columns of a band at a time, and does all reads of these columns before their
    first write. It computes the remaining columns of a band pixel by pixel.

    Args:
        group: number of columns that are computed together.
        rows: number of rows of a band.
    """
    if _is_large(out):
        return out.nbytes
    lowest, behind = _accesses(x, out, window)
    batch, height, columns, _ = out.shape
    image, row, column = np.ogrid[:batch, :height, :columns]
    whole = columns // group * group
    bands = -(-height // rows)
    left_over = whole // group + (column - whole) * rows + row % rows
    order = np.where(column < whole, column // group, left_over)
    order = order + (image * bands + row // rows) * (columns * rows + 1)
    _, unit = np.unique(order.reshape(-1), return_inverse=True)
    first = np.full(unit.max() + 1, x.nbytes)
    last = np.zeros_like(first)
    np.minimum.at(first, unit, lowest.reshape(-1))
    np.maximum.at(last, unit, behind.reshape(-1))
    return _run_ahead(first, last, x, reads_first=True)


def _is_large(out: TensorType) -> bool:
    return math.prod(out.shape[:3]) > limits.OVERLAP_PIXELS


def _accesses(x: TensorType, out: TensorType, window: Window) -> tuple[Array, Array]:
    """Return offsets of each pixel's first byte read and of the end of its write, [batch, rows, columns]."""
    batch, rows, columns, channels = out.shape
    row = np.maximum(np.arange(rows) * window.strides[0] - window.padding[0][0], 0)
    column = np.maximum(np.arange(columns) * window.strides[1] - window.padding[1][0], 0)
    image = np.arange(batch)[:, None, None]
    lowest = ((image * x.shape[1] + row[:, None]) * x.shape[2] + column) * x.shape[3] * x.dtype.itemsize
    behind = np.arange(1, lowest.size + 1) * channels * out.dtype.itemsize
    return lowest, behind.reshape(lowest.shape)


def _run_ahead(lowest: Array, behind: Array, x: TensorType, *, reads_first: bool) -> int:
    """Return the largest distance by which writes run ahead of reads, in bytes.

    Args:
        lowest, behind: offsets of the first read and of the end of the writes, for each group in order.
    """
    still_needed = np.minimum.accumulate(lowest[::-1])[::-1]
    if reads_first:
        behind, still_needed = behind[:-1], still_needed[1:]
    if behind.size == 0:
        return -x.nbytes
    return int((behind - still_needed).max())
