"""BATCH_MATMUL."""

from __future__ import annotations

from microfold.frontend.context import OperatorContext, imports
from microfold.ops.batch_matmul import BatchMatmul


@imports("BATCH_MATMUL")
def batch_matmul(context: OperatorContext) -> None:
    options = context.required_options("BatchMatMulOptions")
    op = BatchMatmul(bool(options.AdjX()), bool(options.AdjY()), context.element())
    context.finish(*context.emit(op, context.input(0), context.input(1)))
