"""Quantisations far off: refused with a reason, or computed; never an exception that is not a refusal."""

from __future__ import annotations

import struct
import warnings

import numpy as np
import pytest
import tflite

from microfold.compiler import compile_graph
from microfold.errors import MicrofoldError, TypeRuleError, UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.graph import Graph
from microfold.ir.interpret import Interpreter
from microfold.ir.op import Op
from microfold.ir.types import DType, ElementType, Quant, TensorType
from microfold.ops.batch_matmul import BatchMatmul
from microfold.ops.elementwise.abs import Abs
from microfold.ops.elementwise.activations.leaky_relu import LeakyRelu
from microfold.ops.elementwise.activations.logistic import Logistic
from microfold.ops.elementwise.activations.prelu import Prelu
from microfold.ops.elementwise.activations.relu import Relu
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.compare import Compare
from microfold.ops.elementwise.conversions.requantize import Requantize
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.rsqrt import Rsqrt
from microfold.ops.elementwise.squared_difference import SquaredDifference
from microfold.ops.elementwise.sub import Sub
from microfold.ops.elementwise.unary import Unary
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.normalize.log_softmax import LogSoftmax
from microfold.ops.normalize.softmax import Softmax
from microfold.ops.reduce.mean import Mean
from microfold.target import load
from tests.frontend import models

QUANTIZED = [
    name for name in models.made() if name.startswith("ops/") and name.endswith(("_int8", "_int16x8"))
]


def element(scale: float, dtype: DType = DType.INT8, zero_point: int = 0) -> ElementType:
    return ElementType(dtype, Quant.per_tensor(scale, zero_point))


def values(scale: float, *shape: int, dtype: DType = DType.INT8) -> TensorType:
    return TensorType(dtype, shape or (1, 4), Quant.per_tensor(scale))


TINY, FINE = element(1e-17), element(0.1)
INT16 = DType.INT16
SCALES = "a multiplier made of scales must be in"


@pytest.mark.parametrize(
    ("op", "operands", "rule"),
    [
        (Abs(TINY), [values(1)], SCALES),
        (Add(TINY), [values(1), values(1)], SCALES),
        (Sub(TINY), [values(1), values(1)], SCALES),
        (Mul(TINY), [values(1), values(1)], SCALES),
        (Prelu(TINY), [values(1), values(1)], SCALES),
        (SquaredDifference(TINY), [values(1), values(1)], SCALES),
        (LeakyRelu(0.5, TINY), [values(1)], SCALES),
        (LeakyRelu(1e30, FINE), [values(1)], SCALES),
        (Relu(0.0, 6.0, TINY), [values(1)], SCALES),
        (Requantize(TINY), [values(1)], SCALES),
        (Mean((0,), False, TINY), [values(1)], SCALES),
        (Rsqrt(TINY), [values(1)], SCALES),
        (Rsqrt(element(1e9)), [values(1)], "the result's scale is too large"),
        (FullyConnected(TINY), [values(1, 1, 4), values(1, 2, 4)], SCALES),
        (BatchMatmul(False, False, TINY), [values(1, 1, 4), values(1, 4, 2)], SCALES),
        (
            BatchMatmul(False, False, element(1, INT16)),
            [values(20, 1, 4, dtype=INT16), values(20, 4, 2, dtype=INT16)],
            "the product of the operands' scales must be below 128 output scales",
        ),
        (Compare("less"), [values(1), values(1)], r"must be in \[0, 1\)"),
        (Softmax(1e30, element(1 / 256, zero_point=-128)), [values(1e-18 * 2)], ""),
        (Softmax(1e-9, element(1 / 256, zero_point=-128)), [values(1)], "must exceed 2\\^-26"),
        (LogSoftmax(element(1 / 16, zero_point=127)), [values(1e-9)], "must exceed 2\\^-26"),
        (Softmax(1e30, element(1 / 32768, INT16)), [values(1, dtype=INT16)], SCALES),
        (Logistic(element(1 / 256, zero_point=-128)), [values(16)], r"must be in \[2\^-27, 16\)"),
        (Logistic(element(1 / 256, zero_point=-128)), [values(1e-9)], r"must be in \[2\^-27, 16\)"),
        (Tanh(element(1 / 32768, INT16)), [values(1e-14, dtype=INT16)], r"must be in \[3\.79e-14"),
        (Unary("exp", FINE), [values(1)], "results must be less than 2\\^31 steps"),
        (Unary("elu", element(1e-8)), [values(1)], "results must be less than 2\\^31 steps"),
        (Unary("sqrt", element(1e-10)), [values(1)], "results must be less than 2\\^31 steps"),
    ],
)  # fmt: skip
def test_scales_out_of_the_domain(op: Op, operands: list[TensorType], rule: str) -> None:
    if not rule:
        op.infer_all(operands)
        return
    with pytest.raises(TypeRuleError, match=rule):
        op.infer_all(operands)


