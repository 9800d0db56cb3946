"""NON_MAX_SUPPRESSION_V4 and V5: limits that are computed, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model, trace_model
from microfold.ir.interpret import Interpreter
from tests import oracle
from tests.tflite_writer import Writer

BOXES = 9


def model(limit: int | None, *, sigma: float = 0.5, boxes: int = BOXES, rows: int = 4) -> bytes:
    """Of version 5; the limit is an input if it is None."""
    writer = Writer()
    operands = [writer.input((boxes, 4), "f4"), writer.input((BOXES,), "f4")]
    given = None if limit is None else np.array(limit)
    operands.append(writer.input((), "i4") if given is None else writer.tensor((), "i4", data=given))
    operands += [writer.tensor((), "f4", data=np.array(number)) for number in (0.5, 0.1, sigma)]
    results = [writer.tensor((rows,), "i4"), writer.tensor((rows,), "f4"), writer.tensor((), "i4")]
    writer.operator("NON_MAX_SUPPRESSION_V5", operands, results, "NonMaxSuppressionV5Options")
    return writer.pack()


@pytest.mark.parametrize("limit", [1, 4])
def test_limit_is_computed(limit: int) -> None:
    data, rng = model(None), np.random.default_rng(0)
    boxes, scores = rng.random((BOXES, 4), np.float32), rng.random(BOXES, np.float32)
    traced = trace_model(data)
    call = [boxes, scores, np.array(limit, np.int32)]
    results = dict(zip(oracle.operator_outputs(data), traced.graph.outputs, strict=True))
    assert [value.type.shape for value in results.values()] == [(4,), (4,), ()]
    (theirs,) = oracle.litert(data, [call], list(results))
    ours = Interpreter(traced.graph).run(*call)
    for array, index in zip(ours, results, strict=True):
        # LiteRT's results have as many rows as the limit says; the others are 0.
        rows = np.zeros(array.size, array.dtype)
        rows[: theirs[index].size] = theirs[index].reshape(-1)
        assert not oracle.difference(array, rows)


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (model(0), "size must be positive"),
        (model(-1), "size must be positive"),
        (model(4, sigma=-0.5), "sigma must not be negative"),
        (model(4, sigma=float("nan")), "sigma must not be negative"),
        (model(4, boxes=BOXES + 1), "scores must be"),
        (model(1 << 25), "at most"),
    ],
)
def test_refused(data: bytes, rule: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rule):
        import_model(data)
