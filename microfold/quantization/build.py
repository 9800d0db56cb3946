"""Builds of quantised models: verification on this machine, and figures on the target."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from microfold.compiler import compile_graph
from microfold.errors import MicrofoldError
from microfold.ir.graph import Graph
from microfold.ir.types import Array
from microfold.reporting.what_if import WhatIfBuild, alternative, impossible
from microfold.target import Target, load
from microfold.verification.measure import measure
from microfold.verification.verify import input_sets, verify

# Numbers of input sets for the verification. The first generated ones have extreme values.
GENERATED, SAMPLES = 4, 4


class Verified(Struct, frozen=True):
    """Comparison of the C code with the reference.

    Attributes:
        exact: whether all tensors are equal; None: there is no C code, or no compiler for it.
        tensors: number of compared tensors.
        reason: first difference, or why nothing was compared; empty if exact.
    """

    exact: bool | None
    tensors: int
    reason: str


def verified(graph: Graph, samples: Sequence[Sequence[Array]]) -> Verified:
    """Compile a model for this machine, and compare all tensors with the reference.

    Args:
        samples: input sets, in the types of the model. `SAMPLES` of them are used.
    """
    try:
        program = compile_graph(graph, load("host"))
        generated = input_sets([value.type for value in graph.inputs], GENERATED)
        result = verify(program, [*generated, *map(tuple, samples[:SAMPLES])])
    except MicrofoldError as error:
        return Verified(None, 0, str(error))
    first = result.first_difference
    reason = f"layer {first.name!r} differs in {first.count} elements" if first is not None else ""
    return Verified(result.exact, result.tensors, reason)


def figures(graph: Graph, target: Target) -> WhatIfBuild:
    """Return RAM, flash and time of a model on a target, or the reason why it cannot be compiled."""
    try:
        program = compile_graph(graph, target)
        return alternative(program, measure(program))
    except MicrofoldError as error:
        return impossible(target.name, "balanced", str(error))
