"""Type rules accept or refuse: whatever the operands are, nothing but a `TypeRuleError` comes out of them."""

from __future__ import annotations

from functools import cache
from inspect import get_annotations

import numpy as np
import pytest
from msgspec.structs import fields

from microfold.errors import MicrofoldError, TypeRuleError
from microfold.frontend.tflite import load
from microfold.ir.op import REGISTRY, Op, operand_count
from microfold.ir.types import DType, ElementType, Quant, TensorType
from tests.frontend import models

TRIALS = 300
TAKE_ANYTHING = {"compiler_begin", "compiler_end", "copy", "custom_call", "dropout"}


@cache
def instances() -> dict[str, list[Op]]:
    """Operators as they occur in the bundled models, by name; of others, one with whatever attributes."""
    found: dict[str, dict[Op, None]] = {}
    for name in models.made():
        try:
            graph = load(models.MADE / f"{name}.tflite")
        except MicrofoldError:
            continue
        for node in graph.nodes:
            found.setdefault(node.op.name, {})[node.op] = None
    made = {name: [some_instance(op)] for name, op in REGISTRY.items()}
    return made | {name: list(ops)[:12] for name, ops in found.items()}


# Attributes of operators that no bundled model has, by their types.
ATTRIBUTES: dict[str, object] = {
    "DType": DType.INT32,
    "bool": True,
    "float": 0.5,
    "int": 1,
    "str": "NHWC",
    "ElementType": ElementType(DType.FLOAT32),
    "Shape": (1, 4, 4, 2),
    "tuple[int, ...]": (0, 1),
    "tuple[float, float, float, float]": (10.0, 10.0, 5.0, 5.0),
    "tuple[TensorType, ...]": (TensorType(DType.FLOAT32, (4,)),),
}


def some_instance(op: type[Op]) -> Op:
    """With its own defaults, or `ATTRIBUTES`."""
    declared = dict(pair for base in reversed(op.__mro__) for pair in get_annotations(base).items())
    return op(**{field.name: ATTRIBUTES.get(declared[field.name]) for field in fields(op) if field.required})


def random_type(rng: np.random.Generator) -> TensorType:
    shape = tuple(int(n) for n in rng.choice([0, 1, 2, 3, 4, 8, 16], int(rng.integers(0, 6))))
    dtype = rng.choice(np.array(list(DType), object))
    quant = None
    if rng.random() < 0.7:
        axis = int(rng.integers(len(shape))) if shape and rng.random() < 0.3 else None
        count = shape[axis] if axis is not None else 1
        scale = float(np.float32(10.0 ** rng.uniform(-6, 3)))
        quant = Quant((scale,) * count, (int(rng.integers(-3, 4)) * int(rng.integers(2)),) * count, axis)
        if axis is not None and count == 0:
            quant = None
    return TensorType(dtype, shape, quant)


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_only_type_rule_errors(name: str) -> None:
    rng = np.random.default_rng(len(name))
    minimum, maximum = operand_count(REGISTRY[name])
    accepted = 0
    for trial in range(TRIALS):
        op = instances()[name][trial % len(instances()[name])]
        count = int(rng.integers(minimum, (maximum if maximum is not None else minimum + 3) + 1))
        operands: list[TensorType | None] = [random_type(rng) for _ in range(count)]
        if rng.random() < 0.3 and count > 1:  # operands that go together are rare by chance
            operands = [operands[0]] * count
        try:
            op.infer_all(operands)
            accepted += 1
        except TypeRuleError:
            continue
    # What operators with bodies take, the bodies say.
    assert accepted < TRIALS or name in TAKE_ANYTHING or instances()[name][0].bodies


def test_every_operator_checks_its_operand_count() -> None:
    for name, ops in instances().items():
        minimum, maximum = operand_count(REGISTRY[name])
        some = TensorType(DType.FLOAT32, (1, 4, 4, 2))
        if minimum > 0:
            with pytest.raises(TypeRuleError, match=r"operands"):
                ops[0].infer_all([some] * (minimum - 1))
        if maximum is not None:
            with pytest.raises(TypeRuleError, match=r"operands"):
                ops[0].infer_all([some] * (maximum + 1))
