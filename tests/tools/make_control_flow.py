"""Writes `tests/models/made/control_flow`: small models with IF, WHILE and CALL.

Run from the root of the repository, with the `oracle` extra installed:
``python -m tests.tools.make_control_flow``.
"""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

from tests.frontend import models

FOLDER = models.MADE / "control_flow"
SHAPE = (1, 4)
TYPES = {"float32": 0, "int32": 2, "bool": 6, "int8": 9}
RESOURCE = 13


class Model:
    """A model that is being put together; subgraph 0 is the main one."""

    def __init__(self, subgraphs: int):
        self.codes: list[int] = []
        self.buffers: list[Any] = [schema.BufferT()]
        self.subgraphs = [Subgraph(self, index) for index in range(subgraphs)]

    def code(self, name: str) -> int:
        """Index of an operator code."""
        value = getattr(schema.BuiltinOperator, name)
        if value not in self.codes:
            self.codes.append(value)
        return self.codes.index(value)

    def pack(self) -> bytes:
        """The file."""
        model = schema.ModelT()
        model.version = 3
        model.description = ""
        model.operatorCodes = []
        for value in self.codes:
            code = schema.OperatorCodeT()
            code.builtinCode, code.deprecatedBuiltinCode, code.version = value, min(value, 127), 1
            model.operatorCodes.append(code)
        model.buffers = self.buffers
        model.subgraphs = [subgraph.table for subgraph in self.subgraphs]
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())


class Subgraph:
    """Tensors are handed around as their indices."""

    def __init__(self, model: Model, index: int):
        self.model = model
        self.table = schema.SubGraphT()
        self.table.name = f"subgraph_{index}"
        self.table.tensors, self.table.operators = [], []
        self.table.inputs, self.table.outputs = [], []

    def tensor(
        self, name: str, kind: int | str = "float32", shape: tuple[int, ...] = SHAPE, buffer: int = 0
    ) -> int:
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = name, list(shape), buffer
        tensor.type = TYPES[kind] if isinstance(kind, str) else kind
        if kind == "int8":
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale, tensor.quantization.zeroPoint = [0.05], [3]
        self.table.tensors.append(tensor)
        return len(self.table.tensors) - 1

    def input(self, name: str, kind: int | str = "float32", shape: tuple[int, ...] = SHAPE) -> int:
        index = self.tensor(name, kind, shape)
        self.table.inputs.append(index)
        return index

    def constant(self, name: str, array: np.ndarray) -> int:
        buffer = schema.BufferT()
        buffer.data = list(array.tobytes())
        self.model.buffers.append(buffer)
        return self.tensor(name, str(array.dtype), array.shape, len(self.model.buffers) - 1)

    def add(self, name: str, inputs: list[int], outputs: list[int], **options: Any) -> list[int]:
        """Append an operator; `options` are fields of its builtin options."""
        operator = schema.OperatorT()
        operator.opcodeIndex, operator.inputs, operator.outputs = self.model.code(name), inputs, outputs
        kind = "".join(word.title() for word in name.split("_")) + "Options"
        if hasattr(schema, f"{kind}T"):
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, kind)
            operator.builtinOptions = getattr(schema, f"{kind}T")()
            for field, value in options.items():
                getattr(operator.builtinOptions, field)
                setattr(operator.builtinOptions, field, value)
        self.table.operators.append(operator)
        return outputs

    def variable(self, name: str) -> int:
        (handle,) = self.add(
            "VAR_HANDLE", [], [self.tensor(name, RESOURCE, ())], sharedName=name, container=""
        )
        return handle


