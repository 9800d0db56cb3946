"""Dimensions that a file leaves open get a value: the shapes of the IR are static.

A file writes -1 for such a dimension of an input, usually the batch, and perhaps a shape for the time being.
Left alone, a dimension is as that shape says, or 1. A value given here is taken for the input; the shapes
behind it follow from it by the type rules, whatever the file says there. (TVM's BindSymbolicVars does so to a
graph; here it is done while a model is imported, as nothing later knows an open dimension. `change_batch`
changes the batch of a graph, also where a file has fixed it.)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from microfold.errors import InputError
from microfold.frontend.raw import RawSubgraph, RawTensor
from microfold.ir.limits import MAX_ELEMENTS
from microfold.ir.types import Shape

Shapes = Mapping[str, Shape]
NO_SHAPES: Shapes = MappingProxyType({})


def parse_shapes(texts: Iterable[str]) -> dict[str, Shape]:
    """Shapes from ``NAME=1,49,10,1``.

    Raises:
        InputError: a text is not of that form, or two are of one name.
    """
    shapes: dict[str, Shape] = {}
    for text in texts:
        name, sign, extents = text.rpartition("=")
        if not sign or not name or not re.fullmatch(r"[0-9]{1,10}(,[0-9]{1,10})*", extents):
            raise InputError(f"an input's shape must be NAME=1,49,10,1 or the like; it is {text!r}")
        if name in shapes:
            raise InputError(f"input {name!r} is given two shapes")
        shapes[name] = tuple(map(int, extents.split(",")))
    return shapes


def bind_symbolic_vars(subgraph: RawSubgraph, shapes: Shapes) -> RawSubgraph:
    """The subgraph with the shapes for its inputs.

    Args:
        shapes: by name of the input.

    Raises:
        InputError: there is no input of that name, or the shape does not fit what the file has fixed.
    """
    inputs = {subgraph.tensors[index].name: index for index in subgraph.inputs}
    unknown = [name for name in shapes if name not in inputs]
    if unknown:
        known = ", ".join(map(repr, inputs)) or "none"
        raise InputError(f"no input is named {unknown[0]!r}; the inputs are {known}")
    tensors = list(subgraph.tensors)
    for name, shape in shapes.items():
        tensors[inputs[name]] = _bound(tensors[inputs[name]], shape)
    return replace(subgraph, tensors=tuple(tensors))


def _bound(tensor: RawTensor, shape: Shape) -> RawTensor:
    fixed = list(tensor.signature)
    fits = len(fixed) == len(shape) and all(a in (-1, b) for a, b in zip(fixed, shape, strict=True))
    if not fits or not 0 < math.prod(shape) <= MAX_ELEMENTS:
        raise InputError(
            f"a shape of input {tensor.name!r} must fit {fixed}, where -1 is open, "
            f"with 1 to {MAX_ELEMENTS} elements; it is {list(shape)}"
        )
    return replace(tensor, shape=shape)
