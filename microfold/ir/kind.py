"""Kinds of nodes: nodes of one kind need the same code, and differ only in names and numbers."""

from __future__ import annotations

from typing import Any

from microfold.ir.attributes import attribute_types
from microfold.ir.node import Node
from microfold.ir.op import Op
from microfold.ir.types import ElementType, TensorType


def kind_of(node: Node) -> str:
    """Return a key of a node's kind: operator, epilogue, attributes and types.

    Scales, zero points and the contents of constants are left out, because no kernel's time depends on them.
    """
    inputs = ", ".join(_type(v.type) if v is not None else "none" for v in node.inputs)
    steps = [f"{_operator(s.op)}({', '.join(_type(v.type) for v in s.operands)})" for s in node.epilogue]
    outputs = ", ".join(_type(value.type) for value in node.outputs)
    return " | ".join([f"{_operator(node.op)}({inputs})", *steps]) + f" -> {outputs}"


def _type(type: TensorType) -> str:
    return f"{type.dtype.value}[{','.join(map(str, type.shape))}]"


def _operator(op: Op) -> str:
    fields = ((name, getattr(op, name)) for name in attribute_types(type(op)))
    words = [f"{name}={_attribute(value)}" for name, value in fields if not isinstance(value, float)]
    return f"{op.name}{{{' '.join(words)}}}" if words else op.name


def _attribute(value: Any) -> str:
    if isinstance(value, ElementType):
        return value.dtype.value
    if isinstance(value, TensorType):
        return _type(value)
    if isinstance(value, tuple):
        return f"({','.join(map(_attribute, value))})"  # type: ignore[reportUnknownVariableType]
    return str(value).replace(" ", "")
