"""The named references, run call by call with every tensor kept.

`tflm` is TensorFlow Lite for Microcontrollers, which decides wherever it can run a model; `litert` LiteRT's
reference kernels, which decide for the rest. Comparisons are operator by operator: after each one the
oracle's tensor takes the place of ours, so that a difference is charged to the operator that made it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import numpy as np
import tflite
from numpy.typing import NDArray

from microfold.frontend.tflite import ImportTrace
from microfold.ir.interpret import functions
from microfold.ir.node import Node, Value
from microfold.ir.types import Quant, Tensor
from microfold.ops.elementwise.conversions.quantize import Quantize
from microfold.ops.elementwise.quantized_div import QuantizedDiv

Array = NDArray[np.generic]
Tensors = dict[int, Array]  # tensor index in the file to its content after a call

ARENA_BYTES = 64 << 20


class OracleError(Exception):
    """The oracle cannot run the model."""


def operator_outputs(data: bytes) -> list[int]:
    """Tensors of the main subgraph that operators write, in order."""
    graph = tflite.Model.GetRootAsModel(data, 0).Subgraphs(0)
    result: list[int] = []
    for i in range(graph.OperatorsLength()):
        operator = graph.Operators(i)
        result += [int(operator.Outputs(j)) for j in range(operator.OutputsLength())]
    return result


def random_inputs(types: Sequence[tuple[tuple[int, ...], np.dtype]], seed: int) -> list[Array]:
    """Inputs over the whole range of their types; floats are standard normal, some of them large."""
    rng = np.random.default_rng(seed)
    inputs: list[Array] = []
    for shape, dtype in types:
        if dtype.kind == "f":
            inputs.append((rng.standard_normal(shape) * 10.0 ** rng.integers(-1, 2)).astype(dtype))
        elif dtype.kind == "b":
            inputs.append(rng.integers(0, 2, shape).astype(bool))
        else:
            info = np.iinfo(dtype)
            low, high = (info.min, info.max) if dtype.itemsize <= 2 else (-100, 100)
            # Half of the calls stay near the middle: a saturated network tells little.
            if seed % 2:
                spread = (high - low) // 8
                low, high = (low + high) // 2 - spread, (low + high) // 2 + spread
            inputs.append(rng.integers(low, high + 1, shape).astype(dtype))
    return inputs


def tflm(data: bytes, calls: Sequence[Sequence[Array]], wanted: Sequence[int]) -> list[Tensors]:
    """TensorFlow Lite for Microcontrollers: the wanted tensors after each call."""
    from tflite_micro import runtime

    try:
        interpreter = runtime.Interpreter.from_bytes(
            data,
            arena_size=max(ARENA_BYTES, 2 * len(data)),
            intrepreter_config=runtime.InterpreterConfig.kPreserveAllTensors,
        )
        results: list[Tensors] = []
        for inputs in calls:
            for index, array in enumerate(inputs):
                interpreter.set_input(array, index)
            interpreter.invoke()
            results.append({i: np.array(interpreter.GetTensor(i, 0)["tensor_data"]) for i in wanted})
    except (RuntimeError, ValueError) as error:
        raise OracleError(f"tflite-micro: {error}") from None
    return results


def litert(
    data: bytes, calls: Sequence[Sequence[Array]], wanted: Sequence[int], reference: bool = True
) -> list[Tensors]:
    """LiteRT's reference (or default) kernels, without delegates: the wanted tensors after each call."""
    from ai_edge_litert import interpreter as module

    kinds = module.OpResolverType
    try:
        interpreter = module.Interpreter(
            model_content=data,
            experimental_op_resolver_type=kinds.BUILTIN_REF
            if reference
            else kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
            experimental_preserve_all_tensors=True,
        )
        interpreter.allocate_tensors()
        details = interpreter.get_input_details()
        positions = [detail["index"] for detail in details]
        pairs = {detail["index"] for detail in details if detail["dtype"] is np.complex64}
        outputs = {detail["index"] for detail in interpreter.get_output_details()}
        results: list[Tensors] = []

        def content(index: int) -> Array | None:
            """Return a tensor; None if it has no memory: a loop of open shapes gives it, nothing reads it."""
            try:
                return _parts(interpreter.get_tensor(index))
            except ValueError:
                if index in outputs:
                    raise
                return None

        for inputs in calls:
            for index, array in zip(positions, inputs, strict=True):
                interpreter.set_tensor(index, array.view(np.complex64)[..., 0] if index in pairs else array)
            interpreter.invoke()
            results.append({i: array for i in wanted if (array := content(i)) is not None})
    except (RuntimeError, ValueError) as error:
        raise OracleError(f"LiteRT: {error}") from None
    return results


