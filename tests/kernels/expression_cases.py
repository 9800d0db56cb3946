"""Expressions of float32 elements, drawn: chains that read operands again, and other ones that broadcast."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.types import Shape
from microfold.ops.elementwise.expression import Call, Expression
from tests.kernels.graphs import float_input, int8_element, int8_input, one_node_graph

INFINITE = float("inf")
# Functions that every kernel for them computes, with the numbers that they may have.
ARITHMETIC: tuple[tuple[str, tuple[float, ...]], ...] = (
    ("add", ()),
    ("sub", ()),
    ("mul", ()),
    ("squared_difference", ()),
    ("abs", ()),
    ("neg", ()),
    ("square", ()),
    ("clip", (0.0, INFINITE)),
    ("clip", (0.0, 0.5)),
    ("clip", (-0.5, 0.75)),
    ("clip", (-0.25, INFINITE)),
    ("clip", (-INFINITE, 0.5)),
)
# Those of cores without vectors, and with.
QUOTIENTS = (*ARITHMETIC[:7], ("div", ()), ("sqrt", ()))
CHOICES = (
    *ARITHMETIC,
    ("maximum", ()),
    ("minimum", ()),
    ("prelu", ()),
    ("leaky_relu", (0.125,)),
    ("hard_swish", ()),
)
LIBRARY = (*ARITHMETIC[:3], ("tanh", ()), ("logistic", ()), ("exp", ()), ("rsqrt", ()), ("gelu_tanh", ()))
BINARY = frozenset({"add", "sub", "mul", "squared_difference", "div", "maximum", "minimum", "prelu"})


def drawn(
    rng: np.random.Generator,
    shape: Shape,
    functions: Sequence[tuple[str, tuple[float, ...]]],
    count: int,
    *,
    quantized: bool = False,
) -> Graph:
    """So many functions of an image, other operands of all kinds, and values before them.

    Args:
        quantized: the image is int8; so is the result of an even number of functions.
    """
    shapes: list[Shape] = [shape]
    # The value at hand is None: the image, or the result of the step before.
    calls: list[tuple[str, list[int | None], tuple[float, ...]]] = []
    if quantized:
        calls.append(("dequantize", [0], ()))
    for _ in range(count):
        name, numbers = functions[int(rng.integers(len(functions)))]
        taken: list[int | None] = [None]
        if name in ("sqrt", "rsqrt"):
            # Of what is negative, the library's function takes another way.
            calls.append(("abs", [None], ()))
        if name in BINARY:
            kind = int(rng.integers(5))
            other: Shape = (shape, (shape[-1],), (), (*shape[:-1], 1), ())[kind]
            if not quantized and (kind == 4 or (other == shape and len(shapes) > 2)):
                taken.append(0)
            else:
                shapes.append(other)
                taken.append(len(shapes) - 1)
            if rng.integers(2) and name not in ("div", "prelu"):
                taken.reverse()
        calls.append((name, taken, numbers))
    steps: list[Call] = []
    for place, (name, taken, numbers) in enumerate(calls):
        at_hand = len(shapes) + place - 1 if place else 0
        steps.append((name, tuple(at_hand if i is None else i for i in taken), numbers))
    inputs = [float_input(f"in{index}", each) for index, each in enumerate(shapes)]
    if quantized:
        inputs[0] = int8_input("in0", shape)
    return one_node_graph(
        Expression(tuple(steps), int8_element() if quantized and count % 2 == 0 else None), inputs, {}
    )


def cases(count: int, shapes: Sequence[Shape], seed: int = 5) -> list[Graph]:
    """Drawn ones of all pools of functions in turn, no two of which are the same functions."""
    rng, pools = np.random.default_rng(seed), (ARITHMETIC, QUOTIENTS, CHOICES, LIBRARY, ARITHMETIC)
    found: dict[Expression, Graph] = {}
    while len(found) < count:
        shape, turn = shapes[int(rng.integers(len(shapes)))], len(found) % len(pools)
        graph = drawn(rng, shape, pools[turn], int(rng.integers(2, 7)), quantized=turn == 4)
        op = graph.nodes[0].op
        assert isinstance(op, Expression)
        found.setdefault(op, graph)
    return list(found.values())
