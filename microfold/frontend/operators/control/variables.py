"""Importers of resource variables: VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, CALL_ONCE."""

from __future__ import annotations

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.variables import Variable
from microfold.ir.node import Value
from microfold.ir.types import TensorType
from microfold.ops.movement.bitcast import Bitcast


@imports("VAR_HANDLE")
def var_handle(context: OperatorContext) -> None:
    options = context.required_options("VarHandleOptions")
    container, name = options.text("Container"), options.text("SharedName")
    context.scope.variables.handle(context.raw.outputs[0], (container, name))


def _variable(context: OperatorContext) -> Variable:
    variable = context.scope.variables.handles.get(context.resource(0))
    if variable is None:
        raise Unsupported("its variable must have an earlier VAR_HANDLE")
    return variable


@imports("READ_VARIABLE")
def read_variable(context: OperatorContext) -> None:
    """Read the last value assigned in this run, or the value at the start of the run."""
    variable, declared = _variable(context), context.declared_type()
    if variable.current is None:
        if variable.initial_type is not None:
            _require_same_bytes(variable.initial_type, declared)
        variable.read(declared)
    assert variable.current is not None
    context.finish(_taken_for(context, variable.current, declared, context.name()))


@imports("ASSIGN_VARIABLE")
def assign_variable(context: OperatorContext) -> None:
    """Store the bytes of a value. The references copy them regardless of the scale."""
    variable, value = _variable(context), context.input(1)
    if context.scope.is_initializer:
        variable.initial = context.constant(1, "initial value of a variable")
        variable.initial_type = value.type
        return
    if variable.value is not None:
        value = _taken_for(context, value, variable.value.type, f"{value.name}_assigned")
    variable.current = value if context.scope.runs is None else context.kept(value, variable.read(value.type))


def _taken_for(context: OperatorContext, value: Value, type: TensorType, name: str) -> Value:
    if value.type == type:
        return value
    _require_same_bytes(value.type, type)
    return context.emit(Bitcast(type.element), value, names=[name])[0]


def _require_same_bytes(given: TensorType, expected: TensorType) -> None:
    if (given.dtype, given.shape) != (expected.dtype, expected.shape):
        raise Unsupported(
            f"a variable must keep its element type and shape; it is {expected}, and is assigned {given}",
            "export the model again",
        )


@imports("CALL_ONCE")
def call_once(context: OperatorContext) -> None:
    """Run the initialiser subgraph, which assigns initial values to variables."""
    index = int(context.required_options("CallOnceOptions").InitSubgraphIndex())
    context.scope.initialize(index)
