"""Operators that move elements or look at them under another shape."""

from __future__ import annotations

import math

from microfold.frontend.context import OperatorContext, Unsupported, imports
from microfold.frontend.operators.convolution import require_same_quantization
from microfold.ir.types import Shape
from microfold.ops.pad import Pad
from microfold.ops.reshape import Reshape


@imports("RESHAPE")
def reshape(context: OperatorContext) -> None:
    """The target shape is the second input; without one, the options; without those, the declared shape."""
    x = context.input(0)
    options = context.options("ReshapeOptions")
    if context.optional(1) is not None:
        target = tuple(int(n) for n in context.constant(1, "target shape").reshape(-1))
    elif options is not None and options.NewShapeLength() in range(1, 9):
        target = tuple(int(options.NewShape(i)) for i in range(options.NewShapeLength()))
    else:
        target = context.declared_shape()
    (result,) = context.emit(Reshape(resolve_shape(target, x.type.size)), x)
    context.finish(result)


def resolve_shape(target: Shape, elements: int) -> Shape:
    """Replace one -1 by what makes the number of elements right."""
    known = math.prod(n for n in target if n != -1)
    if target.count(-1) > 1 or any(n < -1 for n in target):
        raise Unsupported(f"a target shape may have one -1; it is {list(target)}")
    if -1 not in target:
        return target
    if known == 0 or elements % known:
        raise Unsupported(f"{elements} elements do not fit the target shape {list(target)}")
    return tuple(elements // known if n == -1 else n for n in target)


@imports("PAD", "PADV2")
def pad(context: OperatorContext) -> None:
    x = context.input(0)
    table = context.constant(1, "padding").reshape(-1, 2)
    require_same_quantization(x, context.element().quant)
    zero = x.type.quant.zero_point if x.type.quant is not None else 0
    fill = float(context.constant(2, "fill value").reshape(-1)[0]) if context.optional(2) else float(zero)
    pairs = tuple((int(before), int(after)) for before, after in table)
    context.finish(*context.emit(Pad(pairs, fill), x))
