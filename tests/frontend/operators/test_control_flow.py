"""IF, WHILE and CALL become operators that run subgraphs. `test_oracle` runs over the same models."""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model, load
from microfold.ir.graph import Graph, verify
from microfold.ir.interpret import Interpreter
from microfold.ops.control.call import Call
from microfold.ops.control.control_flow import If, While
from microfold.ops.movement.dynamic_slice import DynamicSlice
from microfold.ops.movement.dynamic_update_slice import DynamicUpdateSlice
from tests.frontend import models
from tests.frontend.test_refusals import vector
from tests.needs import need_modules

X = np.array([[1, -2, 3, 4]], np.float32)


def imported(name: str) -> Graph:
    graph = load(models.MADE / "control_flow" / f"{name}.tflite")
    verify(graph)
    return graph


def run(graph: Graph, *inputs: np.ndarray) -> np.ndarray:
    return Interpreter(graph).run(*inputs)[0]


def test_the_files_are_what_the_script_writes() -> None:
    need_modules("ai_edge_litert")
    from tests.tools.make_control_flow import FOLDER, MODELS

    assert {path.stem for path in FOLDER.iterdir()} == set(MODELS)
    for name, make in MODELS.items():
        assert (FOLDER / f"{name}.tflite").read_bytes() == make(), name


def test_branches() -> None:
    graph = imported("if_f32")
    assert isinstance(graph.nodes[-1].op, If)
    np.testing.assert_array_equal(run(graph, X), X + X)
    np.testing.assert_array_equal(run(graph, -X), X * (X + X))


def test_loops() -> None:
    factor = np.arange(2, 6, dtype=np.float32)
    graph = imported("while_f32")
    assert [type(node.op) for node in graph.nodes] == [While]
    np.testing.assert_array_equal(run(graph, X), X * factor**3)
    graph = imported("while_input_f32")
    for count, runs in ((0, 3), (2, 1), (5, 0)):
        np.testing.assert_array_equal(run(graph, X, np.array(count, np.int32)), X * factor**runs)


def test_a_variable_in_a_loop_is_state() -> None:
    """It is read and assigned inside: the loop carries it, and so do the calls."""
    graph = imported("while_variable_f32")
    assert len(graph.state) == 1
    assert not any(body.state for body in graph.subgraphs.values())
    interpreter = Interpreter(graph)
    for calls in (1, 2):
        np.testing.assert_array_equal(interpreter.run(X)[0], 1 + 2 * calls * X + X)


@pytest.mark.parametrize(("kind", "shape"), [("float32", (5, 2, 4)), ("int8", (5, 4)), ("int32", (5,))])
def test_a_list_write_is_one_operator(kind: str, shape: tuple[int, ...]) -> None:
    """Slices of computed lengths around a row are DYNAMIC_UPDATE_SLICE, for each index of the list."""
    need_modules("ai_edge_litert")
    from tests.tools.make_control_flow import written

    graph = import_model(written(kind, shape))
    assert [
        type(node.op) for node in graph.nodes if isinstance(node.op, DynamicUpdateSlice | DynamicSlice)
    ] == [DynamicUpdateSlice]
    rows = np.arange(np.prod(shape)).reshape(shape).astype(graph.inputs[0].type.dtype.numpy)
    row = -rows[:1] - 1
    for index in range(shape[0]):
        wanted = rows.copy()
        wanted[index] = row[0]
        np.testing.assert_array_equal(run(graph, rows, row, np.array(index, np.int32)), wanted)


@pytest.mark.parametrize(
    "faults",
    [{"offset": 2}, {"offset": -1}, {"length": 2}, {"list": 1}, {"activation": 1}, {"reader": 1}],
    ids=str,
)
def test_what_only_resembles_a_list_write_is_refused(faults: dict[str, int]) -> None:
    """The refusal of the slices of open shapes names the option of the converter that avoids them."""
    need_modules("ai_edge_litert")
    from tests.tools.make_control_flow import written

    with pytest.raises(UnsupportedModelError, match="_experimental_enable_dynamic_update_slice"):
        import_model(written("float32", (5, 2, 4), **faults))


def test_a_loop_with_list_writes_is_the_loop_with_updates() -> None:
    x = np.random.default_rng(0).standard_normal((7, 1, 4)).astype(np.float32)
    np.testing.assert_array_equal(run(imported("while_list_f32"), x), run(imported("while_sequence_f32"), x))


def test_calls() -> None:
    graph = imported("call_f32")
    assert [type(node.op) for node in graph.nodes] == [Call, Call]
    once = X * X + X
    np.testing.assert_array_equal(run(graph, X), once * once + once)


