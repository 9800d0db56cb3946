"""Standardised rows of float32."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.types import Array, DType, TensorType
from microfold.ops.normalize.standardize import Standardize
from microfold.verification import verify
from tests.kernels import graphs
from tests.kernels.cores import check_all
from tests.kernels.random_networks import merge

RNG = np.random.default_rng(4)


def standardized(shape: tuple[int, ...], scale: Array | float, shift: Array | float) -> Graph:
    constants: dict[Value, Array] = {}
    for name, given in (("scale", scale), ("shift", shift)):
        array = np.asarray(given, np.float32)
        constants[Value(name, TensorType(DType.FLOAT32, array.shape))] = array
    return graphs.one_node_graph(Standardize(1e-3), [graphs.float_input("x", shape)], constants)


def _row(depth: int) -> Array:
    return RNG.standard_normal(depth)


CASES = [
    standardized((1, 4, 16), _row(16), _row(16)),
    standardized((3, 7), 1.0, 0.0),
    standardized((2, 3, 5), 0.5, _row(5)),
    standardized((1, 33), _row(33), -0.25),
    standardized((6, 1), 1.0, 2.0),
]


def test_on_the_host() -> None:
    program = compile_graph(merge(CASES), target.load("host"))
    assert {layer.kernel.name for layer in program.layers} == {"f32_standardize__c"}
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 6))
    assert result.exact, result.differences


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m55", "cortex-m0plus"])
def test_on_cores(core: str) -> None:
    check_all(CASES, core, {"f32_standardize__c"})