def branches(kind: str) -> bytes:
    """y = x[0, 0] > 0 ? x + x : x * (x + x), by IF on a comparison with a constant."""
    model = Model(3)
    main, then, otherwise = model.subgraphs
    x = main.input("x", kind)
    begin, size = (main.constant(n, np.array(a, np.int32)) for n, a in (("begin", [0, 0]), ("size", [1, 1])))
    (first,) = main.add("SLICE", [x, begin, size], [main.tensor("first", kind, (1, 1))])
    zero = main.constant("zero", np.zeros((1, 1), np.dtype(kind)))
    (positive,) = main.add("GREATER", [first, zero], [main.tensor("positive", "bool", (1, 1))])
    outputs = [main.tensor("y", kind), main.tensor("z", kind)]
    main.table.outputs = main.add("IF", [positive, x], outputs, thenSubgraphIndex=1, elseSubgraphIndex=2)
    x = then.input("x", kind)
    then.table.outputs = [*then.add("ADD", [x, x], [then.tensor("sum", kind)]), x]
    x = otherwise.input("x", kind)
    (total,) = otherwise.add("ADD", [x, x], [otherwise.tensor("sum", kind)])
    (product,) = otherwise.add("MUL", [x, total], [otherwise.tensor("product", kind)])
    otherwise.table.outputs = [product, total]
    return model.pack()


def counted(kind: str, *, by_input: bool = False) -> bytes:
    """x = x * w + x, three times or as often as an input says: WHILE on a counter."""
    model = Model(3)
    main, condition, body = model.subgraphs
    x = main.input("x", kind)
    scalar = np.zeros((), np.int32)
    start = main.input("count", "int32", ()) if by_input else main.constant("start", scalar)
    outputs = [main.tensor("end", "int32", ()), main.tensor("y", kind)]
    main.add("WHILE", [start, x], outputs, condSubgraphIndex=1, bodySubgraphIndex=2)
    main.table.outputs = outputs[1:]
    i, x = condition.input("i", "int32", ()), condition.input("x", kind)
    limit = condition.constant("limit", scalar + 3)
    condition.table.outputs = condition.add("LESS", [i, limit], [condition.tensor("less", "bool", ())])
    i, x = body.input("i", "int32", ()), body.input("x", kind)
    (j,) = body.add("ADD", [i, body.constant("one", scalar + 1)], [body.tensor("j", "int32", ())])
    weights = np.arange(1, 5, dtype=np.dtype(kind)).reshape(SHAPE)
    product = body.add("MUL", [x, body.constant("w", weights)], [body.tensor("product", kind)])
    body.table.outputs = [j, *body.add("ADD", [*product, x], [body.tensor("next", kind)])]
    return model.pack()


def accumulating() -> bytes:
    """A variable that a loop reads and assigns: s = s + x, twice a call; CALL_ONCE sets it to ones."""
    model = Model(4)
    main, condition, body, initial = model.subgraphs
    x = main.input("x")
    main.add("CALL_ONCE", [], [], initSubgraphIndex=3)
    handle = main.variable("s")
    start = main.constant("start", np.zeros((), np.int32))
    outputs = [main.tensor("end", "int32", ()), main.tensor("x1"), main.tensor("s1", RESOURCE, ())]
    main.add("WHILE", [start, x, handle], outputs, condSubgraphIndex=1, bodySubgraphIndex=2)
    (content,) = main.add("READ_VARIABLE", [handle], [main.tensor("content")])
    main.table.outputs = main.add("ADD", [content, outputs[1]], [main.tensor("y")])
    i, _, _ = (
        condition.input("i", "int32", ()),
        condition.input("x"),
        condition.input("s", RESOURCE, ()),
    )
    limit = condition.constant("limit", np.array(2, np.int32))
    condition.table.outputs = condition.add("LESS", [i, limit], [condition.tensor("less", "bool", ())])
    i, x, handle = body.input("i", "int32", ()), body.input("x"), body.input("s", RESOURCE, ())
    (j,) = body.add("ADD", [i, body.constant("one", np.ones((), np.int32))], [body.tensor("j", "int32", ())])
    (content,) = body.add("READ_VARIABLE", [handle], [body.tensor("content")])
    (total,) = body.add("ADD", [content, x], [body.tensor("total")])
    body.add("ASSIGN_VARIABLE", [handle, total], [])
    body.table.outputs = [j, x, handle]
    handle = initial.variable("s")
    initial.add("ASSIGN_VARIABLE", [handle, initial.constant("ones", np.ones(SHAPE, np.float32))], [])
    return model.pack()


