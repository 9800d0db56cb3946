"""Checks of the kernels in portable C, and int8 graphs in other element types."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec.structs import replace

from microfold import target
from microfold.compiler import compile_graph
from microfold.ir.graph import Graph
from microfold.ir.node import Value, make_node
from microfold.ir.types import Array, DType, ElementType, Quant, TensorType
from microfold.program import Program
from microfold.simulate.toolchain import missing_tools
from microfold.target import Target
from tests.kernels.cores import KEEP_OPERATORS, assert_exact, compile_all

# Cores to run portable C on, as if they had nothing of their own; the host does too.
CORES = ("cortex-m3", "cortex-m0plus")


def check(graph: Graph, core: str = "host", *, runs: int = 6) -> Program:
    """Compiles, and compares every tensor of `runs` input sets with the reference."""
    return _checked(compile_graph(graph, _bare(core), context=KEEP_OPERATORS), runs)


def check_on_cores(graph: Graph, *, runs: int = 6) -> None:
    """The host, and the simulated cores if their tools are there."""
    for core in _cores():
        check(graph, core, runs=runs)


def check_all(graphs: Mapping[str, Graph], core: str = "host", *, runs: int = 6) -> Program:
    """Compares all graphs, in one program; a difference names its graph."""
    return _checked(compile_all(graphs, _bare(core))[0], runs)


def check_all_on_cores(graphs: Mapping[str, Graph], *, runs: int = 6) -> None:
    """One program for the host, and one for each simulated core if the tools are there."""
    for core in _cores():
        check_all(graphs, core, runs=runs)


def _cores() -> tuple[str, ...]:
    return ("host",) if missing_tools() else ("host", *CORES)


def _bare(core: str) -> Target:
    return replace(target.load(core), features=frozenset())


def _checked(program: Program, runs: int) -> Program:
    assert all("__c" in layer.kernel.name for layer in program.layers)
    assert_exact(program, runs)
    return program


def as_float(graph: Graph) -> Graph:
    """A one-node int8 graph of a product sum in float32."""
    node = graph.nodes[0]
    renamed: dict[Value, Value] = {}
    constants: dict[Value, Array] = {}
    for value in node.operands:
        renamed[value] = Value(value.name, TensorType(DType.FLOAT32, value.type.shape))
        array = graph.array(value)
        if array is not None:
            constants[renamed[value]] = (array.astype(np.float64) / 64).astype(np.float32)
    op = replace(node.op, out=ElementType(DType.FLOAT32))  # type: ignore[call-arg]
    return _replaced(graph, op, renamed, constants)


def with_wide_weights(graph: Graph) -> Graph:
    """The same with int16 weights of nine bits."""
    node = graph.nodes[0]
    weights = node.operands[1]
    wide = Value(weights.name, TensorType(DType.INT16, weights.type.shape, weights.type.quant))
    constants = {
        wide if value is weights else value: array.astype(np.int16) * 2 - 1 if value is weights else array
        for value, array in graph.constants.items()
    }
    return _replaced(graph, node.op, {value: value for value in node.operands} | {weights: wide}, constants)


def as_int16(graph: Graph, bias: DType = DType.INT64, scale: float = 0.0003) -> Graph:
    """The same with int16 activations, int8 weights, a bias of this type and results of this scale."""
    node = graph.nodes[0]
    renamed: dict[Value, Value] = {}
    constants: dict[Value, Array] = {}
    for index, value in enumerate(node.operands):
        array = graph.array(value)
        if index == 0:
            renamed[value] = Value("x", TensorType(DType.INT16, value.type.shape, Quant.per_tensor(0.0004)))
        elif value.type.dtype is DType.INT32:
            assert array is not None
            renamed[value] = Value(value.name, TensorType(bias, value.type.shape))
            constants[renamed[value]] = array.astype(bias.numpy) * 256
        else:
            assert array is not None
            renamed[value] = value
            constants[value] = array
    op = replace(node.op, out=ElementType(DType.INT16, Quant.per_tensor(scale)))  # type: ignore[call-arg]
    return _replaced(graph, op, renamed, constants)


def as_int16_in_32_bits(given: Mapping[str, Graph]) -> dict[str, Graph]:
    """Those with a bias as int16 with one of int32: sums wrap round at 32 bits, and are rounded twice.

    Of the first one there is another that scales its sums up.
    """
    biased = {name: graph for name, graph in given.items() if len(graph.nodes[0].inputs) > 2}
    found = {f"{name}, int32 bias": as_int16(graph, DType.INT32) for name, graph in biased.items()}
    first = next(iter(biased.values()))
    return found | {"int32 bias, scaled up": as_int16(first, DType.INT32, 1e-7)}


def _replaced(graph: Graph, op: object, renamed: dict[Value, Value], constants: dict[Value, Array]) -> Graph:
    node = graph.nodes[0]
    inputs = [renamed[v] if v is not None else None for v in node.inputs]
    new = make_node(op, inputs, ["out"], node.epilogue)  # type: ignore[arg-type]
    data = tuple(renamed[v] for v in graph.inputs)
    return Graph(graph.name, data, new.outputs, (new,), constants)
