"""Binding of open dimensions to values, because the shapes of the IR are static.

A file marks an open dimension of an input, usually the batch, by -1. It may also contain a preliminary shape,
which is the default; otherwise the dimension is 1. A shape that is set here replaces the shape of the input.
The type rules then infer all later shapes, and the shapes in the file are ignored.

TVM's BindSymbolicVars works on graphs. Here, binding is part of the import, because graphs have no open
dimensions. `change_batch` changes the batch of a graph, also if the file has fixed it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from microfold.errors import InputError
from microfold.frontend.raw import RawSubgraph, RawTensor
from microfold.ir.limits import MAX_ELEMENTS
from microfold.ir.types import Shape

Shapes = Mapping[str, Shape]
NO_SHAPES: Shapes = MappingProxyType({})


def parse_shapes(texts: Iterable[str]) -> dict[str, Shape]:
    """Parse shapes of the form ``NAME=1,49,10,1``.

    Raises:
        InputError: a text does not have this form, or a name occurs twice.
    """
    shapes: dict[str, Shape] = {}
    for text in texts:
        name, sign, extents = text.rpartition("=")
        if not sign or not name or not re.fullmatch(r"[0-9]{1,10}(,[0-9]{1,10})*", extents):
            raise InputError(f"the shape of an input must have the form NAME=1,49,10,1; got {text!r}")
        if name in shapes:
            raise InputError(f"input {name!r} must have one shape; two are given")
        shapes[name] = tuple(map(int, extents.split(",")))
    return shapes


def bind_symbolic_vars(subgraph: RawSubgraph, shapes: Shapes) -> RawSubgraph:
    """Return the subgraph with new shapes of its inputs.

    Args:
        shapes: shapes by the name of the input.

    Raises:
        InputError: no input has such a name, or a shape contradicts dimensions that the file has fixed.
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
            f"the shape of input {tensor.name!r} must match {fixed}, where -1 is any size, "
            f"and have 1 to {MAX_ELEMENTS} elements; got {list(shape)}"
        )
    return replace(tensor, shape=shape)
