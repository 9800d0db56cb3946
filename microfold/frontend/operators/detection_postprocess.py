"""Importer of TFLite_Detection_PostProcess, the last operator of SSD detectors.

Source: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/lite/kernels/detection_postprocess.cc
"""

from __future__ import annotations

from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.ir.types import DType
from microfold.ops.detection_postprocess import DetectionPostprocess
from microfold.ops.elementwise.conversions.dequantize import Dequantize

# Default in the references.
_PER_CLASS = 100

_INTEGERS = ("num_classes", "max_detections", "max_classes_per_detection")
_REALS = ("nms_score_threshold", "nms_iou_threshold", "y_scale", "x_scale", "h_scale", "w_scale")


@imports("CUSTOM TFLite_Detection_PostProcess")
def detection_postprocess(context: OperatorContext) -> None:
    """Import the operator. Quantised anchors, which are small, become float32."""
    options = _options(context.raw.custom_options())
    with np.errstate(over="ignore"):  # the operator rejects infinities
        score, overlap, *scales = (float(np.float32(options[name])) for name in _REALS)
    op = DetectionPostprocess(
        *(int(options[name]) for name in _INTEGERS),
        per_class=int(options.get("detections_per_class", _PER_CLASS)),
        score_threshold=score,
        overlap_threshold=overlap,
        scales=(scales[0], scales[1], scales[2], scales[3]),
        regular=bool(options.get("use_regular_nms", False)),
    )
    encodings, scores, anchors = (context.input(index) for index in range(3))
    if anchors.type.dtype is not DType.FLOAT32:
        (anchors,) = context.emit(Dequantize(), anchors, names=[f"{context.name()}_anchors"])
    names = [context.name(index) for index in range(len(context.raw.outputs))]
    if len(names) != 4:
        raise Unsupported(f"it must have 4 outputs; it has {len(names)}")
    context.finish(*context.emit(op, encodings, scores, anchors, names=names))


def _options(data: bytes) -> dict[str, Any]:
    try:
        value: Any = flexbuffers.Loads(bytearray(data))
        options = {str(name): field for name, field in value.items() if isinstance(field, bool | int | float)}
    except Exception as error:
        raise Unsupported(f"its options must be a flexbuffer map; they are {data[:64]!r}") from error
    missing = [name for name in (*_INTEGERS, *_REALS) if name not in options]
    if missing:
        raise Unsupported(f"its options must have {', '.join(missing)}; they are {options}")
    counts = [options.get(name, _PER_CLASS) for name in (*_INTEGERS, "detections_per_class")]
    if not all(isinstance(count, int) for count in counts):
        raise Unsupported(f"its numbers of classes and detections must be integers; they are {counts}")
    return options