def _parts(array: Array) -> Array:
    """A copy of a tensor; complex numbers as float32 with a last axis of two."""
    return np.array(array)[..., None].view(np.float32) if array.dtype.kind == "c" else np.array(array)


def compared_tensors(data: bytes, traced: ImportTrace) -> list[int]:
    """Tensors that an operator of the main subgraph writes and that a node of the graph computes."""
    computed = traced.graph.producers()
    return [i for i in operator_outputs(data) if i in traced.values and traced.values[i] in computed]


def inputs_of(traced: ImportTrace, seed: int) -> list[Array]:
    """Random inputs for a call of the imported model."""
    return random_inputs([(v.type.shape, v.type.dtype.numpy) for v in traced.graph.inputs], seed)


# Operators whose result may differ from LiteRT's by a unit: the other oracle rounds otherwise, or computes
# effective scales in double where LiteRT has float32 steps.
_TFLM_ROUNDS_OTHERWISE = (
    *("fully_connected", "mul", "leaky_relu", "sub", "softmax", "batch_matmul"),
    *("abs", "hard_swish", "prelu", "rsqrt", "svdf"),
)


def differences(
    traced: ImportTrace,
    calls: Sequence[Sequence[Array]],
    expected: Sequence[Tensors],
    lenient: Sequence[str] | None = (),
) -> list[str]:
    """Tensors in which the imported model differs from an oracle, call by call, operator by operator.

    Integer results of `lenient` operators (None: of all) may differ by one unit.
    """
    graph = traced.graph
    bodies = functions(graph)
    indices = {value: index for index, value in traced.values.items()}
    state = {item: item.initial for item in graph.state}
    faults: list[str] = []
    for call, (inputs, oracle) in enumerate(zip(calls, expected, strict=True)):
        tensors = {value: Tensor(value.type, array) for value, array in graph.constants.items()}
        tensors |= {item.value: Tensor(item.value.type, array) for item, array in state.items()}
        tensors |= {
            value: Tensor(value.type, array) for value, array in zip(graph.inputs, inputs, strict=True)
        }
        inexact: set[object] = set()  # values that carry a known difference to LiteRT
        for node in graph.nodes:
            results = node.evaluate(tensors, bodies)
            if lenient is None or node.op.name in lenient or not inexact.isdisjoint(node.operands):
                inexact.update(node.outputs)
            for value, result in zip(node.outputs, results, strict=True):
                index = indices.get(value)
                if index is None or index not in oracle:
                    tensors[value] = result
                    continue
                theirs = defined(node, tensors, result.data, oracle[index])
                fault = difference(result.data, theirs, units=int(value in inexact))
                if fault:
                    faults.append(f"call {call}, tensor {index} {value!r} of {node.op}: {fault}")
                inexact.discard(value)
                same_size = oracle[index].size == value.type.size
                tensors[value] = (
                    Tensor(value.type, oracle[index].reshape(value.type.shape)) if same_size else result
                )
        state = {item: tensors[item.next].data for item in graph.state}
    return faults


# Activations of a promise: see docs/reference.md, "Floats beyond the largest number".
_LARGEST_ACTIVATION = 2.0**63


def defined(node: Node, tensors: Mapping[Value, Tensor], ours: Array, theirs: Array) -> Array:
    """The oracle's result with ours where nothing is promised.

    That is, where its C is undefined (quantised values beyond int32, quotients of less than half a step, and
    division by 0), and where products of activations beyond the domain are summed: infinities that the order
    of the sum decides.
    """
    if ours.size != theirs.size:
        return theirs
    if node.macs() and any(
        value.type.dtype.is_float and np.abs(tensors[value].data).max(initial=0) >= _LARGEST_ACTIVATION
        for value in node.operands
    ):
        return ours
    if isinstance(node.op, QuantizedDiv):
        first, second = (_real(tensors[value]) for value in node.operands)
        assert node.op.out.quant is not None
        with np.errstate(all="ignore"):
            steps = first / second / node.op.out.quant.scale
        is_defined = np.isfinite(steps) & (np.abs(steps) >= 0.5)
        return np.where(is_defined, theirs.reshape(ours.shape), ours)
    if not isinstance(node.op, Quantize):
        return theirs
    assert node.op.out.quant is not None
    with np.errstate(all="ignore"):
        steps = tensors[node.operands[0]].data / np.float32(node.op.out.quant.scale)
    return np.where(np.abs(steps) < 2.0**31, theirs.reshape(ours.shape), ours)


def _real(tensor: Tensor) -> Array:
    """Return the real numbers of a value with one scale."""
    quant = tensor.type.quant
    assert quant is not None
    return quant.scale * (tensor.data.astype(np.float64) - quant.zero_point)