def test_int16_zero_points() -> None:
    """One rule for all operators: refused, but where nothing is computed with them."""
    odd = TensorType(INT16, (1, 4), Quant.per_tensor(0.1, 5))
    assert Concatenate(0).infer_all([odd, odd])[0].quant == odd.quant
    assert Requantize(element(0.1)).infer_all([odd])
    for op in (Add(odd.element), Mul(odd.element)):
        with pytest.raises(TypeRuleError, match="int16 zero points must be 0; it has 5"):
            op.infer_all([odd, odd])
    with pytest.raises(TypeRuleError, match="int16 zero points must be 0; it has 5"):
        Relu(0.0, 6.0, odd.element).infer_all([values(0.1, dtype=INT16)])


def changed(data: bytes, slot: int, fields: str, value: float, tensors: str) -> bytes:
    """The file with another scale (slot 8) or zero point (slot 10) of its per-tensor inputs or outputs."""
    patched = bytearray(data)
    graph = tflite.Model.GetRootAsModel(patched, 0).Subgraphs(0)
    for index in graph.InputsAsNumpy() if tensors == "inputs" else graph.OutputsAsNumpy():
        quantization = graph.Tensors(int(index)).Quantization()
        if quantization is not None and quantization.ScaleLength() == 1:
            old = quantization.Scale(0) if slot == 8 else 0
            position = quantization._tab.Vector(quantization._tab.Offset(slot))
            struct.pack_into(fields, patched, position, value * old if slot == 8 else value)
    return bytes(patched)


def accepted(data: bytes) -> Graph | None:
    try:
        return import_model(data)
    except UnsupportedModelError:
        return None


@pytest.mark.parametrize("tensors", ["inputs", "outputs"])
def test_int16_zero_points_of_files(tensors: str) -> None:
    """Whatever is accepted only moves values, or changes their type."""
    counts = {"accepted": 0, "refused": 0}
    for name in QUANTIZED:
        data = (models.MADE / f"{name}.tflite").read_bytes()
        if not name.endswith("_int16x8") or accepted(data) is None:
            continue
        graph = accepted(changed(data, 10, "<q", 5, tensors))
        counts["refused" if graph is None else "accepted"] += 1
        for node in graph.nodes if graph is not None else ():
            odd = [
                v for v in (*node.operands, *node.outputs) if v.type.quant and any(v.type.quant.zero_points)
            ]
            assert node.op.any_zero_point or all(v.type.dtype is not INT16 for v in odd), (name, node.op)
    assert counts["refused"] > 30
    assert counts["accepted"] > 0


@pytest.mark.parametrize("exponent", [-45, -24, -12, 24, 45])
@pytest.mark.parametrize("tensors", ["inputs", "outputs"])
def test_scales_of_files(tensors: str, exponent: int) -> None:
    """Every operator under scales far off: a refusal, or results, without a warning from numpy."""
    rng = np.random.default_rng(exponent + 60)
    for name in QUANTIZED:
        data = (models.MADE / f"{name}.tflite").read_bytes()
        graph = accepted(changed(data, 8, "<f", 2.0**exponent, tensors))
        if graph is None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            inputs = [rng.integers(0, 2, v.type.shape).astype(v.type.dtype.numpy) for v in graph.inputs]
            Interpreter(graph).run(*inputs)


@pytest.mark.slow
@pytest.mark.parametrize("tensors", ["inputs", "outputs"])
@pytest.mark.parametrize("exponent", [-24, 24])
def test_scales_of_files_compile(tensors: str, exponent: int) -> None:
    target = load("cortex-m4")
    compiled = 0
    for name in QUANTIZED:
        data = (models.MADE / f"{name}.tflite").read_bytes()
        try:
            graph = import_model(changed(data, 8, "<f", 2.0**exponent, tensors))
        except MicrofoldError:
            continue
        compile_graph(graph, target)
        compiled += 1
    assert compiled > 10
