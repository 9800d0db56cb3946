"""Pooling kernels in portable C, and the functions that all pooling kernels share."""

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

# Largest window that compilers unroll fully: GCC's max-completely-peel-times, for two nested loops.
UNROLLED = 16


def pool_types(layer: LayerContext) -> tuple[TensorType, TensorType, Window]:
    """Return the types of input and output, and the window."""
    x = layer.node.inputs[0]
    assert x is not None and isinstance(layer.node.op, AveragePool2D | MaxPool2D)
    return x.type, layer.node.outputs[0].type, layer.node.op.window


def window_terms(layer: LayerContext, unit: str, blocks: int, *, joins_rows: bool = False) -> Terms:
    """Count the code parts of the loop over windows; each pixel is computed in `blocks` blocks of channels.

    Args:
        unit: name of a block. Only the rows and taps inside the image count.
        joins_rows: whether the rows of a window that is as wide as the image are merged into one.
    """
    x, out, window = pool_types(layer)
    rows, taps = rows_and_taps(x, out, window)
    size = window.size[0] * window.size[1]
    pixels = out.size // out.shape[3]
    if joins_rows and out.shape[2] == 1 and taps == rows * x.shape[2]:
        rows = pixels
    terms = blocks * Terms({"pixel": pixels / blocks, unit: pixels, "row": rows, "tap": taps})
    # If one layer calls the function, compilers unroll small windows of known size.
    if taps == pixels * size and size <= UNROLLED:
        return Terms({f"known_{name}": count for name, count in terms.items()})
    return terms


def unsupported_pool(layer: LayerContext, *dtypes: DType) -> str | None:
    """Return the reason if a condition of all pooling kernels fails: element type, or an unknown epilogue."""
    x, _, _ = pool_types(layer)
    if x.dtype not in dtypes:
        return f"it needs {' or '.join(d.value for d in dtypes)}; got {x.dtype.value}"
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
    """Return the values of `POOL_FIELDS`."""
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
    """Pooling pixel by pixel and channel by channel, over the elements of the window inside the image.

    The kernel has no constants. Integers are summed in int32, divided with rounding half away from zero, and
    clamped. Floats are summed in the order of the window and divided by their number.

    Class attributes:
        kind: ``average`` or ``max``.
        dtype: element type of input and output.
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

    def supports_indirection(self, layer: LayerContext) -> bool:
        return True

    def row_release_granularity(self, layer: LayerContext) -> int:
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
    """Maxima of int8, clamped, without rounding."""

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
    """Maxima of int16, clamped, without rounding."""

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
    """Maxima of float32, clamped, without rounding."""

    name = "f32_max_pool2d__c"
    op = MaxPool2D
    kind = "max"
    dtype = DType.FLOAT32