def difference(ours: Array, theirs: Array, units: int = 0) -> str:
    """How two tensors differ; empty if they do not. Floats: by 1e-5 of the largest magnitude."""
    if ours.size != theirs.size:
        return f"shape {ours.shape} against {theirs.shape}"
    theirs = theirs.reshape(ours.shape)
    if ours.dtype.kind == "f":
        finite = np.abs(theirs[np.isfinite(theirs)])
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        with np.errstate(invalid="ignore"):
            same |= np.abs(ours - theirs) <= 1e-5 * finite.max(initial=0)
    else:
        same = np.abs(ours.astype(np.int64) - theirs.astype(np.int64)) <= units
    if same.all():
        return ""
    with np.errstate(invalid="ignore"):
        largest = np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max()
    return f"{int((~same).sum())} of {same.size} elements differ, by up to {largest:g}"


def judge(data: bytes, traced: ImportTrace, calls: Sequence[Sequence[Array]]) -> tuple[str, list[str]]:
    """Compare with the oracle that decides.

    Returns:
        Its name (empty if none can run the model), and the differences.
    """
    wanted = compared_tensors(data, traced)
    faults: list[str] | None = None
    with contextlib.suppress(OracleError):
        faults = differences(traced, calls, tflm(data, calls, wanted))
    if faults == [] or (faults and not litert_decides(data, traced)):
        return "tflm", faults
    # LiteRT's reference kernel reads weights in blocks without their scales.
    by_blocks = any(node.op.name == "blockwise_fully_connected" for node in traced.graph.nodes)
    for reference in (False,) if by_blocks else (True, False):
        try:
            expected = litert(data, calls, wanted, reference)
        except OracleError:
            continue
        lenient = _TFLM_ROUNDS_OTHERWISE if reference else None
        return "litert", differences(traced, calls, expected, lenient)
    return "", faults or []


def litert_decides(data: bytes, traced: ImportTrace) -> bool:
    """Whether the model has what TensorFlow Lite for Microcontrollers is known to get wrong.

    Constants dequantised per channel, stand-alone RELU6 that also requantises, stale shapes, as beside a -1
    in a shape signature, and options that it ignores.
    """
    per_channel = any(
        node.op.name == "dequantize"
        and node.operands[0].type.quant not in (None, per_tensor(node.operands[0]))
        for node in traced.graph.nodes
    )
    return (
        per_channel
        or "relu" in {n.op.name for n in traced.graph.nodes}
        or has_stale_shapes(data, traced)
        or has_open_shapes_inside(data)
        or has_ignored_options(data)
    )


def has_ignored_options(data: bytes) -> bool:
    """Whether TFLM ignores what an operator's options say, or what they leave to the shapes.

    It computes nothing for a depth multiplier of 0, and every axis is one of the bounds, whatever the mask
    of ellipses says.
    """
    model = tflite.Model.GetRootAsModel(data, 0)
    graph = model.Subgraphs(0)
    for operator in map(graph.Operators, range(graph.OperatorsLength())):
        code = model.OperatorCodes(operator.OpcodeIndex())
        kind, table = max(code.BuiltinCode(), code.DeprecatedBuiltinCode()), operator.BuiltinOptions()
        if table is None:
            continue
        if kind == tflite.BuiltinOperator.DEPTHWISE_CONV_2D:
            convolution = tflite.DepthwiseConv2DOptions()
            convolution.Init(table.Bytes, table.Pos)
            if convolution.DepthMultiplier() == 0:
                return True
        elif kind == tflite.BuiltinOperator.STRIDED_SLICE:
            slice_ = tflite.StridedSliceOptions()
            slice_.Init(table.Bytes, table.Pos)
            if slice_.EllipsisMask():
                return True
    return False


def has_stale_shapes(data: bytes, traced: ImportTrace) -> bool:
    """Whether the file declares another shape of a result than follows from the operands'."""
    graph = tflite.Model.GetRootAsModel(data, 0).Subgraphs(0)
    return any(
        tuple(graph.Tensors(index).Shape(i) for i in range(graph.Tensors(index).ShapeLength()))
        != value.type.shape
        for index, value in traced.values.items()
    )


def has_open_shapes_inside(data: bytes) -> bool:
    """Return whether a subgraph that an operator runs leaves shapes open, which TFLM ignores."""
    model = tflite.Model.GetRootAsModel(data, 0)
    graphs = map(model.Subgraphs, range(1, model.SubgraphsLength()))
    tensors = (graph.Tensors(i) for graph in graphs for i in range(graph.TensorsLength()))
    return any(-1 in map(tensor.ShapeSignature, range(tensor.ShapeSignatureLength())) for tensor in tensors)


def per_tensor(value: Value) -> Quant | None:
    """The value's quantisation if it has one scale."""
    quant = value.type.quant
    return quant if quant is not None and quant.axis is None else None
