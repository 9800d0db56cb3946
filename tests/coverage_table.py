"""Which operators tests compare with the references' wheels, in which element types.

    python -m tests.coverage_table

writes docs/coverage.md from the models that these tests run: files with goldens, and the models that tests
draw or put together. `tests/test_coverage_table.py` says where the page is behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

from microfold.frontend.operators import IMPORTERS
from microfold.frontend.raw import RawOperator, RawSubgraph
from microfold.frontend.reader import read_model
from microfold.ir.types import DType
from tests.frontend import (
    models,
    test_computed_attributes,
    test_drawn_models,
    test_int16_conformance,
    test_legacy,
)
from tests.frontend.drawn_types import draw_model
from tests.frontend.operators import (
    test_circular_buffer,
    test_composed,
    test_decode,
    test_detection_postprocess,
    test_fourier,
    test_hybrid,
    test_hybrid_recurrent,
    test_recurrent,
    test_reduce_window,
)
from tests.ops import deciding
from tests.reduce_window_models import draw_reduce_window

PAGE = Path(__file__).resolve().parents[1] / "docs" / "coverage.md"
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64")
COLUMNS = (*_INTEGERS, "float16", "float32", "hybrid", "bool")

# Where the values that an operator computes with are not its first input.
_MAIN_INPUT = {
    "EMBEDDING_LOOKUP": 1,
    "FILL": 1,
    "ONE_HOT": 2,
    "SCATTER_ND": 1,
    "SPLIT": 1,
    "TRANSPOSE_CONV": 2,
}
_MAIN_INPUT |= {"CONV_3D_TRANSPOSE": 2, "SPARSE_TO_DENSE": 2, "SELECT": 1, "SELECT_V2": 1, "IF": 1}
# With float32 activations, these may have integer weights.
_HYBRID = (
    *("BATCH_MATMUL", "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "LSTM", "RNN", "SVDF"),
    *("TRANSPOSE_CONV", "UNIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_RNN"),
)
# Of these the first result tells more: the inputs are bytes.
_BY_RESULT = ("CUSTOM TFLM_DECODE",)

# What TFLM registers: `Add…` of
# https://github.com/tensorflow/tflite-micro/blob/main/tensorflow/lite/micro/micro_mutable_op_resolver.h
_BUILTIN = """
ABS ADD ADD_N ARG_MAX ARG_MIN ASSIGN_VARIABLE AVERAGE_POOL_2D BATCH_MATMUL BATCH_TO_SPACE_ND
BROADCAST_ARGS BROADCAST_TO CALL_ONCE CAST CEIL CONCATENATION CONV_2D COS CUMSUM DEPTHWISE_CONV_2D
DEPTH_TO_SPACE DEQUANTIZE DIV DYNAMIC_UPDATE_SLICE ELU EMBEDDING_LOOKUP EQUAL EXP EXPAND_DIMS FILL
FLOOR FLOOR_DIV FLOOR_MOD FULLY_CONNECTED GATHER GATHER_ND GREATER GREATER_EQUAL HARD_SWISH IF
L2_NORMALIZATION L2_POOL_2D LEAKY_RELU LESS LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR
LOGISTIC LOG_SOFTMAX MAXIMUM MAX_POOL_2D MEAN MINIMUM MIRROR_PAD MUL NEG NOT_EQUAL PACK PAD PADV2
PRELU QUANTIZE READ_VARIABLE REDUCE_ALL REDUCE_MAX REDUCE_MIN RELU RELU6 RESHAPE RESIZE_BILINEAR
RESIZE_NEAREST_NEIGHBOR REVERSE_V2 ROUND RSQRT SELECT_V2 SHAPE SIN SLICE SOFTMAX SPACE_TO_BATCH_ND
SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARE SQUARED_DIFFERENCE SQUEEZE STRIDED_SLICE SUB SUM SVDF TANH
TRANSPOSE TRANSPOSE_CONV UNIDIRECTIONAL_SEQUENCE_LSTM UNPACK VAR_HANDLE WHILE ZEROS_LIKE
"""
_CUSTOM = """
CIRCULAR_BUFFER TFLM_DECODE TFLite_Detection_PostProcess ethos-u SignalDelay SignalEnergy
SignalFftAutoScale SignalFilterBank SignalFilterBankLog SignalFilterBankSpectralSubtraction
SignalFilterBankSquareRoot SignalFramer SignalIrfft SignalOverlapAdd SignalPCAN SignalRfft SignalStacker
SignalWindow
"""
TFLM = [*_BUILTIN.split(), *(f"CUSTOM {name}" for name in _CUSTOM.split())]

# Why there is nothing to compare, or nothing that computes.
REASONS = {
    "CUSTOM ethos-u": "a call of the NPU's driver; no wheel has it",
    "CALL": "no wheel has it; its subgraph is inlined",
    "DENSIFY": "only for constants; compared as dense constants",
}


def compared() -> Iterator[bytes]:
    """Models that a test runs, and compares with what a wheel gives or has given."""
    for golden in sorted(models.GOLDENS.rglob("*.npz")):
        name = golden.relative_to(models.GOLDENS).with_suffix("")
        yield (models.MADE / f"{name}.tflite").read_bytes()
    for name, dtype in test_drawn_models.CASES:
        if (name, dtype) not in test_drawn_models.BEYOND:
            yield draw_model(name, dtype, 0)[0]
    yield deciding.model(list({case.kind: case for case in deciding.load()}.values()))[0]
    for kind in test_recurrent.OTHERS:
        yield test_recurrent.other_layer(kind, 0)[0]
    rng = np.random.default_rng(0)
    yield from (draw(rng).data for draw in test_hybrid.EXACT.values())
    yield from (
        test_hybrid_recurrent.draw_layer(kind, rng, False)[0] for kind in test_hybrid_recurrent.LAYERS
    )
    yield from (build() for build in test_composed.CASES.values())
    yield from (build()[0] for build, _ in test_computed_attributes.CASES.values())
    yield from (test_decode.model(dtype, *case[:2]) for dtype, case in test_decode.CASES.values())
    yield from (test_detection_postprocess.detector(dtype) for dtype in ("f4", "u1"))
    yield from (test_circular_buffer.streaming(network) for network in test_circular_buffer.NETWORKS.values())
    yield from (draw_reduce_window(*case, 0)[0] for case in test_reduce_window.CASES)
    yield test_legacy.mobile(0)
    yield from (draw(0)[0] for draw in test_legacy.DRAWN.values())
    yield from (model[0] for _, model in test_int16_conformance.cases())
    yield test_fourier.transform((1, 8), (1, 8))
    yield from (test_fourier.complex_model(name) for name in test_fourier.CASES)
    for name in (*test_legacy.BINARY, *test_legacy.UNARY):
        yield test_legacy.operator(name, 0)[0]


@cache
def collect() -> dict[str, set[str]]:
    """Element types by operator."""
    found: dict[str, set[str]] = {}
    for data in compared():
        for subgraph in read_model(data, "a test's model"):
            for operator in subgraph.operators:
                found.setdefault(operator.name, set()).update(_types(subgraph, operator))
    return found


def _types(subgraph: RawSubgraph, operator: RawOperator) -> Iterator[str]:
    place = min(_MAIN_INPUT.get(operator.name, 0), len(operator.inputs) - 1)
    tensors = operator.inputs[place : place + 1]
    if operator.name in _BY_RESULT or not tensors:
        tensors = operator.outputs[:1]
    for index in tensors:
        dtype = subgraph.tensors[index].dtype
        if dtype is DType.FLOAT32 and _has_integer_weights(subgraph, operator):
            yield "hybrid"
        elif dtype is not None:
            yield (DType.INT8 if dtype is DType.INT4 else dtype).value


def _has_integer_weights(subgraph: RawSubgraph, operator: RawOperator) -> bool:
    types = [subgraph.tensors[index].dtype for index in operator.inputs if index >= 0]
    return operator.name in _HYBRID and (DType.INT8 in types or DType.INT4 in types)


def page() -> str:
    """The page, from what tests run now."""
    found = collect()
    rows = [f"| operator | {' | '.join(COLUMNS)} | |", f"|---|{'---|' * (len(COLUMNS) + 1)}"]
    for name in sorted({*found, *TFLM, *IMPORTERS}, key=lambda name: name.removeprefix("CUSTOM ").upper()):
        types = found.get(name, set())
        cells = " | ".join("x" if column in types else "" for column in COLUMNS)
        reason = REASONS.get(name, "" if types else "compared" if name in found else "not compared")
        rows.append(f"| {name.removeprefix('CUSTOM ')} | {cells} | {reason} |")
    return _HEAD + "\n".join(rows) + "\n"


_HEAD = """# Compared operators

`python -m tests.coverage_table` writes this page from the models that tests run. An x means that a test
compares the operator's results for this type with those of TFLM's or LiteRT's wheel, live or as recorded in
`tests/goldens`. The table has all operators that TFLM registers, and all that can be imported. *hybrid* is
float32 with integer weights.

More operators and types compile: see [operators](operators.md). Types without an x are compared only with the
reference in Python.

"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