def called() -> bytes:
    """A subgraph called twice, which calls another one."""
    model = Model(3)
    main, outer, inner = model.subgraphs
    x = main.input("x")
    first = main.add("CALL", [x], [main.tensor("a")], subgraph=1)
    main.table.outputs = main.add("CALL", first, [main.tensor("y")], subgraph=1)
    x = outer.input("x")
    (square,) = outer.add("CALL", [x], [outer.tensor("square")], subgraph=2)
    outer.table.outputs = outer.add("ADD", [square, x], [outer.tensor("sum")])
    x = inner.input("x")
    inner.table.outputs = inner.add("MUL", [x, x], [inner.tensor("product")])
    return model.pack()


def weights(rows: int, columns: int) -> np.ndarray:
    """Numbers between -1/2 and 1/2."""
    return (np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) * 7 % 19 - 9) / 18


def counter(graph: Subgraph, i: int) -> int:
    """i + 1."""
    one = graph.constant("one", np.ones((), np.int32))
    return graph.add("ADD", [i, one], [graph.tensor("next", "int32", ())])[0]


def below(graph: Subgraph, i: int, limit: int) -> None:
    """The condition i < limit."""
    graph.table.outputs = graph.add("LESS", [i, limit], [graph.tensor("less", "bool", ())])


def list_write(graph: Subgraph, rows: int, row: int, i: int, shape: tuple[int, ...], **faults: int) -> int:
    """rows[i] = row, as TensorFlow's converter writes TensorListSetItem; `faults` spoil a part of it.

    Args:
        rows, row, i: tensors of the list [n, ...], of the row [1, ...] and of the index [].
        shape: of the list.
        faults: `offset` of the second part from the index (1), `length` of the first one's other axes (-1),
            the `list` of the second part, the fused `activation`, and `reader` of the first part (1: it is an
            output).
    """
    rank = len(shape)
    kind = next(name for name, number in TYPES.items() if number == graph.table.tensors[rows].type)
    at = graph.constant("at", np.array([1], np.int32))
    offset = graph.constant("offset", np.array(faults.get("offset", 1), np.int32))
    (behind,) = graph.add("ADD", [i, offset], [graph.tensor("behind", "int32", ())])
    zeros = graph.constant("zeros", np.zeros(rank, np.int32))
    rest = graph.constant("rest", np.full(rank, -1, np.int32))

    def vector(name: str, first: int, others: int) -> int:
        (index,) = graph.add("RESHAPE", [first, at], [graph.tensor(f"{name}_first", "int32", (1,))])
        if rank == 1:
            return index
        filled = graph.constant(f"{name}_others", np.full(rank - 1, others, np.int32))
        return graph.add("CONCATENATION", [index, filled], [graph.tensor(name, "int32", (rank,))])[0]

    open_shape = graph.tensor("head", kind, (1,) * rank), graph.tensor("tail", kind, (1,) * rank)
    for tensor in open_shape:
        graph.table.tensors[tensor].shapeSignature = [-1] * rank
    size, begin = vector("size", i, faults.get("length", -1)), vector("begin", behind, 0)
    (head,) = graph.add("SLICE", [rows, zeros, size], [open_shape[0]])
    (tail,) = graph.add("SLICE", [faults.get("list", rows), begin, rest], [open_shape[1]])
    if faults.get("reader"):
        graph.table.outputs.append(head)
    result = graph.tensor("written", kind, shape)
    graph.add(
        "CONCATENATION",
        [head, row, tail],
        [result],
        axis=0,
        fusedActivationFunction=faults.get("activation", 0),
    )
    return result


def written(kind: str, shape: tuple[int, ...], **faults: int) -> bytes:
    """One row of a list replaced at an index that is an input; see `list_write`."""
    model = Model(1)
    (main,) = model.subgraphs
    rows, row = main.input("rows", kind, shape), main.input("row", kind, (1, *shape[1:]))
    i = main.input("i", "int32", ())
    if "list" in faults:
        faults["list"] = main.input("others", kind, shape)
    main.table.outputs.append(list_write(main, rows, row, i, shape, **faults))
    return model.pack()


