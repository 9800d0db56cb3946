"""TFLite_Detection_PostProcess: files with its options, and what the references make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from microfold.errors import UnsupportedModelError
from microfold.frontend.tflite import import_model
from microfold.ir.interpret import Interpreter
from tests import oracle
from tests.needs import need_modules
from tests.tflite_writer import Array, Writer

OPTIONS: dict[str, Any] = {
    "num_classes": 3,
    "max_detections": 7,
    "max_classes_per_detection": 1,
    "nms_score_threshold": 0.25,
    "nms_iou_threshold": 0.4,
    "y_scale": 10.0,
    "x_scale": 10.0,
    "h_scale": 5.0,
    "w_scale": 5.0,
}
BOXES = 40
QUANTIZATION: dict[str, Sequence[tuple[float | None, int]]] = {
    "f4": [(None, 0), (None, 0)],
    "u1": [(0.05, 120), (1 / 256, 0)],
    "i1": [(0.05, 3), (1 / 256, -128)],
}


def anchors() -> Array:
    rng = np.random.default_rng(3)
    return np.concatenate((rng.uniform(0, 1, (BOXES, 2)), rng.uniform(0.1, 0.5, (BOXES, 2))), 1)


def detector(dtype: str = "f4", background: int = 1, custom: bytes | None = None, **options: Any) -> bytes:
    """A file of the operator alone, with these options beside or in the place of `OPTIONS`."""
    options = OPTIONS | options
    w, (of_boxes, of_scores) = Writer(), QUANTIZATION[dtype]
    encodings = w.input((1, BOXES, 4), dtype, *of_boxes)
    scores = w.input((1, BOXES, options["num_classes"] + background), dtype, *of_scores)
    if dtype == "u1":
        around = w.tensor((BOXES, 4), "u1", 1 / 255, data=np.round(anchors() * 255))
    else:
        around = w.tensor((BOXES, 4), "f4", data=anchors())
    rows = options["max_detections"] * options["max_classes_per_detection"]
    results = [w.tensor(shape, "f4") for shape in ((1, rows, 4), (1, rows), (1, rows), (1,))]
    custom = bytes(flexbuffers.Dumps(options)) if custom is None else custom
    w.operator("TFLite_Detection_PostProcess", [encodings, scores, around], results, custom=custom)
    return w.pack()


def calls(data: bytes, *, ties: bool) -> list[list[Array]]:
    """Encodings, and scores of which few or, with `ties`, many are equal."""
    rng, result = np.random.default_rng(7), list[list[Array]]()
    for _ in range(4):
        arrays: list[Array] = []
        for value in import_model(data).inputs:
            dtype = value.type.dtype.numpy
            if dtype.kind == "f":
                scores = rng.uniform(0, 1, value.type.shape)
                normal = rng.standard_normal(value.type.shape) * 3
                array = np.round(scores * 8) / 8 if ties else scores
                arrays.append((array if arrays else normal).astype(dtype))
            else:
                info = np.iinfo(dtype)
                arrays.append(rng.integers(info.min, info.max, value.type.shape, dtype, endpoint=True))
        result.append(arrays)
    return result


def check(data: bytes, *references: str, ties: bool = True, defined: Array | None = None) -> None:
    """Our results are these references': counts, classes and scores exactly, and boxes bit for bit, too.

    Args:
        defined: which rows of the results the references write; None: those found.
    """
    need_modules("tflite_micro", "ai_edge_litert")
    graph, given = import_model(data), calls(data, ties=ties)
    wanted = oracle.operator_outputs(data)
    for reference in references:
        found = getattr(oracle, reference)(data, given, wanted)
        for inputs, theirs in zip(given, found, strict=True):
            ours = Interpreter(graph).run(*inputs)
            assert ours[3] == theirs[wanted[3]]
            count = int(ours[3][0]) * (ours[1].shape[1] // OPTIONS["max_detections"])
            assert count > 3
            rows = np.arange(ours[1].shape[1]) < count if defined is None else defined
            for mine, index in zip(ours[:3], wanted, strict=False):
                np.testing.assert_array_equal(mine[0, rows], theirs[index].reshape(mine.shape)[0, rows])


@pytest.mark.parametrize("background", [0, 1])
def test_floats(background: int) -> None:
    check(detector(background=background), "tflm", "litert")


@pytest.mark.parametrize("per_class", [2, 100])
def test_suppression_by_class(per_class: int) -> None:
    """Boxes behind those found are zeros in the references, too."""
    everything = np.ones(OPTIONS["max_detections"], bool)
    data = detector(use_regular_nms=True, detections_per_class=per_class, nms_score_threshold=0.8)
    check(data, "tflm", "litert", defined=everything)
    check(detector(use_regular_nms=True, nms_iou_threshold=1.0), "tflm", "litert")


def test_bytes() -> None:
    """LiteRT has uint8, and nobody int8, which is the same with other zero points."""
    check(detector("u1"), "litert")
    check(detector("u1", use_regular_nms=True), "litert")
    unsigned, signed = (Interpreter(import_model(detector(dtype))) for dtype in ("u1", "i1"))
    inputs = calls(detector("u1"), ties=False)[0]
    shifted = [
        (array.astype(np.int16) - shift).astype(np.int8)
        for array, shift in zip(inputs, (117, 128), strict=True)
    ]
    np.testing.assert_array_equal(unsigned.run(*inputs)[2], signed.run(*shifted)[2])


def test_several_classes_of_a_box() -> None:
    """Where classes are equal, LiteRT's order is that of its C++ library."""
    check(detector(max_classes_per_detection=2), "litert", ties=False)
    # There are fewer classes than rows for them: one row of each box stays as it was.
    written = np.arange(7 * 4) % 4 < 3
    check(
        detector(max_classes_per_detection=4, nms_score_threshold=0.0), "litert", ties=False, defined=written
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"custom": b""}, "its options must be a flexbuffer map"),
        ({"custom": b"\x05\x04\x01"}, "its options must be a flexbuffer map"),
        ({"custom": bytes(flexbuffers.Dumps({"num_classes": 3}))}, "must have max_detections, max_classes"),
        ({"nms_iou_threshold": 1.5}, r"threshold must be in \(0, 1\]; it is 1.5"),
        ({"x_scale": 0.0}, "scales must not be 0"),
        ({"background": 2}, r"scores must be \[1,40,3 or 4\]"),
        ({"num_classes": 3.0, "background": 0}, "must be integers"),
        ({"detections_per_class": 1 << 40}, "per_class must be in"),
        ({"max_detections": 0}, "max_detections must be positive; it is 0"),
        ({"y_scale": float("nan")}, "scales must be a finite float32"),
    ],
)
def test_what_no_reference_runs_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        import_model(detector(**options))
