"""Operands that an operator cannot have, by the rule, the values and what to do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from tests.tflite_writer import Writer

Build = Callable[[Writer], None]


def given(w: Writer, *shape: int, dtype: str = "f4") -> int:
    return w.input(shape, dtype)


def known(w: Writer, *numbers: object, dtype: str = "i4") -> int:
    array = np.array(numbers[0] if len(numbers) == 1 else numbers, dtype)
    return w.tensor(array.shape, dtype, data=array)


def case(name: str, operands: Callable[[Writer], list[int]], options: str = "", **fields: object) -> Build:
    """An operator with these operands, and one result of float32."""

    def build(w: Writer) -> None:
        w.operator(name, operands(w), w.tensor((2, 3), "f4"), options, **fields)

    return build


CASES: list[tuple[Build, str]] = [
    (
        case("GATHER_ND", lambda w: [given(w, 4, 3), known(w, [[0, 1], [2, 3]])]),
        r"indices along axis 1 must be in \[0, 3\); they are in \[1, 3\]",
    ),
    (
        case("SCATTER_ND", lambda w: [known(w, [[0], [-1]]), given(w, 2, 3), known(w, 4, 3)]),
        r"indices along axis 0 must be in \[0, 4\); they are in \[-1, 0\]",
    ),
    (
        case("EMBEDDING_LOOKUP", lambda w: [known(w, [0, 4]), given(w, 4, 3)]),
        r"indices must be in \[0, 4\); they are in \[0, 4\]",
    ),
    (
        case("EMBEDDING_LOOKUP", lambda w: [given(w, 2, dtype="i4"), known(w, [[1, 2]], dtype="i2")]),
        "the result must have the type of the table",
    ),
    (
        case("WHERE", lambda w: [given(w, 4, dtype="?")]),
        "its condition must be constant; it is computed by the model; export the model with static shapes",
    ),
    (case("WHERE", lambda w: [known(w, [0, 0])]), "its result has no elements"),
    (
        case("ZEROS_LIKE", lambda w: [given(w, 4, dtype="i4")]),
        "its result must be int32 like its input; it is float32",
    ),
    (
        case("UNIQUE", lambda w: [known(w, 4, 5)], "UniqueOptions"),
        "it must have 2 outputs, the second one int32 or int64",
    ),
    (
        case("UNIQUE", lambda w: [given(w, 4)], "UniqueOptions"),
        "its input must be constant; it is computed by the model",
    ),
    (
        case("RANGE", lambda w: [given(w, dtype="i4"), known(w, 3), known(w, 1)]),
        "its start must be constant; it is computed by the model",
    ),
    (
        case("RANGE", lambda w: [known(w, 0), known(w, 3), known(w, -1)]),
        "delta must lead from start to limit; they are -1, 0 and 3",
    ),
    (
        case("RANGE", lambda w: [known(w, 0), known(w, 2_000_000_000), known(w, 1)]),
        "a tensor has at most 16777216 elements; its result has 2000000000",
    ),
    (
        case("BROADCAST_ARGS", lambda w: [known(w, 2, 3), known(w, 4, 3)]),
        r"the shapes \[2, 3\] and \[4, 3\] do not broadcast",
    ),
    (
        case(
            "REVERSE_SEQUENCE",
            lambda w: [given(w, 2, 3), known(w, 1, 4)],
            "ReverseSequenceOptions",
            SeqDim=1,
        ),
        r"lengths must be in \[0, 3\]; they are in \[1, 4\]",
    ),
    (
        case("REVERSE_SEQUENCE", lambda w: [given(w, 2, 3), known(w, 1, 1)], "ReverseSequenceOptions"),
        "sequences and batch must be different axes; both are 0",
    ),
    (
        case("MATRIX_SET_DIAG", lambda w: [given(w, 2, 3), given(w, 3)]),
        r"the diagonals of float32\[2,3\] must be \[2\]; they are float32\[3\]",
    ),
    (
        case("SEGMENT_SUM", lambda w: [given(w, 3, 2), known(w, 0, 2, 2)]),
        r"segment ids must begin with 0, and increase by 0 or 1; they are \[0, 2, 2\]",
    ),
    (
        case("SEGMENT_SUM", lambda w: [given(w, 3, 2), given(w, 3, dtype="i4")]),
        "its segment ids must be constant",
    ),
    (
        case("TOPK_V2", lambda w: [given(w, 2, 3), known(w, 2)]),
        "it must have 2 outputs; it has 1",
    ),
    (
        case("REDUCE_ALL", lambda w: [given(w, 2, 3), known(w, [0])], "ReducerOptions"),
        r"input and result must be bool; they are float32\[2,3\]",
    ),
    (
        case("FLOOR_DIV", lambda w: [given(w, 2, 3), given(w, 2, dtype="i4")]),
        r"floor_div: the shapes \[2, 3\] and \[2\] do not broadcast",
    ),
    (
        case("BITCAST", lambda w: [given(w, 2, 3, dtype="i1")]),
        r"the last axis of int8\[2,3\] must have the 4 elements of one float32",
    ),
    (
        case(
            "LOCAL_RESPONSE_NORMALIZATION",
            lambda w: [given(w, 1, 2, 2, 3)],
            "LocalResponseNormalizationOptions",
            Radius=-1,
        ),
        "the radius must not be negative",
    ),
]


@pytest.mark.parametrize(("build", "reason"), CASES, ids=[reason for _, reason in CASES])
def test_refused(build: Build, reason: str) -> None:
    writer = Writer()
    build(writer)
    with pytest.raises(UnsupportedModelError, match=reason):
        import_model(writer.pack())
