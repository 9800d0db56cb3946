"""Importers of operators that run subgraphs: IF, WHILE, CALL, STABLEHLO_COMPOSITE.

Variables that a subgraph reads or assigns become operands and results of the operator.
"""

from __future__ import annotations

from collections.abc import Sequence

from microfold.frontend.bodies import Body
from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.frontend.variables import Variable
from microfold.ir.node import Value
from microfold.ir.op import Op
from microfold.ir.outline import fresh_name
from microfold.ir.types import TensorType
from microfold.ops.control.call import Call
from microfold.ops.control.control_flow import If, While


@imports("IF")
def if_(context: OperatorContext) -> None:
    options = context.required_options("IfOptions")
    condition = context.input(0)
    indices = (int(options.ThenSubgraphIndex()), int(options.ElseSubgraphIndex()))
    runs = _Runs(context, indices, first=1)
    then, otherwise = runs.bodies
    if [_is_variable(x) for x in then.outputs] != [_is_variable(x) for x in otherwise.outputs]:
        raise Unsupported("its branches differ in which outputs are variables")
    op = If(runs.add(then), runs.add(otherwise), runs.results(then))
    runs.finish(op, [condition, *runs.operands], then)


@imports("WHILE")
def while_(context: OperatorContext) -> None:
    options = context.required_options("WhileOptions")
    indices = (int(options.CondSubgraphIndex()), int(options.BodySubgraphIndex()))
    runs = _Runs(context, indices, first=0)
    condition, body = runs.bodies
    if any(condition.assigns(variable) for variable in runs.touched):
        raise Unsupported("its condition assigns a variable")
    if [x for x in body.outputs if isinstance(x, Variable)] != runs.variables:
        raise Unsupported("its body must return the variables that it receives")
    op = While(runs.add(condition, gives=False), runs.add(body))
    runs.finish(op, runs.operands, body)


@imports("CALL")
def call(context: OperatorContext) -> None:
    _call(context, int(context.required_options("CallOptions").Subgraph()))


@imports("STABLEHLO_COMPOSITE")
def composite(context: OperatorContext) -> None:
    """Import a composite as a call of its decomposition, a subgraph of the file."""
    options = context.raw.newer_options("StableHLOCompositeOptions")
    if options is None:
        raise Unsupported("its StableHLOCompositeOptions are missing", "export the model again")
    _call(context, int(options.DecompositionSubgraphIndex()))


def _call(context: OperatorContext, subgraph: int) -> None:
    runs = _Runs(context, (subgraph,), first=0)
    (body,) = runs.bodies
    runs.finish(Call(runs.add(body), runs.results(body)), runs.operands, body)


def _is_variable(x: Value | Variable) -> bool:
    return isinstance(x, Variable)


class _Runs:
    """Subgraphs that an operator runs on its inputs, with the variables that they use.

    Attributes:
        variables: variables among the inputs.
        touched: variables that the subgraphs read or assign.
        contents: values of the touched variables before the operator.
        operands: the other inputs, followed by `contents`.
    """

    def __init__(self, context: OperatorContext, indices: Sequence[int], first: int):
        self.context = context
        handles = context.scope.variables.handles
        given: list[Value | Variable] = []
        for position in range(first, context.input_count):
            variable = handles.get(context.resource(position))
            given.append(variable if variable is not None else context.input(position))
        self.bodies = [context.scope.enter(index, given) for index in indices]
        self.variables = [x for x in given if isinstance(x, Variable)]
        self.touched = list(dict.fromkeys(v for body in self.bodies for v in body.variables))
        self.contents = [v.read(self._content_type(v)) for v in self.touched]
        self.operands = [*(x for x in given if isinstance(x, Value)), *self.contents]

    def _content_type(self, variable: Variable) -> TensorType:
        return next(c.type for body in self.bodies if (c := body.content(variable)) is not None)

    def add(self, body: Body, *, gives: bool = True) -> str:
        """Add the body to the subgraphs of the current graph, and return its name."""
        subgraphs = self.context.scope.subgraphs
        name = fresh_name(body.graph.name, subgraphs)
        subgraphs[name] = body.closed(self.contents, self.touched, gives=gives)
        return name

    def results(self, body: Body) -> tuple[TensorType, ...]:
        """Return the types of the body's results, including variables."""
        return (*body.graph.signature.outputs, *(value.type for value in self.contents))

    def finish(self, op: Op, inputs: Sequence[Value], body: Body) -> None:
        """Emit the operator. Its results become the outputs, and the new values of the variables."""
        context, scope = self.context, self.context.scope
        op.check_bodies([x.type for x in inputs], [scope.subgraphs[name].signature for name in op.bodies])
        tensors = context.raw.outputs
        if len(tensors) != len(body.outputs):
            raise Unsupported(f"it must have {len(body.outputs)} outputs; it has {len(tensors)}")
        plain = [t for t, x in zip(tensors, body.outputs, strict=True) if not isinstance(x, Variable)]
        names = [*(scope.tensors[t].name for t in plain), *(variable.name for variable in self.touched)]
        results = context.emit(op, *inputs, names=names)
        scope.values.update(zip(plain, results, strict=False))
        for tensor, x in zip(tensors, body.outputs, strict=True):
            if isinstance(x, Variable):
                scope.variables.handles[tensor] = x
        for variable, value in zip(self.touched, results[len(plain) :], strict=True):
            if any(body.assigns(variable) for body in self.bodies):
                assert variable.current is not None
                variable.current = context.kept(value, variable.current)
