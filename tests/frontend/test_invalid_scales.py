"""Scales that mean nothing, of inputs, constants and results of every operator: refused, not ignored."""

from __future__ import annotations

import math

import pytest
import tflite

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from tests.frontend.drawn_types import OPERATORS, draw_model
from tests.frontend.mutations import with_scale

# Types whose values have scales; those of others are ignored.
INTEGERS = (tflite.TensorType.INT8, tflite.TensorType.UINT8, tflite.TensorType.INT16)
# A value of ONE_HOT without a scale does not fit the other one.
REFUSALS = "a scale must be in|operands must have one element type and quantisation"
SCALES = (-1.0, 0.0, math.nan, math.inf)


def _scaled_tensors(data: bytes) -> list[int]:
    """Return the tensors of a file that have a scale."""
    graph = tflite.Model.GetRootAsModel(data, 0).Subgraphs(0)
    found = [graph.Tensors(index) for index in range(graph.TensorsLength())]
    return [
        index
        for index, tensor in enumerate(found)
        if tensor.Type() in INTEGERS
        and tensor.Quantization() is not None
        and tensor.Quantization().ScaleLength()
    ]


@pytest.mark.parametrize("name", OPERATORS)
def test_refused(name: str) -> None:
    if name == "ONE_HOT scaled":
        return  # it copies the bytes of its values, whatever their scales are, as LiteRT does
    for dtype in {"i1", "u1", "i2"} & {*OPERATORS[name][0].split()}:
        try:
            data, _ = draw_model(name, dtype, 0)
            import_model(data)
        except (UnsupportedModelError, KeyError, TypeError, ValueError):  # it is not drawn of this type
            continue
        for tensor in _scaled_tensors(data):
            for scale in SCALES:
                with pytest.raises(UnsupportedModelError, match=REFUSALS):
                    import_model(with_scale(data, tensor, scale))
