"""Operators that move elements between scales: bytes are copied where every reference copies them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from microfold import target
from microfold.compiler import compile_graph
from microfold.errors import MicrofoldError
from microfold.frontend.tflite import trace_model
from microfold.ir.interpret import Interpreter
from tests import oracle
from tests.frontend.moved_bytes import CASES, Movement, Quantization
from tests.needs import need_modules

# Of the first operand, of the others, and of the results.
SAME: tuple[Quantization, ...] = ((0.1, 3), (0.1, 3), (0.1, 3))
OTHER_RESULT: tuple[Quantization, ...] = ((0.1, 3), (0.1, 3), (0.25, -5))
ALL_OTHER: tuple[Quantization, ...] = ((0.1, 3), (0.5, 0), (0.25, -5))


def written(name: str, dtype: str, scales: tuple[Quantization, ...]) -> bytes:
    return CASES[name](Movement(dtype, *scales))


def expected(data: bytes, same: bytes, inputs: list[oracle.Array]) -> list[oracle.Array] | None:
    """What the references give; None if one refuses a file, or gives other bytes than the other.

    One that refuses the file with equal scales does not know the operator, or its type.
    """
    found: list[list[oracle.Array]] = []
    wanted = oracle.operator_outputs(data)
    for reference in (oracle.tflm, oracle.litert):
        try:
            reference(same, [inputs], wanted)
        except oracle.OracleError:
            continue
        try:
            results = reference(data, [inputs], wanted)[0]
        except oracle.OracleError:
            return None
        found.append([results[index].reshape(-1) for index in wanted])
    if not found:
        pytest.skip("no reference knows the operator")
    if any(not np.array_equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True)):
        return None
    return found[0]


def without_zero_points(scales: tuple[Quantization, ...]) -> tuple[Quantization, ...]:
    return tuple((scale, 0) for scale, _ in scales)


@pytest.mark.parametrize("scales", [OTHER_RESULT, ALL_OTHER], ids=["result", "all"])
@pytest.mark.parametrize(
    ("dtype", "symmetric"), [("i1", False), ("i2", True), ("i2", False)], ids=["int8", "int16", "odd int16"]
)
@pytest.mark.parametrize("name", CASES)
def test_bytes_are_copied_where_the_references_copy_them(
    name: str, dtype: str, symmetric: bool, scales: tuple[Quantization, ...]
) -> None:
    need_modules("tflite_micro", "ai_edge_litert")
    given = SAME if dtype == "i1" else without_zero_points(SAME)
    scales = without_zero_points(scales) if symmetric else scales
    same, data = written(name, dtype, given), written(name, dtype, scales)
    inputs = oracle.inputs_of(trace_model(same, "same"), seed=2)
    theirs = expected(data, same, inputs)
    # The resized image is computed: its type rule has no zero points of int16.
    if theirs is None or (name == "RESIZE_BILINEAR" and dtype == "i2" and not symmetric):
        with pytest.raises(MicrofoldError, match=r"quantised alike|int16 zero points? must be 0"):
            trace_model(data, "moved")
        return
    graph = trace_model(data, "moved").graph
    for ours, reference in zip(Interpreter(graph).run(*inputs), theirs, strict=True):
        np.testing.assert_array_equal(np.asarray(ours).reshape(-1), reference)
    compile_graph(graph, target.load("cortex-m4"))


def test_the_documentation_names_every_operator() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "operators.md").read_text(encoding="utf-8")
    section = page.split("## Moved elements at other scales")[1].split("\n## ")[0]
    assert {*CASES} <= {*re.findall(r"[A-Z][A-Z0-9_]+", section)}