def recurrent(steps: int, *, by_slices: bool = False) -> bytes:
    """h = tanh(x_t W + h U), every h kept: what Keras makes of SimpleRNN(return_sequences=True).

    Args:
        by_slices: whether rows are kept as the converter does it by default, see `list_write`.
    """
    model = Model(3)
    main, condition, body = model.subgraphs
    x = main.input("x", shape=(steps, 1, 4))
    zero = main.constant("zero", np.zeros((), np.int32))
    rows = main.constant("rows", np.zeros((steps, 1, 6), np.float32))
    h = main.constant("h", np.zeros((1, 6), np.float32))
    outputs = [main.tensor("end", "int32", ()), main.tensor("y", shape=(steps, 1, 6))]
    outputs += [main.tensor("last", shape=(1, 6)), main.tensor("x_end", shape=(steps, 1, 4))]
    main.add("WHILE", [zero, rows, h, x], outputs, condSubgraphIndex=1, bodySubgraphIndex=2)
    main.table.outputs = outputs[1:3]
    for graph in (condition, body):
        i = graph.input("i", "int32", ())
        rows = graph.input("rows", shape=(steps, 1, 6))
        h = graph.input("h", shape=(1, 6))
        x = graph.input("x", shape=(steps, 1, 4))
        if graph is condition:
            below(graph, i, graph.constant("steps", np.array(steps, np.int32)))
    (step,) = body.add("GATHER", [x, i], [body.tensor("step", shape=(1, 4))], axis=0)
    first = body.add(
        "FULLY_CONNECTED", [step, body.constant("w", weights(6, 4)), -1], [body.tensor("a", shape=(1, 6))]
    )
    second = body.add(
        "FULLY_CONNECTED", [h, body.constant("u", weights(6, 6)), -1], [body.tensor("b", shape=(1, 6))]
    )
    (total,) = body.add("ADD", [*first, *second], [body.tensor("sum", shape=(1, 6))])
    (state,) = body.add("TANH", [total], [body.tensor("state", shape=(1, 6))])
    shape = body.constant("shape", np.array([1, 1, 6], np.int32))
    (row,) = body.add("RESHAPE", [state, shape], [body.tensor("row", shape=(1, 1, 6))])
    if by_slices:
        kept = list_write(body, rows, row, i, (steps, 1, 6))
        body.table.outputs = [counter(body, i), kept, state, x]
        return model.pack()
    at = body.constant("at", np.array([1], np.int32))
    (index,) = body.add("RESHAPE", [i, at], [body.tensor("index", "int32", (1,))])
    zeros = body.constant("zeros", np.zeros(2, np.int32))
    (start,) = body.add("CONCATENATION", [index, zeros], [body.tensor("start", "int32", (3,))])
    (kept,) = body.add("DYNAMIC_UPDATE_SLICE", [rows, row, start], [body.tensor("kept", shape=(steps, 1, 6))])
    body.table.outputs = [counter(body, i), kept, state, x]
    return model.pack()


def bounded() -> bytes:
    """x = x * w + x, as often as an input says, but five times at most."""
    model = Model(3)
    main, condition, body = model.subgraphs
    x, count = main.input("x"), main.input("count", "int32", ())
    five = main.constant("five", np.array(5, np.int32))
    (limit,) = main.add("MINIMUM", [count, five], [main.tensor("limit", "int32", ())])
    zero = main.constant("zero", np.zeros((), np.int32))
    outputs = [main.tensor("end", "int32", ()), main.tensor("y"), main.tensor("limit_end", "int32", ())]
    main.add("WHILE", [zero, x, limit], outputs, condSubgraphIndex=1, bodySubgraphIndex=2)
    main.table.outputs = outputs[:2]
    i, _, limit = condition.input("i", "int32", ()), condition.input("x"), condition.input("n", "int32", ())
    below(condition, i, limit)
    i, x, limit = body.input("i", "int32", ()), body.input("x"), body.input("n", "int32", ())
    product = body.add("MUL", [x, body.constant("w", weights(1, 4))], [body.tensor("product")])
    total = body.add("ADD", [*product, x], [body.tensor("sum")])
    body.table.outputs = [counter(body, i), *total, limit]
    return model.pack()


