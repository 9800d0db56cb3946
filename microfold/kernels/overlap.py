"""How far an output may lie over an input that the kernel is still reading."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import TensorType
from microfold.ops.window import Window


def window_overlap(
    x: TensorType, out: TensorType, window: Window, group: int, *, reads_first: bool = True
) -> int:
    """Smallest ``input address - output address`` for a kernel that slides a window in row order.

    The kernel computes outputs row by row, `group` neighbouring pixels (all their channels) at a time.

    Args:
        x, out: NHWC types.
        group: pixels computed together; a group ends with its row.
        reads_first: all reads of a group come before its first write; otherwise they mix.

    Returns:
        Bytes: the most by which writing runs ahead of what is still to be read.
    """
    batch, rows, columns, _ = out.shape
    starts = np.arange(0, columns, group)
    ends = np.minimum(starts + group, columns)
    row = np.maximum(np.arange(rows) * window.strides[0] - window.padding[0][0], 0)
    column = np.maximum(starts * window.strides[1] - window.padding[1][0], 0)
    pixel_in = x.shape[3] * x.dtype.itemsize
    pixel_out = out.shape[3] * out.dtype.itemsize
    # First byte that a group reads, and the byte behind its last write, in order of computation.
    image = np.arange(batch)[:, None, None]
    lowest = ((image * x.shape[1] + row[:, None]) * x.shape[2] + column) * pixel_in
    behind = ((image * rows + np.arange(rows)[:, None]) * columns + ends) * pixel_out
    lowest, behind = lowest.reshape(-1), behind.reshape(-1)
    still_needed = np.minimum.accumulate(lowest[::-1])[::-1]
    if reads_first:
        behind, still_needed = behind[:-1], still_needed[1:]
    if behind.size == 0:
        return -x.nbytes
    return int((behind - still_needed).max())
