"""Nodes of the graph, and the values between nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec import Struct

from microfold.ir.op import NO_FUNCTIONS, Function, Op
from microfold.ir.types import Tensor, TensorType

# Maximum number of characters of a name in messages.
BRIEF = 60


def primary_name(text: str) -> str:
    """Return the name of the layer from the names that TensorFlow joins by ``;`` when it fuses operators.

    The bias has the name of the layer, so it is preferred. Without a bias, the first name is the operator's
    own.
    """
    joined = [part for part in text.split(";") if part and not part.isdigit()] or [""]
    return next((part for part in joined if part.endswith("/BiasAdd")), joined[0])


class Value(Struct, frozen=True, eq=False):
    """SSA value, compared by identity. The name is for people and need not be unique."""

    name: str
    type: TensorType

    @property
    def short_name(self) -> str:
        """Name for messages: the primary one of joined names, with long names cut in the middle."""
        name = primary_name(self.name) or self.name
        return name if len(name) <= BRIEF else f"{name[: BRIEF // 2]}…{name[-(BRIEF // 2 - 1) :]}"

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


class EpilogueStep(Struct, frozen=True):
    """Fused operation, applied to the running value of its node.

    The running value is the operator's first operand; `operands` are the others.
    """

    op: Op
    operands: tuple[Value, ...] = ()


class Node(Struct, frozen=True, eq=False, dict=True):
    """Operator applied to values. The `epilogue` steps are then applied to its first output."""

    op: Op
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    epilogue: tuple[EpilogueStep, ...] = ()

    @property
    def output(self) -> Value:
        """Output of a node with exactly one output."""
        (value,) = self.outputs
        return value

    @cached_property
    def operands(self) -> tuple[Value, ...]:
        """All values that the node reads: inputs that are present, then the epilogue's operands."""
        return tuple(value for value in self.arguments if value is not None)

    @cached_property
    def arguments(self) -> tuple[Value | None, ...]:
        """Like `operands`, with None for absent inputs. Kernels number these, see `Kernel.data_inputs`."""
        return (*self.inputs, *(value for step in self.epilogue for value in step.operands))

    def infer(self) -> tuple[TensorType, ...]:
        """Return the types of the outputs by the type rules of the operator and its epilogue."""
        types = self.op.infer_all([v.type if v is not None else None for v in self.inputs])
        for step in self.epilogue:
            types = (*step.op.infer_all([types[0], *(v.type for v in step.operands)]), *types[1:])
        return types

    def evaluate(
        self, tensors: Mapping[Value, Tensor], functions: Mapping[str, Function] = NO_FUNCTIONS
    ) -> tuple[Tensor, ...]:
        """Evaluate the node on numpy arrays.

        Args:
            functions: functions of the bodies that the operator names (`microfold.ir.interpret.functions`).
        """
        operands = [tensors[v] if v is not None else None for v in self.inputs]
        results = self.op.evaluate(operands, functions)
        for step in self.epilogue:
            first = step.op.evaluate([results[0], *(tensors[v] for v in step.operands)])
            results = (*first, *results[1:])
        return results

    def operations(self) -> int:
        """Return the elementary operations of one evaluation, without the bodies that the operator names."""
        sizes = sum(value.type.size for value in (*self.operands, *self.outputs))
        return sizes + self.op.operations(*(v.type if v is not None else None for v in self.inputs))

    def macs(self) -> int:
        return self.op.macs(*(v.type if v is not None else None for v in self.inputs))


def describe(node: Node) -> str:
    """Return the name of a node in messages: its operator and outputs."""
    return " ".join([node.op.name, *(f"%{value.short_name}" for value in node.outputs)])


def resolve(value: Value, replaced: Mapping[Value, Value]) -> Value:
    """Follow replacements to the end."""
    while value in replaced:
        value = replaced[value]
    return value


def rewire(node: Node, replaced: Mapping[Value, Value]) -> Node:
    """Return the node with replaced operands; itself if none is replaced."""
    if not any(value in replaced for value in node.operands):
        return node
    inputs = tuple(resolve(v, replaced) if v is not None else None for v in node.inputs)
    epilogue = tuple(
        EpilogueStep(s.op, tuple(resolve(v, replaced) for v in s.operands)) for s in node.epilogue
    )
    return Node(node.op, inputs, node.outputs, epilogue)


def make_node(
    op: Op,
    inputs: Sequence[Value | None],
    names: Sequence[str],
    epilogue: Sequence[EpilogueStep] = (),
) -> Node:
    """Return a node whose outputs have the types of the type rule and the given names."""
    draft = Node(op, tuple(inputs), (), tuple(epilogue))
    outputs = tuple(Value(name, t) for name, t in zip(names, draft.infer(), strict=True))
    return Node(op, tuple(inputs), outputs, tuple(epilogue))