def refused(name: str, change: Callable[[bytearray, object], None]) -> str:
    import tflite

    data = bytearray((models.MADE / "control_flow" / f"{name}.tflite").read_bytes())
    change(data, tflite.Model.GetRootAsModel(data, 0))
    with pytest.raises(UnsupportedModelError) as error:
        import_model(bytes(data))
    return str(error.value)


def options_position(operator) -> int:
    """Where the first option of an operator lies."""
    table = operator.BuiltinOptions()
    vtable = table.Pos - struct.unpack_from("<i", table.Bytes, table.Pos)[0]
    return table.Pos + struct.unpack_from("<H", table.Bytes, vtable + 4)[0]


def test_subgraphs_that_cannot_run() -> None:
    def other(subgraph: int, target: int) -> Callable[[bytearray, object], None]:
        def change(data: bytearray, model) -> None:
            position = options_position(model.Subgraphs(subgraph).Operators(0))
            data[position : position + 4] = struct.pack("<i", target)

        return change

    assert "it cannot run subgraph 1 of 3 here" in refused("call_f32", other(1, 1))  # itself
    assert "it cannot run subgraph 0 of 3 here" in refused("call_f32", other(1, 0))  # its caller's caller
    assert "it cannot run subgraph 9 of 3 here" in refused("call_f32", other(1, 9))


def test_problems_inside_are_reported() -> None:
    def change(data: bytearray, model) -> None:
        """The multiplication's input is its own output."""
        operator = model.Subgraphs(2).Operators(0)
        position = vector(operator, 6)
        data[position : position + 4] = struct.pack("<i", operator.Outputs(0))

    message = refused("call_f32", change)
    assert (
        "subgraph 2, operator 0 (MUL) 'product': it reads 'product', which no earlier operator has computed"
        in message
    )
    assert "subgraph 1, operator 0 (CALL) 'square': subgraph 2 cannot be imported" in message
    assert message.count("no earlier operator has computed") == 1  # although both calls of subgraph 1 meet it


def test_signatures_that_do_not_fit() -> None:
    need_modules("ai_edge_litert")
    from tests.tools.make_control_flow import Model

    def model(types: tuple[str, str], results: int = 1) -> bytes:
        model = Model(2)
        main, body = model.subgraphs
        x = main.input("x", types[0])
        outputs = [main.tensor(f"y{i}", types[0]) for i in range(results)]
        main.table.outputs = main.add("CALL", [x], outputs, subgraph=1)
        body.table.outputs = [body.input("x", types[1])]
        return model.pack()

    verify(import_model(model(("int8", "int8"))))
    for data, reason in (
        (model(("int8", "float32")), "input 'x' of subgraph 1 is float32, not quantised; it gets int8"),
        (model(("int8", "int8"), results=2), "it must have 1 outputs; it has 2"),
    ):
        with pytest.raises(UnsupportedModelError) as error:
            import_model(data)
        assert reason in str(error.value)


def test_calls_do_not_multiply_without_end() -> None:
    """Ten subgraphs, each calling the next twice: a thousand copies."""
    need_modules("ai_edge_litert")
    from tests.tools.make_control_flow import Model

    model = Model(11)
    for index, subgraph in enumerate(model.subgraphs):
        x = subgraph.input("x")
        if index < 10:
            for name in "ab":
                (x,) = subgraph.add("CALL", [x], [subgraph.tensor(name)], subgraph=index + 1)
        subgraph.table.outputs = [x]
    with pytest.raises(
        UnsupportedModelError, match="operators must not run more than 256 subgraphs in total"
    ):
        import_model(model.pack())


def test_variables_without_a_value() -> None:
    with pytest.raises(UnsupportedModelError, match="it is read, but never initialised or assigned"):
        load(models.MADE / "lstm_fixed_f32.tflite")


def test_subgraphs_that_run_each_other_very_deep() -> None:
    """Refused, not followed until Python gives up."""
    need_modules("ai_edge_litert")
    from tests.tools.make_control_flow import Model

    model = Model(200)
    for index, graph in enumerate(model.subgraphs):
        x = graph.input("x")
        graph.table.outputs = (
            graph.add("CALL", [x], [graph.tensor("y")], subgraph=index + 1)
            if index + 1 < len(model.subgraphs)
            else graph.add("NEG", [x], [graph.tensor("y")])
        )
    with pytest.raises(
        UnsupportedModelError, match="calls of subgraphs must not be nested more than 32 deep"
    ):
        import_model(model.pack())