def nested(*, by_branch: bool = False) -> bytes:
    """Four times: x, y = y, x, then three times x = x + y * j; with a branch, only the first two times."""
    model = Model(7 if by_branch else 5)
    main, test, step, inner_test, inner_step, *branches = model.subgraphs
    x, y = main.input("x", "int32"), main.input("y", "int32")
    zero = main.constant("zero", np.zeros((), np.int32))
    outputs = [main.tensor("end", "int32", ()), main.tensor("u", "int32"), main.tensor("v", "int32")]
    main.add("WHILE", [zero, x, y], outputs, condSubgraphIndex=1, bodySubgraphIndex=2)
    main.table.outputs = outputs[1:]
    for graph in (test, inner_test):
        i, _, _ = graph.input("i", "int32", ()), graph.input("x", "int32"), graph.input("y", "int32")
        below(graph, i, graph.constant("limit", np.array(4 if graph is test else 3, np.int32)))

    def loop(graph: Subgraph, x: int, y: int) -> int:
        zero = graph.constant("zero", np.zeros((), np.int32))
        ends = [graph.tensor("j", "int32", ()), graph.tensor("x1", "int32"), graph.tensor("y1", "int32")]
        graph.add("WHILE", [zero, x, y], ends, condSubgraphIndex=3, bodySubgraphIndex=4)
        return ends[1]

    i, x, y = step.input("i", "int32", ()), step.input("x", "int32"), step.input("y", "int32")
    if by_branch:
        two = step.constant("two", np.array(2, np.int32))
        (early,) = step.add("LESS", [i, two], [step.tensor("early", "bool", ())])
        results = [step.tensor("swapped", "int32")]
        step.add("IF", [early, y, x], results, thenSubgraphIndex=5, elseSubgraphIndex=6)
        step.table.outputs = [counter(step, i), results[0], x]
    else:
        step.table.outputs = [counter(step, i), loop(step, y, x), x]
    i, x, y = (
        inner_step.input("i", "int32", ()),
        inner_step.input("x", "int32"),
        inner_step.input("y", "int32"),
    )
    product = inner_step.add("MUL", [y, i], [inner_step.tensor("product", "int32")])
    total = inner_step.add("ADD", [x, *product], [inner_step.tensor("sum", "int32")])
    inner_step.table.outputs = [counter(inner_step, i), *total, y]
    for index, graph in enumerate(branches):
        x, y = graph.input("x", "int32"), graph.input("y", "int32")
        result = graph.tensor("difference", "int32")
        graph.table.outputs = graph.add("SUB", [x, y], [result]) if index else [loop(graph, x, y)]
    return model.pack()


def chosen() -> bytes:
    """y = x W where x[0, 0] > 0, else x U: an IF whose branches have products; also the other operand."""
    model = Model(3)
    main, then, otherwise = model.subgraphs
    x = main.input("x")
    begin, size = (main.constant(n, np.array(a, np.int32)) for n, a in (("begin", [0, 0]), ("size", [1, 1])))
    (first,) = main.add("SLICE", [x, begin, size], [main.tensor("first", shape=(1, 1))])
    zero = main.constant("zero", np.zeros((1, 1), np.float32))
    (positive,) = main.add("GREATER", [first, zero], [main.tensor("positive", "bool", (1, 1))])
    outputs = [main.tensor("y"), main.tensor("z")]
    main.table.outputs = main.add("IF", [positive, x], outputs, thenSubgraphIndex=1, elseSubgraphIndex=2)
    for graph, matrix in ((then, weights(4, 4)), (otherwise, -weights(4, 4).T)):
        x = graph.input("x")
        product = graph.add(
            "FULLY_CONNECTED", [x, graph.constant("w", matrix), -1], [graph.tensor("product")]
        )
        graph.table.outputs = [*product, x]
    return model.pack()


MODELS = {
    "if_f32": lambda: branches("float32"),
    "if_int8": lambda: branches("int8"),
    "while_f32": lambda: counted("float32"),
    "while_int8": lambda: counted("int8"),
    "while_input_f32": lambda: counted("float32", by_input=True),
    "while_variable_f32": accumulating,
    "while_sequence_f32": lambda: recurrent(7),
    "while_list_f32": lambda: recurrent(7, by_slices=True),
    "while_long_f32": lambda: recurrent(200),
    "while_bounded_f32": bounded,
    "while_nested_int32": nested,
    "while_if_while_int32": lambda: nested(by_branch=True),
    "if_products_f32": chosen,
    "call_f32": called,
}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, make in MODELS.items():
        (FOLDER / f"{name}.tflite").write_bytes(make())


if __name__ == "__main__":
    main()
