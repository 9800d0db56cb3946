"""Shared functions of the importers of signal operators."""

from __future__ import annotations

from microfold.frontend import flexbuffer
from microfold.frontend.context import OperatorContext, Unsupported
from microfold.ir.node import Value
from microfold.ir.op import Op
from microfold.ops.movement.bitcast import Bitcast


def read(context: OperatorContext, *names: str) -> dict[str, int]:
    """Return the operator's options, which must have exactly these names."""
    return flexbuffer.integers(context.raw.custom_options(), names)


def emit(context: OperatorContext, op: Op, *inputs: Value) -> None:
    """Emit the operator, and finish with its results."""
    count = len(op.infer_all([value.type for value in inputs]))
    finish(context, *context.emit(op, *inputs, names=names(context, count)))


def names(context: OperatorContext, count: int) -> list[str]:
    """Return the names of the outputs, after checking that the operator has `count`."""
    if len(context.raw.outputs) != count:
        raise Unsupported(f"it must have {count} outputs; it has {len(context.raw.outputs)}")
    return [context.name(index) for index in range(count)]


def finish(context: OperatorContext, *values: Value) -> None:
    """Finish with these outputs. Integers keep their bits, but have the scales in the file."""
    results: list[Value] = []
    for index, value in enumerate(values):
        element = context.element(index)
        if element.dtype is not value.type.dtype:
            raise Unsupported(f"output {index} must be {value.type.dtype.value}; it is {element.dtype.value}")
        if element != value.type.element:
            (value,) = context.emit(Bitcast(element), value, names=[f"{value.name}_as_stated"])
        results.append(value)
    context.finish(*results)
