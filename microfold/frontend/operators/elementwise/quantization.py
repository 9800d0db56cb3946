"""Importers of changes of representation: QUANTIZE, DEQUANTIZE, CAST, BITCAST, DENSIFY."""

from __future__ import annotations

from microfold.frontend.context import OperatorContext
from microfold.frontend.importers import imports
from microfold.frontend.operators.signal.fourier import finish_complex, part
from microfold.ir.types import DType
from microfold.ops.elementwise.conversions.cast import Cast
from microfold.ops.elementwise.conversions.dequantize import Dequantize
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.ops.elementwise.conversions.requantize import Requantize
from microfold.ops.elementwise.fake_quantize import FakeQuantize
from microfold.ops.movement.bitcast import Bitcast


@imports("QUANTIZE")
def quantize(context: OperatorContext) -> None:
    x = context.input(0)
    op = Quantize if x.type.dtype.is_float else Requantize
    context.finish(*context.emit(op(context.element()), x))


@imports("DEQUANTIZE")
def dequantize(context: OperatorContext) -> None:
    x = context.input(0)
    op = Cast(DType.FLOAT32) if x.type.dtype is DType.FLOAT16 else Dequantize()
    context.finish(*context.emit(op, x))


@imports("FAKE_QUANT")
def fake_quant(context: OperatorContext) -> None:
    options = context.required_options("FakeQuantOptions")
    limits, bits = (float(options.Min()), float(options.Max())), int(options.NumBits())
    op = FakeQuantize(*limits, bits, bool(options.NarrowRange()))
    context.finish(*context.emit(op, context.input(0)))


@imports("CAST")
def cast(context: OperatorContext) -> None:
    """Convert element types. Float16 and integers are converted via float32, as in LiteRT.

    A complex number becomes its real part. A real number becomes complex with the imaginary part 0.
    """
    x, name = context.input(0), context.name()
    parts, to_complex = context.parts(0), context.declares_complex()
    if parts is not None and to_complex:
        context.finish(x)
        return
    if to_complex:
        if x.type.dtype is not DType.FLOAT32:
            (x,) = context.emit(Cast(DType.FLOAT32), x, names=[f"{name}_float"])
        finish_complex(context, x)
        return
    dtype = context.element().dtype
    if parts is not None:
        x = part(context, parts, 0, f"{name}_real")
    if DType.FLOAT16 in (x.type.dtype, dtype) and not (x.type.dtype.is_float and dtype.is_float):
        (x,) = context.emit(Cast(DType.FLOAT32), x, names=[f"{context.name()}_float"])
    context.finish(*context.emit(Cast(dtype), x))


@imports("BITCAST")
def bitcast(context: OperatorContext) -> None:
    context.finish(*context.emit(Bitcast(context.element()), context.input(0)))


@imports("DENSIFY")
def densify(context: OperatorContext) -> None:
    # The reader has already made sparse constants dense.
    context.constant(0, "input")
    context.finish(context.input(0))
