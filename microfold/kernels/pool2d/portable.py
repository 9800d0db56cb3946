"""Pooling kernels in portable C, and what all pooling kernels share."""

from __future__ import annotations

from microfold.ir.types import DType, TensorType
from microfold.kernels.call import CFunction, KernelCall, Parameter
from microfold.kernels.cost.terms import Terms
from microfold.kernels.fields import declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.kernels.overlap import window_overlap
from microfold.kernels.requantize import output_range
from microfold.kernels.shapes import DENSE_WINDOW_FIELDS, dense_window_parameters, rows_and_taps
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.window import Window

# Elements of a window that compilers write out: GCC's max-completely-peel-times, twice within each other.
UNROLLED = 16


def pool_types(layer: LayerContext) -> tuple[TensorType, TensorType, Window]:
    """Types of input and output, and the window."""
    x = layer.node.inputs[0]
    assert x is not None and isinstance(layer.node.op, AveragePool2D | MaxPool2D)
    return x.type, layer.node.outputs[0].type, layer.node.op.window


def window_terms(layer: LayerContext, unit: str, blocks: int, *, joins_rows: bool = False) -> Terms:
    """Parts of the loop over windows, where each pixel is computed in so many blocks of channels.

    Args:
        unit: what a block is called; its rows and taps are those that lie in the image.
        joins_rows: rows of windows as wide as the image are taken as one.
    """
    x, out, window = pool_types(layer)
    rows, taps = rows_and_taps(x, out, window)
    size = window.size[0] * window.size[1]
    pixels = out.size // out.shape[3]
    if joins_rows and out.shape[2] == 1 and taps == rows * x.shape[2]:
        rows = pixels
    terms = blocks * Terms({"pixel": pixels / blocks, unit: pixels, "row": rows, "tap": taps})
    # In functions for one layer, compilers write out windows that are small, and whose sizes are known.
    if taps == pixels * size and size <= UNROLLED:
        return Terms({f"known_{name}": count for name, count in terms.items()})
    return terms


def unsupported_pool(layer: LayerContext, *dtypes: DType) -> str | None:
    """The conditions that all pooling kernels share: one of the element types, clips only."""
    x, _, _ = pool_types(layer)
    if x.dtype not in dtypes:
        return f"it needs {' or '.join(d.value for d in dtypes)}; the input is {x.dtype.value}"
    return output_range.unsupported_epilogue(layer.node)


POOL_FIELDS = declare(
    "batch",
    "input_height",
    "input_width",
    "channels",
    "output_height",
    "output_width",
    *DENSE_WINDOW_FIELDS,
)


def pool_parameters(layer: LayerContext) -> dict[str, Parameter]:
    """Values of `POOL_FIELDS`."""
    x, out, window = pool_types(layer)
    return {
        "batch": x.shape[0],
        "input_height": x.shape[1],
        "input_width": x.shape[2],
        "channels": x.shape[3],
        "output_height": out.shape[1],
        "output_width": out.shape[2],
        **dense_window_parameters(window),
    }


class _Pool2D(Kernel):
    """One output pixel after the other, and within it one channel: all elements of its window in the image.

    No constants. Integers are summed up in int32, divided with halves rounded away from zero, and clamped;
    floats are summed up in the order of the window and divided by their number.

    Class attributes:
        kind: ``average`` or ``max``.
        dtype: of input and output.
    """

    kind: str
    dtype: DType
    fields = (*POOL_FIELDS, *output_range.LIMIT_FIELDS)

    def supports(self, layer: LayerContext) -> str | None:
        return unsupported_pool(layer, self.dtype)

    def terms(self, layer: LayerContext) -> Terms:
        _, out, _ = pool_types(layer)
        return Terms(call=1) + window_terms(layer, "output", out.shape[3])

    def overlap(self, layer: LayerContext, index: int) -> int | None:
        x, out, window = pool_types(layer)
        return window_overlap(x, out, window, 1, reads_first=False)

    def reads_rows(self, layer: LayerContext) -> bool:
        return True

    def rows_held(self, layer: LayerContext) -> int:
        return 1

    def lower(self, layer: LayerContext) -> KernelCall:
        parameters = pool_parameters(layer)
        if self.dtype.is_float:
            low, high = output_range.float_bounds(layer.node)
            spec = (("kind", self.kind),)
            template = "pool2d/f32.c.j2"
        else:
            low, high = output_range.integer_bounds(layer.node)
            spec = (("kind", self.kind), ("type", f"{self.dtype.value}_t"))
            template = "pool2d/portable.c.j2"
        parameters |= {"output_minimum": low, "output_maximum": high}
        return KernelCall(CFunction(template, self.name, spec, self.fields), parameters)


@register
class AveragePool2DInt8(_Pool2D):
    """Means of int8, by a division of the int32 sum."""

    name = "s8_average_pool2d__c"
    op = AveragePool2D
    kind = "average"
    dtype = DType.INT8


@register
class AveragePool2DUint8(_Pool2D):
    """Means of legacy uint8, by a division of the int32 sum."""

    name = "u8_average_pool2d__c"
    like = "s8_average_pool2d__c"
    op = AveragePool2D
    kind = "average"
    dtype = DType.UINT8


@register
class MaxPool2DInt8(_Pool2D):
    """Maxima of int8, clamped; nothing is rounded."""

    name = "s8_max_pool2d__c"
    op = MaxPool2D
    kind = "max"
    dtype = DType.INT8


@register
class AveragePool2DInt16(_Pool2D):
    """Means of int16, by a division of the int32 sum."""

    name = "s16_average_pool2d__c"
    op = AveragePool2D
    kind = "average"
    dtype = DType.INT16


@register
class MaxPool2DInt16(_Pool2D):
    """Maxima of int16, clamped; nothing is rounded."""

    name = "s16_max_pool2d__c"
    op = MaxPool2D
    kind = "max"
    dtype = DType.INT16


@register
class AveragePool2DFloat(_Pool2D):
    """Means of float32: a sum in the order of the window, and a division."""

    name = "f32_average_pool2d__c"
    op = AveragePool2D
    kind = "average"
    dtype = DType.FLOAT32


@register
class MaxPool2DFloat(_Pool2D):
    """Maxima of float32, clamped; nothing is rounded."""

    name = "f32_max_pool2d__c"
    op = MaxPool2D
    kind = "max"
    dtype = DType.FLOAT32
