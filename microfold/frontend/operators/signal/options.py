"""What importers of the signal operators share."""

from __future__ import annotations

from microfold.frontend import flexbuffer
from microfold.frontend.context import OperatorContext, Unsupported
from microfold.ir.node import Value
from microfold.ir.op import Op
from microfold.ops.movement.bitcast import Bitcast


def read(context: OperatorContext, *names: str) -> dict[str, int]:
    """The operator's options, which have these names."""
    return flexbuffer.integers(context.raw.custom_options(), names)


def emit(context: OperatorContext, op: Op, *inputs: Value) -> None:
    """The operator is this one, of as many results."""
    count = len(op.infer_all([value.type for value in inputs]))
    finish(context, *context.emit(op, *inputs, names=names(context, count)))


def names(context: OperatorContext, count: int) -> list[str]:
    """Names of so many outputs, of which the operator must have as many."""
    if len(context.raw.outputs) != count:
        raise Unsupported(f"it must have {count} outputs; it has {len(context.raw.outputs)}")
    return [context.name(index) for index in range(count)]


def finish(context: OperatorContext, *values: Value) -> None:
    """These are its outputs, integers as they are: what the file says of their scales stays so."""
    results: list[Value] = []
    for index, value in enumerate(values):
        element = context.element(index)
        if element.dtype is not value.type.dtype:
            raise Unsupported(f"output {index} must be {value.type.dtype.value}; it is {element.dtype.value}")
        if element != value.type.element:
            (value,) = context.emit(Bitcast(element), value, names=[f"{value.name}_as_stated"])
        results.append(value)
    context.finish(*results)
