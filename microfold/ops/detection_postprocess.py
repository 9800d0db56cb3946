"""Post-processing of detections: decoded boxes after non-maximum suppression, sorted by score."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType
from microfold.ops.elementwise.conversions.dequantize import Dequantize

TYPES = (DType.FLOAT32, DType.INT8, DType.UINT8)
CORNERS = 4


@register
class DetectionPostprocess(Op, frozen=True):
    """Best boxes around `anchors`, selected by greedy non-maximum suppression.

    A box is dropped if its overlap with a better box of its class, the intersection divided by the union, is
    above a threshold. Of boxes with equal scores, the one with the lower index comes first; of a box's
    classes with equal scores also. Unused rows of the results are 0; the references leave most of them
    unchanged.

    ==================  ===================  ==========================================================
    operands            encodings            [1, boxes, 4 or more]: y, x, height, width
                        scores               [1, boxes, classes or, with a background in front, 1 more]
                        anchors              float32 [boxes, 4]: y, x of the centre, height, width
    results, float32    boxes                [1, detections, 4]: lowest y and x, highest y and x
                        classes, scores      [1, detections]
                        count                [1]: number of boxes found
    ==================  ===================  ==========================================================

    Sources:
    https://github.com/tensorflow/tflite-micro/blob/main/tensorflow/lite/micro/kernels/detection_postprocess.cc
    and tensorflow/lite/kernels/detection_postprocess.cc of TensorFlow.

    Attributes:
        classes: number of classes, without the background.
        max_detections: maximum number of boxes.
        max_classes: rows per box. Unless `regular`, each box has this many rows, one for each of its best
            classes.
        per_class: maximum number of boxes of one class, if `regular`.
        score_threshold: minimum score of a box.
        overlap_threshold: maximum overlap, in (0, 1].
        scales: divisors of y, x, height and width.
        regular: whether suppression is done within each class; otherwise it is done once for all classes, by
            the best class of each box.
    """

    name: ClassVar[str] = "detection_postprocess"

    classes: int
    max_detections: int
    max_classes: int
    per_class: int
    score_threshold: float
    overlap_threshold: float
    scales: tuple[float, float, float, float]
    regular: bool

    @property
    def rows(self) -> int:
        """Number of rows of the results."""
        return self.max_detections * self.max_classes

    def infer(self, encodings: TensorType, scores: TensorType, anchors: TensorType) -> tuple[TensorType, ...]:
        for what, number in (
            ("classes", self.classes),
            ("max_detections", self.max_detections),
            ("max_classes", self.max_classes),
            ("per_class", self.per_class),
        ):
            require(number >= 1, f"detection_postprocess: {what} must be positive; it is {number}")
        require(
            0 < self.overlap_threshold <= 1,
            f"detection_postprocess: the overlap's threshold must be in (0, 1]; it is "
            f"{self.overlap_threshold:g}",
        )
        require(
            all(bool(np.float32(scale)) for scale in self.scales),
            f"detection_postprocess: scales must not be 0; they are {self.scales}",
        )
        for what, x in (("encodings", encodings), ("scores", scores)):
            plain = x.quant is None if x.dtype.is_float else x.quant is not None and x.quant.axis is None
            require(
                x.dtype in TYPES and plain,
                f"detection_postprocess: {what} must be float32, or int8 or uint8 with one scale; they are "
                f"{x}, quantised {x.quant}",
            )
        require(
            encodings.rank == 3 and encodings.shape[0] == 1 and encodings.shape[2] >= CORNERS,
            f"detection_postprocess: encodings must be [1,boxes,4 or more]; they are {encodings}",
        )
        boxes = encodings.shape[1]
        require(
            scores.rank == 3 and scores.shape[:2] == (1, boxes) and scores.shape[2] - self.classes in (0, 1),
            f"detection_postprocess: scores must be [1,{boxes},{self.classes} or {self.classes + 1}]; they "
            f"are {scores}",
        )
        require(
            anchors == TensorType(DType.FLOAT32, (boxes, CORNERS)),
            f"detection_postprocess: anchors must be float32[{boxes},4]; they are {anchors}",
        )
        shapes = ((1, self.rows, CORNERS), (1, self.rows), (1, self.rows), (1,))
        return tuple(TensorType(DType.FLOAT32, shape) for shape in shapes)

    def operations(self, encodings: TensorType, scores: TensorType, anchors: TensorType) -> int:
        """Return the operations of the worst case, in which every box is compared with all boxes kept."""
        del anchors
        kept = (
            min(self.per_class, self.max_detections) * self.classes if self.regular else self.max_detections
        )
        return scores.size * 4 + encodings.shape[1] * (kept + 64)

    def reference(self, encodings: Tensor, scores: Tensor, anchors: Tensor) -> tuple[Array, ...]:
        corners = self._corners(_real(encodings)[0, :, :CORNERS], anchors.data)
        values = _real(scores)[0, :, scores.type.shape[2] - self.classes :]
        found = self._regular(corners, values) if self.regular else self._fast(corners, values)
        boxes = np.zeros((1, self.rows, CORNERS), np.float32)
        classes, best = np.zeros((2, 1, self.rows), np.float32)
        for row, box, label in found:
            boxes[0, row], classes[0, row], best[0, row] = corners[box], label, values[box, label]
        count = len({row // (1 if self.regular else self.max_classes) for row, _, _ in found})
        return boxes, classes, best, np.array([count], np.float32)

    def _corners(self, encodings: Array, anchors: Array) -> Array:
        """Return the corners of all boxes, [boxes, 4]: centre and half size in double, rounded to float32."""
        scales = np.array(self.scales, np.float32).astype(np.float64)
        codes, sizes = encodings.astype(np.float64) / scales, anchors[:, 2:].astype(np.float64)
        with np.errstate(all="ignore"):
            centres = (codes[:, :2] * sizes + anchors[:, :2]).astype(np.float32)
            halves = (0.5 * np.exp(codes[:, 2:]) * sizes).astype(np.float32)
            return np.concatenate((centres - halves, centres + halves), axis=1)

    def _fast(self, corners: Array, values: Array) -> list[tuple[int, int, int]]:
        """Return row, box and class of each detection, with one suppression for all classes."""
        labels = np.argsort(-values, axis=1, kind="stable")[:, : self.max_classes]
        kept = self._kept(corners, values.max(axis=1), self.max_detections)
        return [
            (place * self.max_classes + k, box, int(label))
            for place, box in enumerate(kept)
            for k, label in enumerate(labels[box])
        ]

    def _regular(self, corners: Array, values: Array) -> list[tuple[int, int, int]]:
        """Return row, box and class of each detection: the best boxes after suppression within each class."""
        found: list[tuple[int, int]] = []
        for label in range(self.classes):
            found += [(box, label) for box in self._kept(corners, values[:, label], self.per_class)]
            found = sorted(found, key=lambda pair: -values[pair])[: self.max_detections]
        return [(row, box, label) for row, (box, label) in enumerate(found)]

    def _kept(self, corners: Array, scores: Array, limit: int) -> list[int]:
        """Return the boxes that remain after suppression, the best first."""
        (left,) = np.nonzero(scores >= np.float32(self.score_threshold))
        left = left[np.argsort(-scores[left], kind="stable")]
        kept: list[int] = []
        while left.size and len(kept) < limit:
            kept.append(int(left[0]))
            left = left[1:]
            left = left[~(_overlaps(corners[kept[-1]], corners[left]) > np.float32(self.overlap_threshold))]
        return kept


def _real(x: Tensor) -> Array:
    """Return the real values of the elements, float32."""
    return x.data if x.type.quant is None else Dequantize().reference(x)


def _overlaps(box: Array, others: Array) -> Array:
    """Return the intersection over union of a box and each other box, in float32; 0 if an area is 0."""
    with np.errstate(all="ignore"):
        lengths = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
        common = np.maximum(lengths, np.float32(0)).prod(axis=1, dtype=np.float32)
        area, areas = (box[2:] - box[:2]).prod(), (others[:, 2:] - others[:, :2]).prod(axis=1)
        return np.where((area <= 0) | (areas <= 0), np.float32(0), common / (area + areas - common))
