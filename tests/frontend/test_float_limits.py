"""Float results beyond the largest number, as both oracles have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tflite

from microfold import compile
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from tests import oracle
from tests.needs import need_modules
from tests.tflite_writer import Array, Writer

LARGEST = float(np.finfo(np.float32).max)
RELU = tflite.ActivationFunctionType.RELU
NONE = tflite.ActivationFunctionType.NONE


def floats(*values: float) -> Array:
    return np.array(values, np.float32)[:, None]


def layer(weight: float, activation: int, bias: float = 0.0) -> tuple[bytes, list[Array]]:
    """A layer of two weights, and its result added to itself, which is clamped as well."""
    w, x = Writer(), np.array([[1, 1], [1, -1], [-1, -1]], np.float32)
    a = w.input(x.shape, "f4")
    filters = w.tensor((1, 2), "f4", data=np.full((1, 2), weight))
    biases = w.tensor((1,), "f4", data=np.array([bias]))
    y = w.tensor((3, 1), "f4")
    w.operator(
        "FULLY_CONNECTED",
        [a, filters, biases],
        y,
        "FullyConnectedOptions",
        FusedActivationFunction=activation,
    )
    twice = w.tensor((3, 1), "f4")
    w.operator("ADD", [y, y], twice, "AddOptions")
    return w.pack(), [x]


def quotient(activation: int) -> tuple[bytes, list[Array]]:
    w, arrays = Writer(), [floats(1, 0, -1, 3), floats(0, 0, 0, 2)]
    operands = [w.input(array.shape, "f4") for array in arrays]
    w.operator("DIV", operands, w.tensor((4, 1), "f4"), "DivOptions", FusedActivationFunction=activation)
    return w.pack(), arrays


def extreme(name: str) -> tuple[bytes, list[Array]]:
    """NaN gives the second operand."""
    w, arrays = Writer(), [floats(np.nan, 1, np.nan, -np.inf), floats(1, np.nan, np.nan, np.inf)]
    w.operator(name, [w.input(array.shape, "f4") for array in arrays], w.tensor((4, 1), "f4"))
    return w.pack(), arrays


MODELS = {
    "layer": (layer(3e38, NONE), [LARGEST, 0, -LARGEST, LARGEST, 0, -LARGEST]),
    "layer_relu": (layer(3e38, RELU), [LARGEST, 0, 0, LARGEST, 0, 0]),
    "ordinary": (layer(1.0, NONE, 1.0), [3, 1, -1, 6, 2, -2]),
    "quotient": (quotient(NONE), [LARGEST, np.nan, -LARGEST, 1.5]),
    "quotient_relu": (quotient(RELU), [LARGEST, np.nan, 0, 1.5]),
    "maximum": (extreme("MAXIMUM"), [1, np.nan, np.nan, np.inf]),
    "minimum": (extreme("MINIMUM"), [1, np.nan, np.nan, -np.inf]),
}


@pytest.mark.parametrize("name", MODELS)
def test_reference(name: str) -> None:
    (data, inputs), expected = MODELS[name]
    results = Interpreter(import_model(data)).run(*inputs)
    np.testing.assert_array_equal(np.concatenate(results).ravel(), np.array(expected, np.float32))


@pytest.mark.parametrize("name", ["layer_relu", "quotient", "maximum"])
def test_generated_code(name: str, tmp_path: Path) -> None:
    (data, inputs), expected = MODELS[name]
    path = tmp_path / "model.tflite"
    path.write_bytes(data)
    results = compile(path).run(*inputs)
    np.testing.assert_array_equal(np.concatenate(results).ravel(), np.array(expected, np.float32))


@pytest.mark.parametrize("wheel", ["tflm", "litert"])
@pytest.mark.parametrize("name", MODELS)
def test_wheels(name: str, wheel: str) -> None:
    need_modules("tflite_micro" if wheel == "tflm" else "ai_edge_litert")
    (data, inputs), expected = MODELS[name]
    wanted = oracle.operator_outputs(data)
    (tensors,) = (oracle.tflm if wheel == "tflm" else oracle.litert)(data, [inputs], wanted)
    results = np.concatenate([tensors[index].ravel() for index in wanted])
    np.testing.assert_array_equal(results, np.array(expected, np.float32))


def test_bounded_results_are_ordinary() -> None:
    """What a mask of large numbers leads to ends at a softmax."""
    w = Writer()
    x = w.input((1, 2), "f4")
    masked, weighed, sums = (w.tensor((1, 2), "f4") for _ in range(3))
    w.operator("ADD", [x, w.tensor((1, 2), "f4", data=np.array([[0, -3e38]]))], masked, "AddOptions")
    w.operator("SOFTMAX", [masked], weighed, "SoftmaxOptions", Beta=1.0)
    w.operator("ADD", [weighed, weighed], sums, "AddOptions")
    names = [node.op.name for node in import_model(w.pack()).nodes]
    assert names == ["add", "clip", "softmax", "add"]


def test_ordinary_layers_have_no_clamp() -> None:
    data, _ = MODELS["ordinary"][0]
    assert [node.op.name for node in import_model(data).nodes] == ["fully_connected", "add"]
