"""Sparse constants are read as what they stand for, or refused."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.errors import MicrofoldError, ModelFormatError
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from tests.frontend.operators.sparse_models import sparse_layer
from tests.needs import need_modules


def pruned(units: int, inputs: int, density: float) -> np.ndarray:
    rng = np.random.default_rng(inputs)
    kept = np.repeat(rng.random((units, inputs // 4)) < density, 4, axis=1)
    return (rng.standard_normal((units, inputs)) * kept).astype(np.float32)


SHAPES = [(3, 8, 0.5), (5, 64, 0.1), (2, 2048, 0.1), (4, 16, 1.0), (2, 8, 0.0)]


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize(("units", "inputs", "density"), SHAPES)
def test_weights(units: int, inputs: int, density: float, blocks: bool) -> None:
    weights = pruned(units, inputs, density)
    if not weights.any():
        weights[0, :4] = 1.0  # an empty buffer would be no constant
    graph = import_model(sparse_layer(weights, blocks=blocks))
    (node,) = graph.nodes
    assert np.array_equal(graph.constants[node.operands[1]], weights)


def test_like_the_oracle() -> None:
    need_modules("ai_edge_litert")
    from ai_edge_litert.interpreter import Interpreter as Oracle

    weights = pruned(5, 64, 0.3)
    data = sparse_layer(weights)
    oracle = Oracle(model_content=data)
    oracle.allocate_tensors()
    x = np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
    oracle.set_tensor(oracle.get_input_details()[0]["index"], x)
    oracle.invoke()
    expected = oracle.get_tensor(oracle.get_output_details()[0]["index"])
    (given,) = Interpreter(import_model(data)).run(x)
    np.testing.assert_allclose(given, expected, rtol=1e-5, atol=1e-6)


def test_broken_files_are_refused() -> None:
    """Whatever byte is wrong: read, or refused as malformed or unsupported."""
    data = sparse_layer(pruned(3, 8, 0.5))
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(1500):
        broken = bytearray(data)
        for position in rng.integers(8, len(data), rng.integers(1, 3)):
            broken[position] = rng.integers(256)
        try:
            import_model(bytes(broken))
        except MicrofoldError as error:
            refused += isinstance(error, ModelFormatError)
    assert refused > 100
