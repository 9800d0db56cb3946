"""Non-maximum suppression: the best boxes of a detector that do not overlap a better one."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from microfold.ir.op import Op, register, require
from microfold.ir.types import Array, DType, Tensor, TensorType

CORNERS = 4
_FLOAT, _INTEGER = TensorType(DType.FLOAT32, ()), TensorType(DType.INT32, ())

# Score and index of a box, and the number of chosen boxes with which it has already been compared.
_Candidate = tuple[np.float32, int, int]


@register
class NonMaxSuppression(Op, frozen=True):
    """Best boxes, best first; a box is dropped if its overlap with a box chosen before reaches a threshold.

    An overlap is the intersection divided by the union. With `soft`, an overlap below the threshold
    multiplies the score by ``exp(-overlap^2 / (2 sigma))``, and the box is queued again. Boxes are kept in a
    binary heap, which determines the order of equal scores exactly as in the reference. A box without an area
    overlaps no box, not even itself, and is therefore chosen repeatedly. Unused rows of the results are 0.

    ==================  ====================  =======================================================
    operands            boxes                 float32 [n, 4]: y and x of two opposite corners
                        scores                float32 [n]
                        limit                 int32 []: maximum number of boxes, at most `size`
                        overlap_threshold     float32 []
                        score_threshold       float32 []: scores must be above it
                        sigma                 float32 [], if `soft`; scores do not change if it is <= 0
    results             indices               int32 [size]
                        scores                float32 [size], if `soft`
                        count                 int32 []
    ==================  ====================  =======================================================

    Source:
    https://github.com/tensorflow/tensorflow/blob/master/tensorflow/lite/kernels/internal/reference/non_max_suppression.h

    Attributes:
        size: rows of the results.
        soft: whether overlaps reduce scores.
    """

    name: ClassVar[str] = "non_max_suppression"

    size: int
    soft: bool

    def infer(
        self,
        boxes: TensorType,
        scores: TensorType,
        limit: TensorType,
        overlap_threshold: TensorType,
        score_threshold: TensorType,
        sigma: TensorType | None = None,
    ) -> tuple[TensorType, ...]:
        require(self.size >= 1, f"{self.name}: size must be positive; it is {self.size}")
        require(
            boxes.rank == 2 and boxes == TensorType(DType.FLOAT32, (boxes.shape[0], CORNERS)),
            f"{self.name}: boxes must be float32[n,{CORNERS}]; they are {boxes}",
        )
        require(
            scores == TensorType(DType.FLOAT32, boxes.shape[:1]),
            f"{self.name}: scores must be float32[{boxes.shape[0]}]; they are {scores}",
        )
        require(
            limit == _INTEGER and overlap_threshold == score_threshold == _FLOAT,
            f"{self.name}: the limit must be one int32, and thresholds one float32 each; they are {limit}, "
            f"{overlap_threshold} and {score_threshold}",
        )
        require(
            sigma == (_FLOAT if self.soft else None),
            f"{self.name}: sigma must be one float32 if soft, else missing; it is {sigma}",
        )
        indices = TensorType(DType.INT32, (self.size,))
        chosen = (TensorType(DType.FLOAT32, (self.size,)),) if self.soft else ()
        return (indices, *chosen, _INTEGER)

    def operations(self, boxes: TensorType, *others: TensorType) -> int:
        """Return the operations of the worst case, in which every box is compared with all chosen boxes."""
        del others
        return boxes.shape[0] * (self.size + 64)

    def reference(
        self,
        boxes: Tensor,
        scores: Tensor,
        limit: Tensor,
        overlap_threshold: Tensor,
        score_threshold: Tensor,
        sigma: Tensor | None = None,
    ) -> tuple[Array, ...]:
        width = np.float32(sigma.data) if sigma is not None else np.float32(0)
        with np.errstate(all="ignore"):
            exponent = np.float32(-0.5) / width if width > 0 else None
            limits = np.float32(overlap_threshold.data), np.float32(score_threshold.data)
            most = min(int(limit.data), self.size)
            chosen = _choose(boxes.data, scores.data, most, *limits, exponent)
        indices, best = np.zeros(self.size, np.int32), np.zeros(self.size, np.float32)
        for row, (score, index) in enumerate(chosen):
            indices[row], best[row] = index, score
        return (indices, *((best,) if self.soft else ()), np.array(len(chosen), np.int32))


def _choose(
    boxes: Array,
    scores: Array,
    most: int,
    overlap_threshold: np.float32,
    score_threshold: np.float32,
    exponent: np.float32 | None,
) -> list[tuple[np.float32, int]]:
    """Return scores and indices of the chosen boxes.

    Args:
        exponent: factor e of the score's decay ``exp(e * overlap^2)``; None if scores do not change.
    """
    heap: list[_Candidate] = []
    for index, score in enumerate(scores):
        if score > score_threshold:
            _push(heap, (score, index, 0))
    most = min(most, len(heap))
    chosen: list[tuple[np.float32, int]] = []
    while len(chosen) < most and heap:
        score, index, known = _pop(heap)
        before, dropped = score, False
        for _, other in reversed(chosen[known:]):
            overlap = _overlap(boxes[index], boxes[other])
            dropped = bool(overlap >= overlap_threshold)
            if exponent is not None and not dropped:
                score = np.float32(score * np.exp(exponent * overlap * overlap))
            if dropped or score <= score_threshold:
                break
        if dropped:
            continue
        known = len(chosen)
        if score == before:
            chosen.append((score, index))
        if score > score_threshold:
            # A chosen box is also queued again, and is dropped when it is compared with itself.
            _push(heap, (score, index, known))
    return chosen


def _push(heap: list[_Candidate], item: _Candidate) -> None:
    """Add a candidate to a heap with the highest score first."""
    heap.append(item)
    _rise(heap, len(heap) - 1, item)


def _rise(heap: list[_Candidate], place: int, item: _Candidate) -> None:
    while place > 0 and heap[(place - 1) // 2][0] < item[0]:
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = item


def _pop(heap: list[_Candidate]) -> _Candidate:
    """Remove and return the first item: better children move up, then the last item is sifted up."""
    first, last = heap[0], heap.pop()
    place = 0
    while 2 * place + 1 < len(heap):
        child = 2 * place + 1
        if child + 1 < len(heap) and not heap[child + 1][0] < heap[child][0]:
            child += 1
        heap[place] = heap[child]
        place = child
    if heap:
        _rise(heap, place, last)
    return first


def _overlap(a: Array, b: Array) -> np.float32:
    """Return intersection over union, in float32; 0 if an area is 0."""
    lows, highs = np.minimum([a[:2], b[:2]], [a[2:], b[2:]]), np.maximum([a[:2], b[:2]], [a[2:], b[2:]])
    areas = np.prod(highs - lows, axis=1)
    if (areas <= 0).any():
        return np.float32(0)
    common = np.prod(np.maximum(highs.min(axis=0) - lows.max(axis=0), np.float32(0)))
    return np.float32(common / (areas[0] + areas[1] - common))
