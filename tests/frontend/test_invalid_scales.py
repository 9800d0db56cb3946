"""Scales that mean nothing, of inputs, constants and results of every operator: refused, not ignored."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tflite

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from tests.frontend.drawn_types import OPERATORS, draw_model
from tests.frontend.mutations import with_scale

SCALES = (-1.0, 0.0, math.nan, math.inf)


def _scaled_tensors(data: bytes) -> list[int]:
    """Return the tensors of a file that have a scale."""
    graph = tflite.Model.GetRootAsModel(data, 0).Subgraphs(0)
    found = [graph.Tensors(index).Quantization() for index in range(graph.TensorsLength())]
    return [index for index, quant in enumerate(found) if quant is not None and quant.ScaleLength()]


def _is_zero(data: bytes, index: int) -> bool:
    """Return whether a tensor is a constant of bytes that are real zeros, which may have the scale 0."""
    model = tflite.Model.GetRootAsModel(data, 0)
    tensor = model.Subgraphs(0).Tensors(index)
    elements = model.Buffers(tensor.Buffer()).DataAsNumpy()
    return isinstance(elements, np.ndarray) and bool((elements == tensor.Quantization().ZeroPoint(0)).all())


@pytest.mark.parametrize("name", OPERATORS)
def test_refused(name: str) -> None:
    for dtype in {"i1", "u1", "i2"} & {*OPERATORS[name][0].split()}:
        try:
            data, _ = draw_model(name, dtype, 0)
            import_model(data)
        except (UnsupportedModelError, KeyError, TypeError, ValueError):  # it is not drawn of this type
            continue
        for tensor in _scaled_tensors(data):
            for scale in SCALES:
                if scale == 0 and _is_zero(data, tensor):
                    continue
                with pytest.raises(UnsupportedModelError, match="a scale must be in"):
                    import_model(with_scale(data, tensor, scale))
