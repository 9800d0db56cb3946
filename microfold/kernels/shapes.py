"""Layer fields with the shapes of images, windows and matrices, and functions that return their values."""

from __future__ import annotations

import numpy as np

from microfold.ir.types import TensorType
from microfold.kernels.call import Parameter
from microfold.kernels.fields import declare
from microfold.ops.window import Window

IMAGE_FIELDS = declare(
    "batch", "input_height", "input_width", "input_channels", "output_height", "output_width"
)

WINDOW_FIELDS = declare(
    "kernel_height",
    "kernel_width",
    "stride_height",
    "stride_width",
    "dilation_height",
    "dilation_width",
    "pad_top",
    "pad_left",
)

# Fields of windows without dilation.
DENSE_WINDOW_FIELDS = tuple(field for field in WINDOW_FIELDS if not field.name.startswith("dilation"))

MATRIX_FIELDS = declare("batch", "inputs", "outputs")


def image_parameters(x: TensorType, out: TensorType) -> dict[str, Parameter]:
    """Return the values of `IMAGE_FIELDS`."""
    return {
        "batch": x.shape[0],
        "input_height": x.shape[1],
        "input_width": x.shape[2],
        "input_channels": x.shape[3],
        "output_height": out.shape[1],
        "output_width": out.shape[2],
    }


def window_parameters(window: Window) -> dict[str, Parameter]:
    """Return the values of `WINDOW_FIELDS`."""
    return {
        "kernel_height": window.size[0],
        "kernel_width": window.size[1],
        "stride_height": window.strides[0],
        "stride_width": window.strides[1],
        "dilation_height": window.dilations[0],
        "dilation_width": window.dilations[1],
        "pad_top": window.padding[0][0],
        "pad_left": window.padding[1][0],
    }


def dense_window_parameters(window: Window) -> dict[str, Parameter]:
    """Return the values of `DENSE_WINDOW_FIELDS`."""
    values = window_parameters(window)
    return {field.name: values[field.name] for field in DENSE_WINDOW_FIELDS}


def rows_and_taps(x: TensorType, out: TensorType, window: Window) -> tuple[int, int]:
    """Return the numbers of window rows and of taps inside the image, summed over all windows."""
    rows, columns = (
        _taps_inside(length, (count, stride), (size, dilation), before)
        for length, count, size, stride, dilation, (before, _) in zip(
            x.shape[1:3],
            out.shape[1:3],
            window.size,
            window.strides,
            window.dilations,
            window.padding,
            strict=True,
        )
    )
    return x.shape[0] * rows * out.shape[2], x.shape[0] * rows * columns


def _taps_inside(length: int, positions: tuple[int, int], taps: tuple[int, int], before: int) -> int:
    """Return the number of taps inside the image along one axis, summed over all window positions.

    Args:
        length: length of the axis.
        positions, taps: count, and distance of two neighbours. The two are interchangeable, so that the
            function loops only over the smaller count.
        before: padding before the first element.
    """
    (few, few_step), (many, step) = sorted((positions, taps))
    offsets = np.arange(few, dtype=np.int64) * few_step - before
    first, end = (np.clip(-((offsets - bound) // step), 0, many) for bound in (0, length))
    return int((end - first).sum())


def matrix_parameters(x: TensorType, out: TensorType) -> dict[str, Parameter]:
    """Return the values of `MATRIX_FIELDS`."""
    return {"batch": x.shape[0], "inputs": x.shape[1], "outputs": out.shape[1]}
