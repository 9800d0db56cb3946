"""Resource variables: VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE, CALL_ONCE."""

from __future__ import annotations

from microfold.frontend.context import OperatorContext, Unsupported, describe, imports
from microfold.frontend.variables import Variable
from microfold.ir.types import TensorType


@imports("VAR_HANDLE")
def var_handle(context: OperatorContext) -> None:
    options = context.required_options("VarHandleOptions")
    container, name = options.text("Container"), options.text("SharedName")
    context.scope.variables.handle(context.raw.outputs[0], (container, name))


def _variable(context: OperatorContext) -> Variable:
    variable = context.scope.variables.handles.get(context.resource(0))
    if variable is None:
        raise Unsupported("its variable has no VAR_HANDLE before it")
    return variable


@imports("READ_VARIABLE")
def read_variable(context: OperatorContext) -> None:
    """A snapshot: what was assigned last in this call, or what the call began with."""
    variable = _variable(context)
    if variable.current is None:
        declared = context.declared_type()
        if variable.initial_type is not None:
            _require_alike(variable.initial_type, declared)
        variable.read(declared)
    assert variable.current is not None
    context.finish(variable.current)


@imports("ASSIGN_VARIABLE")
def assign_variable(context: OperatorContext) -> None:
    variable, value = _variable(context), context.input(1)
    if context.scope.is_initializer:
        variable.initial = context.constant(1, "initial value of a variable")
        variable.initial_type = value.type
        return
    if variable.value is not None:
        _require_alike(value.type, variable.value.type)
        if value.type != variable.value.type:
            raise AssertionError("types alike must be equal")
    variable.current = value if context.scope.runs is None else context.kept(value, variable.read(value.type))


def _require_alike(given: TensorType, expected: TensorType) -> None:
    if given != expected:
        raise Unsupported(
            f"a variable must keep its type: it is {expected} ({describe(expected.quant)}) and is assigned "
            f"{given} ({describe(given.quant)})",
            "quantise the model with a converter that shares the scale of a variable",
        )


@imports("CALL_ONCE")
def call_once(context: OperatorContext) -> None:
    """Its subgraph may assign constants to variables: their initial values."""
    index = int(context.required_options("CallOnceOptions").InitSubgraphIndex())
    context.scope.initialize(index)
