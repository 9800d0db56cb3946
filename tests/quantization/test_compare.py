"""Comparison of models tensor by tensor."""

from __future__ import annotations

import math

import numpy as np
import pytest

from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.ir.node import Value
from microfold.ir.parse import parse
from microfold.ir.types import DType, Quant, TensorType
from microfold.quantization.compare import QuantizedModel, _Power, compare, decibels
from microfold.quantization.layers import FloatLayer, layer_schemes

SAMPLES = np.random.default_rng(0).normal(size=(40, 1, 4)).astype(np.float32)
FLOAT = (
    "graph @m(%x: float32[1,4]) -> (%z) {\n  %y: float32[1,4] = abs(%x)\n  %z: float32[1,4] = tanh(%y)\n}\n"
)


def layers(graph: Graph) -> list[FloatLayer]:
    nodes = enumerate(graph.nodes)
    return [FloatLayer(n, node.outputs[0], node.op.name, f"{node.outputs[0].name};") for n, node in nodes]


def test_decibels() -> None:
    assert decibels(100.0, 1.0) == pytest.approx(20)
    assert decibels(1.0, 0.0) is None
    assert decibels(0.0, 1.0) == -math.inf


def test_saturation_is_measured_against_the_quantised_range() -> None:
    """int8 with a step of 1 ends at 127; half a step beyond is rounding, what is more is saturation."""
    value = Value("t", TensorType(DType.INT8, (4,), Quant.per_tensor(1.0)))
    power = _Power()
    power.add(np.array([1.25, 127.4, 137, -148], np.float32), np.array([1, 127, 127, -128], np.int8), value)
    assert (power.elements, power.saturated) == (4, 2)
    assert power.saturated_noise == pytest.approx(100 + 400)
    assert power.noise == pytest.approx(100 + 400 + 0.25**2 + 0.4**2, rel=1e-6)


def test_a_model_agrees_with_itself() -> None:
    graph = parse(FLOAT)
    candidate = QuantizedModel(graph, layers(graph))
    steps: list[int] = []
    labels = [int(sample.argmax()) for sample in SAMPLES]
    accuracy = compare(graph, [candidate], [SAMPLES], labels, lambda done, _: steps.append(done))
    assert steps == [*range(1, 41)]
    (output,) = candidate.output_qualities(len(labels))
    assert (output.snr, output.agreement, output.accuracy) == (None, 1.0, accuracy)
    found = candidate.layer_qualities()
    assert [(layer.tensor, layer.snr, layer.own_snr) for layer in found] == [
        ("y", None, None),
        ("z", None, None),
    ]


def test_the_loss_of_a_layer_alone_excludes_earlier_ones() -> None:
    """The first layer loses, the second one only passes the loss on."""
    graph = parse(FLOAT)
    worse = parse(FLOAT.replace("abs", "logistic"))
    candidate = QuantizedModel(worse, layers(graph))
    compare(graph, [candidate], [10 * SAMPLES], None, lambda _, __: None)
    first, second = candidate.layer_qualities()
    assert first.snr is not None
    assert first.snr == first.own_snr
    assert second.snr is not None
    assert second.own_snr is None


def test_schemes_of_layers_are_selected_by_number_or_name() -> None:
    found = layers(parse(FLOAT))
    assert layer_schemes(["1=float", "y=int8"], found) == {"z;": "float", "y;": "int8"}
    with pytest.raises(
        InputError, match=r"'7=float': a layer must be a number from 0 to 1.*'y=int3': the scheme"
    ):
        layer_schemes(["7=float", "y=int3"], found)
