"""Windows that move on, of all element types, along all axes; where they lie and elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import TypeRuleError
from microfold.ir.graph import Graph, State
from microfold.ir.in_place import updated_states
from microfold.ir.node import Value, make_node
from microfold.ir.types import DType, Tensor, TensorType
from microfold.kernels.movement.shift_in import ShiftInPortable
from microfold.ops.elementwise.maximum import Maximum
from microfold.ops.movement.shift_in import ShiftIn
from microfold.program import Program
from microfold.verification.verify import input_sets, verify
from tests.kernels.graphs import one_node_graph
from tests.kernels.portable import check_all
from tests.needs import CROSS_TOOLS, need_tools

ELEMENTS = (DType.INT8, DType.INT16, DType.INT32, DType.FLOAT32)
# Window, rows and axis; runs of every alignment, shorter and longer than what is copied at once.
CASES = (
    ((5, 40), (1, 40), 0),
    ((2, 7, 3), (2, 2, 3), 1),
    ((3, 33), (3, 1), 1),
    ((1, 9, 1, 13), (1, 8, 1, 13), 1),
    ((2, 3, 5, 4), (2, 3, 2, 4), 2),
)


def of(shape: tuple[int, ...], dtype: DType = DType.INT8) -> TensorType:
    return TensorType(dtype, shape)


def moving(window: tuple[int, ...], rows: tuple[int, ...], axis: int, dtype: DType = DType.INT8) -> Graph:
    """A state that rows are shifted into, which is what is given out."""
    x, state = Value("x", of(rows, dtype)), Value("kept", of(window, dtype))
    shift = make_node(ShiftIn(axis), [state, x], ["moved"])
    result = make_node(Maximum(), [shift.output, shift.output], ["y"])
    initial = np.arange(state.type.size).reshape(window).astype(dtype.numpy)
    kept = State(state, initial, shift.output)
    return Graph("moving", (x,), (result.output,), (shift, result), {}, (kept,))


def test_meaning() -> None:
    window = np.arange(6, dtype=np.int8).reshape(2, 3)
    rows = np.array([[10], [20]], np.int8)
    (moved,) = ShiftIn(1).evaluate([Tensor(of((2, 3)), window), Tensor(of((2, 1)), rows)])
    assert moved.data.tolist() == [[1, 2, 10], [4, 5, 20]]


def test_type_rules() -> None:
    with pytest.raises(TypeRuleError, match=r"axis 2 must be in \[0, 2\)"):
        ShiftIn(2).infer_all([of((2, 3)), of((2, 1))])
    with pytest.raises(TypeRuleError, match="one element type"):
        ShiftIn(1).infer_all([of((2, 3)), of((2, 1), DType.INT16)])
    for rows in ((2, 3), (1, 1), (2,)):
        with pytest.raises(TypeRuleError, match="the rows must be fewer"):
            ShiftIn(1).infer_all([of((2, 3)), of(rows)])


def test_elsewhere() -> None:
    """A window that is none of a state."""
    cases: dict[str, Graph] = {}
    for number, (window, rows, axis) in enumerate(CASES):
        dtype = ELEMENTS[number % len(ELEMENTS)]
        values = [Value("w", of(window, dtype)), Value("r", of(rows, dtype))]
        cases[f"{window} {rows}"] = one_node_graph(ShiftIn(axis), values, {})
    check_all(cases)


def _check(program: Program) -> None:
    result = verify(program, input_sets([b.type for b in program.inputs], 12))
    assert result.exact, result.first_difference
    assert all(slot.next is None for slot in program.state)
    assert isinstance(program.layers[0].kernel, ShiftInPortable)


@pytest.mark.parametrize("case", range(len(CASES)))
def test_where_it_lies(case: int) -> None:
    for dtype in ELEMENTS:
        _check(compile_graph(moving(*CASES[case], dtype), target.load("host")))


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", ["cortex-m0plus", "cortex-m4", "cortex-m55"])
def test_on_cores(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    for case in CASES:
        _check(compile_graph(moving(*case), target.load(core)))


def test_a_state_that_is_read_elsewhere_stays() -> None:
    """Its old content is wanted behind the shift."""
    graph = moving(*CASES[0])
    assert len(updated_states(graph)) == 1
    shift, result = graph.nodes
    (state,) = graph.state
    late = make_node(Maximum(), [result.output, state.value], ["z"])
    graph = Graph("late", graph.inputs, (late.output,), (shift, result, late), {}, graph.state)
    assert not updated_states(graph)
    program = compile_graph(graph, target.load("host"))
    assert program.state[0].next is not None
    result = verify(program, input_sets([b.type for b in program.inputs], 8))
    assert result.exact, result.first_difference
