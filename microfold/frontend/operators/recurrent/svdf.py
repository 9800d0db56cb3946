"""SVDF."""

from __future__ import annotations

from microfold.frontend.context import OperatorContext, imports
from microfold.ops.recurrent.svdf import Svdf


@imports("SVDF")
def svdf(context: OperatorContext) -> None:
    """Input 4 is updated in place. The reference applies the fused activation to floating point only."""
    options = context.required_options("SVDFOptions")
    op = Svdf(int(options.Rank()), context.element())
    operands = (context.input(0), context.input(1), context.input(2), context.optional(3), context.input(4))
    result, state = context.emit(op, *operands, names=[context.name(), f"{operands[4].name}_next"])
    context.update_in_place(4, state)
    if result.type.dtype.is_float:
        context.finish_activated(result, int(options.FusedActivationFunction()))
    else:
        context.finish(result)
