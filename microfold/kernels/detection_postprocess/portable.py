"""Box selection of a detector in portable C."""

from __future__ import annotations

import math

import numpy as np

from microfold.ir.types import DType, TensorType
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.elementwise.binary import C_TYPES
from microfold.kernels.fields import Field, declare
from microfold.kernels.kernel import Kernel, register
from microfold.kernels.layer import LayerContext
from microfold.ops.detection_postprocess import CORNERS, DetectionPostprocess

WORD = 4


@register
class DetectionPostprocessPortable(Kernel):
    """Non-maximum suppression with a heap that yields the boxes above the threshold by descending score.

    Each box is compared with the boxes that were kept before. A box is decoded when it leaves the heap, so
    that boxes below the threshold, or worse than the boxes that are needed, cost no exponentials. The result
    equals the reference's: a box is only dropped because of a box that was kept before it, and only then are
    its decoded coordinates read. Quantised scores are compared without dequantisation, with the smallest
    element that represents at least the threshold.

    Scratch: the kept boxes of a class if each class is processed separately; the best score of each box
    otherwise; the heap of indices. Constants: the anchors, unchanged. Floats: centres and half sizes in
    double as in the references, overlaps in float32 in the same order of operations, so that the same boxes
    are dropped.
    """

    name = "detection_postprocess__c"
    op = DetectionPostprocess
    code = 1500
    fields = declare(
        Field("anchors", "y, x, height, width"),
        Field("scales", "scales of y, x, height, width"),
        Field("boxes", "number of boxes, one for each anchor"),
        Field("encoding_length", "elements of a box, of which four are read"),
        "encoding_zero_point",
        "encoding_scale",
        Field("first_class", "1 if class 0 is the background, else 0"),
        "classes",
        "score_zero_point",
        "score_scale",
        Field("score_threshold", "in units of the stored scores"),
        "overlap_threshold",
        Field("max_classes", "maximum number of classes of a box"),
        Field("heap_start", "offset in the scratch, in elements of scores, aligned to words"),
        Field("max_kept", "maximum number of boxes of a class"),
        Field("max_detections", "maximum number of boxes"),
        Field("rows", "rows of the results"),
    )

    def supports(self, layer: LayerContext) -> str | None:
        return "it does not support an epilogue" if layer.node.epilogue else None

    def data_inputs(self, layer: LayerContext) -> tuple[int, ...]:
        return (0, 1) if layer.array(2) is not None else (0, 1, 2)

    def cost(self, layer: LayerContext) -> float:
        return 3000.0 * layer.node.outputs[1].type.size + 12.0 * layer.node.operands[1].type.size

    def lower(self, layer: LayerContext) -> KernelCall:
        op, anchors = layer.node.op, layer.array(2)
        assert isinstance(op, DetectionPostprocess)
        encodings, scores = (value.type for value in layer.node.operands[:2])
        boxes = encodings.shape[1]
        parameters: dict[str, Parameter] = {
            "scales": Constant("scales", np.array(op.scales, np.float32)),
            "boxes": boxes,
            "encoding_length": encodings.shape[2],
            "first_class": scores.shape[2] - op.classes,
            "classes": op.classes,
            "score_threshold": _least(op.score_threshold, scores),
            "overlap_threshold": float(np.float32(op.overlap_threshold)),
            "max_detections": op.max_detections,
            "rows": op.rows,
            **_quantization("encoding", encodings),
            **_quantization("score", scores),
        }
        if anchors is not None:
            parameters["anchors"] = Constant("anchors", anchors)
        index = DType.INT16 if boxes <= DType.INT16.range[1] else DType.INT32
        if op.regular:
            parameters["max_kept"] = min(op.per_class, op.max_detections)
            before_heap = parameters["max_kept"] * CORNERS * DType.FLOAT32.itemsize
        else:
            parameters["max_classes"] = op.max_classes
            before_heap = math.ceil(boxes * scores.dtype.itemsize / WORD) * WORD
            parameters["heap_start"] = before_heap // scores.dtype.itemsize
        spec = (
            ("regular", op.regular),
            ("type", C_TYPES[encodings.dtype]),
            ("score", C_TYPES[scores.dtype]),
            ("index", C_TYPES[index]),
            ("constant", anchors is not None),
        )
        function = CFunction("detection_postprocess/portable.c.j2", self.name, spec, self.fields)
        return KernelCall(function, parameters, scratch=before_heap + boxes * index.itemsize)


def _quantization(what: str, x: TensorType) -> dict[str, Parameter]:
    if x.quant is None:
        return {}
    return {f"{what}_zero_point": x.quant.zero_point, f"{what}_scale": float(np.float32(x.quant.scale))}


def _least(threshold: float, scores: TensorType) -> float | int:
    """Return the smallest element that represents at least the threshold; above the range if none does."""
    if scores.quant is None:
        return float(np.float32(threshold))
    low, high = scores.dtype.range
    elements = np.arange(low, high + 1)
    real = (elements - scores.quant.zero_point).astype(np.float32) * np.float32(scores.quant.scale)
    return int(low + np.count_nonzero(real < np.float32(threshold)))
