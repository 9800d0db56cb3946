"""Models of one operator against the oracles' wheels, and their C against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from tests import oracle
from tests.frontend.drawn_types import OPERATORS, draw_model
from tests.kernels.portable import check, check_on_cores
from tests.kernels.random_networks import merge
from tests.needs import need_modules

DRAWS = 4
# Types that no oracle has: the others' meaning is theirs, too.
BEYOND = {
    *(("ARG_MAX", "i2"), ("ARG_MIN", "i2"), ("ONE_HOT", "i2"), ("REVERSE_SEQUENCE", "i1")),
    ("SCATTER_ND", "i2"),
}
# TFLM takes the first row's scale for all rows; it writes no results of int16.
TFLM_IS_WRONG = ("EMBEDDING_LOOKUP scaled", "GREATER")
# LiteRT's reference kernel leaves out the last of the neighbours; its other kernel, and TensorFlow, do not.
REFERENCE_IS_WRONG = ("LOCAL_RESPONSE_NORMALIZATION",)
CASES = [(name, dtype) for name, (dtypes, _) in OPERATORS.items() for dtype in dtypes.split()]


def expected(name: str, data: bytes, inputs: list[oracle.Array]) -> list[oracle.Array] | None:
    """What the deciding oracle gives; None if none can run the model."""
    import tflite

    graph = tflite.Model.GetRootAsModel(data, 0).Subgraphs(0)
    outputs = [int(n) for n in graph.OutputsAsNumpy()]
    runs = [
        *(() if name in TFLM_IS_WRONG else (lambda: oracle.tflm(data, [inputs], outputs),)),
        *(() if name in REFERENCE_IS_WRONG else (lambda: oracle.litert(data, [inputs], outputs),)),
        lambda: oracle.litert(data, [inputs], outputs, reference=False),
    ]
    for run in runs:
        try:
            (tensors,) = run()
        except oracle.OracleError:
            continue
        return [tensors[index] for index in outputs]
    return None


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_as_the_oracle(name: str, dtype: str) -> None:
    need_modules("tflite_micro", "ai_edge_litert")
    for seed in range(DRAWS):
        data, inputs = draw_model(name, dtype, seed)
        results = Interpreter(import_model(data)).run(*inputs)
        theirs = expected(name, data, inputs)
        assert (theirs is None) == ((name, dtype) in BEYOND)
        for ours, other in zip(results, theirs or results, strict=True):
            assert not oracle.difference(ours, np.asarray(other, ours.dtype)), (name, dtype, seed)


def test_c_is_as_the_reference() -> None:
    check(merge([import_model(draw_model(name, dtype, 0)[0]) for name, dtype in CASES]))


@pytest.mark.exhaustive
def test_c_on_cores() -> None:
    check_on_cores(merge([import_model(draw_model(name, dtype, 1)[0]) for name, dtype in CASES]))
