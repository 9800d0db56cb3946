"""Products of a tensor and one constant number, as tables."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Value, make_node
from microfold.ir.types import TensorType
from microfold.ops.elementwise.mul import Mul
from microfold.options import Options
from microfold.verification import verify
from tests.kernels import graphs
from tests.kernels.choice import avoid
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_tools

OUT = graphs.int8_element(0.06, -5)


def _graph(*, first: bool, shape: tuple[int, ...] = (16, 16)) -> Graph:
    x = graphs.int8_input("x", shape)
    constant = Value("k", TensorType(x.type.dtype, (1,), x.type.quant))
    node = make_node(Mul(OUT), [constant, x] if first else [x, constant], ["y"])
    return Graph("net", (x,), node.outputs, (node,), {constant: np.array([77], np.int8)})


def _cases() -> list[Graph]:
    """The constant on either side."""
    return [_graph(first=first) for first in (False, True)]


def _check(graph: Graph, core: str, suffix: str) -> None:
    program = compile_graph(graph, target.load(core))
    names = [layer.kernel.name for layer in program.layers]
    assert all(name.endswith(suffix) for name in names), names
    result = verify.verify(program, verify.input_sets([b.type for b in program.inputs], 8))
    assert result.exact, result.first_difference


def test_equals_the_reference() -> None:
    _check(merge(_cases()), "host", "__c_constant")


@pytest.mark.slow
@pytest.mark.always
def test_equals_the_reference_on_a_core_with_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    need_tools(*CROSS_TOOLS)
    avoid(monkeypatch, lambda kernel: not kernel.name.endswith("__mve_constant"))
    _check(merge([*_cases(), _graph(first=True, shape=(5, 19))]), "cortex-m55", "__mve_constant")


@pytest.mark.parametrize(("options", "shape"), [(Options("size"), (16, 16)), (Options("speed"), (9,))])
def test_small_tensors_get_a_table_only_for_speed(options: Options, shape: tuple[int, ...]) -> None:
    program = compile_graph(_graph(first=False, shape=shape), target.load("cortex-m4"), options)
    assert program.layers[0].kernel.name.endswith("_constant") == (options.optimize == "speed")


def test_needs_a_single_number() -> None:
    x = graphs.int8_input("x", (64, 4))
    per_channel = graphs.one_node_graph(
        Mul(OUT), [x], {Value("k", x.type.with_shape((4,))): np.arange(4, dtype=np.int8)}
    )
    computed = graphs.one_node_graph(Mul(OUT), [x, graphs.int8_input("k", (1,))], {})
    for graph in (per_channel, computed):
        program = compile_graph(graph, target.load("cortex-m4"))
        assert not program.layers[0].kernel.name.endswith("_constant")
