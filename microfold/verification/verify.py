"""Comparison of all tensors that generated C computes with the reference interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from microfold.analysis.deviation import Deviation, measure_deviation
from microfold.errors import NoReferenceError
from microfold.host.session import Session
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.node import Node, Value
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.elementwise.conversions.dynamic_quantize import DynamicQuantize
from microfold.ops.recurrent.hybrid_lstm import HybridLstm
from microfold.ops.recurrent.hybrid_sequence_rnn import HybridSequenceRnn
from microfold.program import Layer, Program
from microfold.simulate.program import simulator
from microfold.support.notebook import html_table
from microfold.verification.window import WindowReference

# Tolerance of float tensors, as a fraction of the largest magnitude in the tensor. HALF_TOLERANCE applies to
# layers that compute in float16, whose kernels may round sums of a few products; the magnitude is then taken
# before clips. It also applies to layers that quantise their own results of the previous step.
FLOAT_TOLERANCE = 1e-5
HALF_TOLERANCE = 2.0**-8


class Difference(Struct, frozen=True):
    """Difference between a layer's result and the reference.

    Attributes:
        layer: index of the layer; for an inner layer, the index of the loop or branch.
        call: index of the input set.
        count: number of differing elements.
        largest: largest absolute difference.
    """

    layer: int
    name: str
    call: int
    count: int
    largest: float


class Verification(Struct, frozen=True):
    """Result of a comparison.

    Attributes:
        exact: whether all integer tensors are equal bit for bit, and all float tensors are equal within
            `FLOAT_TOLERANCE` of the tensor's largest magnitude, or `HALF_TOLERANCE` for layers that read
            float16. `HALF_TOLERANCE` also applies to the outputs if some layer rounds coarsely.
        tensors: number of compared tensors, over all calls.
        inputs: number of input sets.
        first_difference: first difference; None if exact.
        differences: differences per layer, in order; empty if exact.
        deviations: deviations of the optimised graph's outputs from those of the imported graph, if relaxed
            numerics have changed something. Otherwise outputs are compared like layers.
        unchecked: labels of layers without a reference, e.g. on an NPU. Later layers are checked on the
            results of these layers.
        cut_short: number of input sets with which a loop was stopped at its limit.
    """

    exact: bool
    tensors: int
    inputs: int
    first_difference: Difference | None
    differences: tuple[Difference, ...]
    deviations: tuple[Deviation, ...] = ()
    unchecked: tuple[str, ...] = ()
    cut_short: int = 0

    def __repr__(self) -> str:
        return f"<Verification: {self._summary}>"

    def _repr_html_(self) -> str:
        columns = ("layer", "name", "input set", "differing elements", "largest difference")
        rows = [(d.layer, d.name, d.call, d.count, f"{d.largest:g}") for d in self.differences]
        return html_table(f"verification: {self._summary}", columns if rows else (), rows)

    @property
    def _summary(self) -> str:
        compared = f"{self.tensors} tensors over {self.inputs} input sets"
        if self.exact:
            return f"exact, {compared}"
        return f"{len(self.differences)} layers or outputs differ, {compared}"


def input_sets(types: Sequence[TensorType], runs: int, seed: int = 0) -> list[tuple[Array, ...]]:
    """Return deterministic input sets: all-minimum, all-maximum, zero, then random over the full range.

    Float inputs are 0, 1, -1, then normally distributed.
    """
    generator = np.random.default_rng(seed)
    return [tuple(_input(t, run, generator) for t in types) for run in range(runs)]


def _input(t: TensorType, run: int, generator: np.random.Generator) -> Array:
    if t.dtype.is_float:
        if run < 3:
            return np.full(t.shape, (0.0, 1.0, -1.0)[run], t.dtype.numpy)
        return generator.normal(0, (1.0, 4.0)[run % 2], t.shape).astype(t.dtype.numpy)
    if not t.dtype.is_integer:
        return generator.integers(0, 2, t.shape).astype(t.dtype.numpy)
    low, high = t.dtype.range
    if run < 3:
        zero = t.quant.zero_points[0] if t.quant is not None else 0
        return np.full(t.shape, (low, high, zero)[run], t.dtype.numpy)
    drawn = np.uint64 if t.dtype is DType.UINT64 else np.int64
    return generator.integers(low, high, t.shape, drawn, endpoint=True).astype(t.dtype.numpy)


def verify(program: Program, calls: Sequence[Sequence[Array]]) -> Verification:
    """Run a program, on the host or on its simulated core, and compare it with the reference.

    All calls use one context, so that state is also compared. The following tensors are compared:

    - The outputs of the optimised graph with those of the imported graph.
    - The results of every layer with the optimised graph; of inner layers, the results of their last run.
    - If runs take only new frames, the outputs of every run with the network over its window.

    If layers read floats that other layers have computed, each layer is checked on the program's own values.

    Raises:
        MicrofoldError: a tool is missing or fails.
    """
    computed = _run_simulated(program, calls) if program.target.board else _run_host(program, calls)
    coarse = any(rounds_coarsely(layer.node, program.graph) for layer in program.layers)
    isolated = coarse or _hands_floats_on(program)
    tolerance = HALF_TOLERANCE if coarse else FLOAT_TOLERANCE
    interpreter = Interpreter(program.graph)
    imported, rewritten = Interpreter(program.source), Interpreter(program.graph)
    windows = WindowReference(program.sliding) if program.sliding is not None else None
    found: dict[tuple[int, int], Difference] = {}
    inner = [(top.index, each) for top in program.layers for each in top.all_layers if each is not top]
    last = len(inner)
    tensors = cut_short = 0
    unchecked: set[Node] = set()
    for call, (inputs, values) in enumerate(zip(calls, computed, strict=True)):
        expected: dict[Value, Array] = {}

        def collect(node: Node, results: tuple[Tensor, ...], into: dict[Value, Array] = expected) -> None:
            into.update(zip(node.outputs, (result.data for result in results), strict=True))

        measured: dict[tuple[str, ...], list[Array]] = {}

        def take(
            node: Node, values: Mapping[Value, Array] = values, into: _Measured = measured
        ) -> list[Array]:
            unchecked.add(node)
            arrays = [values[value].reshape(value.type.shape) for value in node.outputs]
            return into.setdefault(_names(node), arrays)

        def give(node: Node, values: Mapping[Value, Array] = values) -> list[Array]:
            # Check each layer on the program's values, because differences would accumulate.
            if not isolated or any(value not in values for value in node.outputs):
                return []
            return [values[value].reshape(value.type.shape) for value in node.outputs]

        interpreter.watch_bodies(collect)
        stopped = interpreter.cut_short
        outputs = interpreter.run(*inputs, observe=collect, missing=take, given=give)
        cut_short += interpreter.cut_short > stopped
        if isolated and not program.relaxations:
            outputs = rewritten.run(*inputs, missing=take)
        # Changes by relaxed numerics are measured, but are not errors.
        originals = outputs if program.relaxations else _original(imported, inputs, measured, outputs)
        ends = [("the optimised graph against the imported one", originals)]
        if windows is not None and not program.relaxations:
            ends.append(("a run against the network over its whole window", windows.run(*inputs)))
            tensors += len(outputs)
        for what, wanted_outputs in ends:
            for index, (optimized, original) in enumerate(zip(outputs, wanted_outputs, strict=True)):
                difference = compare(optimized, original, tolerance)
                if difference is not None:
                    end = len(program.layers)
                    name = f"output {index}: {what}"
                    found.setdefault((end, last), Difference(end, name, call, *difference))
        for layer in program.layers:
            for buffer in layer.outputs if layer.node not in unchecked else ():
                tensors += 1
                array = values[buffer.value].reshape(buffer.type.shape)
                wanted = expected[buffer.value]
                if layer.rows is not None:  # other rows are not needed, and not computed
                    array, wanted = array[:, layer.rows], wanted[:, layer.rows]
                own, scale = FLOAT_TOLERANCE, None
                if isinstance(layer.node.op, HybridLstm | HybridSequenceRnn):
                    own = HALF_TOLERANCE
                elif reads_halves(layer.node, program.graph):
                    read = {**expected, **program.graph.constants, **values}
                    read.update(zip(program.graph.inputs, inputs, strict=True))
                    own, scale = half_tolerance(layer.node, read)
                difference = compare(array, wanted, own, scale)
                if difference is not None:
                    found.setdefault(
                        (layer.index, last), Difference(layer.index, layer.label, call, *difference)
                    )
        # With float16, a later iteration reads the differences of an earlier one.
        for number, (top, layer) in enumerate(inner if not coarse else ()):
            for buffer in layer.outputs:
                if buffer.value in values and buffer.value in expected:
                    tensors += 1
                    array = values[buffer.value].reshape(buffer.type.shape)
                    difference = compare(array, expected[buffer.value])
                    if difference is not None:
                        found.setdefault((top, number), Difference(top, layer.label, call, *difference))
    ordered = tuple(found[index] for index in sorted(found))
    deviations = measure_deviation(program.source, program.graph, calls) if program.relaxations else ()
    return Verification(
        not found,
        tensors,
        len(calls),
        ordered[0] if ordered else None,
        ordered,
        deviations,
        tuple(layer.label for layer in program.layers if layer.node in unchecked),
        cut_short,
    )


def _hands_floats_on(program: Program) -> bool:
    """Return whether a layer reads computed floats, for which differences would accumulate."""
    computed = {*program.graph.producers(), *(state.value for state in program.graph.state)}
    read = (value for layer in program.layers for value in layer.node.operands)
    return any(value.type.dtype.is_float and value in computed for value in read)


def rounds_coarsely(node: Node, graph: Graph) -> bool:
    """Return whether a node converts to a coarser type, which magnifies differences of its operands."""
    if reads_halves(node, graph) or isinstance(node.op, DynamicQuantize | HybridLstm | HybridSequenceRnn):
        return True
    return any(rounds_coarsely(inner, body) for body, inner in _run_by(node, graph))


def reads_halves(node: Node, graph: Graph) -> bool:
    """Return whether a node reads float16, or runs nodes that do."""
    if any(value.type.dtype is DType.FLOAT16 for value in node.operands):
        return True
    return any(reads_halves(inner, body) for body, inner in _run_by(node, graph))


def _run_by(node: Node, graph: Graph) -> Iterator[tuple[Graph, Node]]:
    for name in node.op.bodies:
        body = graph.subgraphs[name]
        yield from ((body, inner) for inner in body.nodes)


def half_tolerance(node: Node, read: Mapping[Value, Array]) -> tuple[float, float | None]:
    """Return tolerance and scale of `compare` for a node that reads float16.

    The scale is the largest magnitude of the result before it is clipped, because roundings of sums are
    proportional to it.

    Args:
        read: operands of the node.
    """
    if not node.epilogue:
        return HALF_TOLERANCE, None
    operands = {v: Tensor(v.type, read[v].reshape(v.type.shape)) for v in node.operands}
    (bare,) = replace(node, epilogue=()).evaluate(operands, {})
    return HALF_TOLERANCE, float(np.abs(bare.data[np.isfinite(bare.data)]).max(initial=0.0))


_Measured = dict[tuple[str, ...], list[Array]]


def _names(node: Node) -> tuple[str, ...]:
    return tuple(value.name for value in node.outputs)


def _original(
    imported: Interpreter, inputs: Sequence[Array], measured: _Measured, outputs: tuple[Array, ...]
) -> tuple[Array, ...]:
    """Return the outputs of the imported graph. Nodes without a reference return the program's values.

    If the program has no such values, nothing can be compared, and the result is the program's outputs.
    """

    def replay(node: Node) -> list[Array]:
        if _names(node) not in measured:
            raise NoReferenceError(f"{node.op.name} has no reference")
        return measured[_names(node)]

    try:
        return imported.run(*inputs, missing=replay)
    except NoReferenceError:
        return outputs


def compare(
    actual: Array, expected: Array, tolerance: float = FLOAT_TOLERANCE, scale: float | None = None
) -> tuple[int, float] | None:
    """Return None if arrays are equal (integers) or close (floats), else number and maximum of differences.

    A NaN on one side only is the largest difference.

    Args:
        tolerance: tolerance of floats, as a fraction of the scale.
        scale: largest magnitude; None: the largest magnitude in `expected`.
    """
    bad, gap = gaps(actual, expected, tolerance, scale)
    return (int(bad.sum()), float(gap[bad].max())) if bad.any() else None


def gaps(
    actual: Array, expected: Array, tolerance: float = FLOAT_TOLERANCE, scale: float | None = None
) -> tuple[Array, Array]:
    """Return which elements differ, and the absolute differences; arguments as for `compare`."""
    if expected.dtype.kind != "f":
        return actual != expected, np.abs(actual.astype(np.int64) - expected.astype(np.int64))
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    finite = np.isfinite(expected)
    if scale is None:
        scale = float(np.abs(expected[finite]).max(initial=0.0))
    with np.errstate(invalid="ignore"):  # equal infinities
        gap = np.where(same, 0.0, np.abs(actual.astype(np.float64) - expected.astype(np.float64)))
    return ~(gap <= tolerance * scale), gap


def _run_host(program: Program, calls: Sequence[Sequence[Array]]) -> list[dict[Value, Array]]:
    session = Session(program)
    runs = (session.run_layers(*inputs) for inputs in calls)
    return [{**values, **_by_output(program, outputs)} for outputs, values in runs]


def _run_simulated(program: Program, calls: Sequence[Sequence[Array]]) -> list[dict[Value, Array]]:
    hooked = not _hands_all_out(program)
    with simulator(program) as machine:
        result = machine.run(calls, layers=hooked, capture_layers=hooked)
    found = [_values(program, tensors) for tensors in result.layer_tensors] or [{} for _ in calls]
    for values, inner in zip(found, result.inner_tensors, strict=False):
        for layer, arrays in zip(program.inner_layers, inner, strict=bool(inner)):
            values.update(_by_value(layer, arrays))
    for values, arrays in zip(found, result.outputs, strict=True):
        values.update(_by_output(program, arrays))
    return found


def _by_output(program: Program, arrays: Sequence[Array]) -> dict[Value, Array]:
    """Return the outputs at the end of a run, which later layers must not have overwritten."""
    return dict(zip((buffer.value for buffer in program.outputs), arrays, strict=True))


def _hands_all_out(program: Program) -> bool:
    """Return whether all results of layers are outputs, so that no hooks are needed."""
    given = {buffer.value for buffer in program.outputs}
    computed = {buffer.value for layer in program.layers for buffer in layer.outputs}
    return computed <= given and not program.inner_layers and program.stream is None


def _values(program: Program, tensors: Sequence[Sequence[Array]]) -> dict[Value, Array]:
    values: dict[Value, Array] = {}
    computed = program.stream.computed if program.stream is not None else range(len(program.layers))
    for each, arrays in zip(computed, tensors, strict=True):
        if isinstance(each, int):
            values.update(_by_value(program.layers[each], arrays))
            continue
        t = each.value.type
        whole = values.setdefault(each.value, np.zeros(t.shape, t.dtype.numpy))
        rows = whole[:, slice(*each.rows)]
        rows[...] = arrays[0].reshape(rows.shape)
    return values


def _by_value(layer: Layer, arrays: Sequence[Array]) -> dict[Value, Array]:
    return {b.value: array for b, array in zip(layer.outputs, arrays, strict=bool(arrays))}
