"""Types of values: element type, quantisation, shape."""

from __future__ import annotations

import enum
import math
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from microfold.ir.limits import shape_fault
from microfold.support.frozen import frozen

Array = NDArray[Any]
Shape = tuple[int, ...]

FLOAT32_MAX = float(np.finfo(np.float32).max)
# Beyond these, products and quotients of scales leave float32.
MIN_SCALE, MAX_SCALE = 2.0**-149, float(np.finfo(np.float32).max)


class DType(enum.Enum):
    """Element types. Sub-byte types are held one per byte in numpy and packed only in flash."""

    BOOL = "bool"
    INT4 = "int4"
    INT8 = "int8"
    UINT8 = "uint8"
    INT16 = "int16"
    INT32 = "int32"
    UINT32 = "uint32"
    INT64 = "int64"
    UINT64 = "uint64"
    FLOAT16 = "float16"
    FLOAT32 = "float32"

    # Each is there once; `Enum` hashes names anew, by a function in Python.
    __hash__ = object.__hash__

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy type that holds one element (int8 for int4)."""
        return _NUMPY_TYPES[self]

    @property
    def itemsize(self) -> int:
        """Bytes of one element in an array."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self in (DType.FLOAT16, DType.FLOAT32)

    @property
    def is_integer(self) -> bool:
        return not self.is_float and self is not DType.BOOL

    @property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        return _RANGES[self]


# Type rules and references ask for these all the time; numpy takes microseconds to find each of them.
_NUMPY_TYPES = {dtype: np.dtype("int8" if dtype is DType.INT4 else dtype.value) for dtype in DType}
_RANGES = {
    dtype: (int(np.iinfo(dtype.numpy).min), int(np.iinfo(dtype.numpy).max))
    for dtype in DType
    if dtype.is_integer
} | {DType.INT4: (-8, 7)}


@frozen
class Quant:
    """Affine quantisation: ``real = scale * (q - zero_point)``.

    Attributes:
        scales: one scale, or one per index along `axis`; each is a float32 value.
        zero_points: as many as scales.
        axis: the dimension that the scales run along; None for one scale per tensor.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None

    @staticmethod
    def per_tensor(scale: float, zero_point: int = 0) -> Quant:
        return Quant((float(np.float32(scale)),), (int(zero_point),))

    @property
    def scale(self) -> float:
        """The one scale of a per-tensor quantisation."""
        if self.axis is not None:
            raise ValueError("a per-channel quantisation has no single scale")
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        """The one zero point of a per-tensor quantisation."""
        if self.axis is not None:
            raise ValueError("a per-channel quantisation has no single zero point")
        return self.zero_points[0]


def quantization_fault(
    dtype: DType, scales: tuple[float, ...], zero_points: tuple[int, ...], smallest: float = MIN_SCALE
) -> str:
    """What is wrong with a quantisation of elements of this type; empty if nothing is.

    Args:
        smallest: scale that there may be.
    """
    if len(zero_points) != len(scales):
        return f"{len(scales)} scales with {len(zero_points)} zero points"
    for scale in scales:
        if not smallest <= scale <= MAX_SCALE:
            return f"a scale must be in [{smallest:g}, {MAX_SCALE:g}]; it is {scale:g}"
    low, high = dtype.range if dtype.is_integer else (0, 0)
    for point in zero_points:
        if not low <= point <= high:
            return f"a zero point of {dtype.value} must be in [{low}, {high}]; it is {point}"
    return ""


@frozen
class ElementType:
    """What one element means: its representation and, for quantised values, its scale."""

    dtype: DType
    quant: Quant | None = None


@frozen
class TensorType:
    """Static type of a value. Shapes are fully known; a scalar has shape ``()``."""

    dtype: DType
    shape: Shape
    quant: Quant | None = field(default=None)

    @property
    def element(self) -> ElementType:
        return ElementType(self.dtype, self.quant)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor in RAM, one array element each."""
        return self.size * self.dtype.itemsize

    @property
    def class_count(self) -> int:
        """Length of a vector of scores: the last axis, if it is the only one longer than 1; else 0."""
        return self.shape[-1] if self.shape and self.shape[-1] == self.size > 1 else 0

    def with_shape(self, shape: Shape) -> TensorType:
        return TensorType(self.dtype, tuple(shape), self.quant)

    def with_element(self, element: ElementType) -> TensorType:
        return TensorType(element.dtype, self.shape, element.quant)

    def __str__(self) -> str:
        return f"{self.dtype.value}[{','.join(map(str, self.shape))}]"


def type_fault(type: TensorType) -> str:
    """What is wrong with a type of a value; empty if nothing is."""
    fault = shape_fault(type.shape)
    if fault:
        return fault
    quant = type.quant
    if quant is None:
        return ""
    channels = 1
    if quant.axis is not None:
        if not 0 <= quant.axis < type.rank:
            return f"its scales run along axis {quant.axis}; it has {type.rank} axes"
        channels = type.shape[quant.axis]
    if len(quant.scales) != channels:
        return f"it must have {channels} scales; it has {len(quant.scales)}"
    # The scales of int32 biases are products of others.
    smallest = math.ulp(0.0) if type.dtype is DType.INT32 else MIN_SCALE
    return quantization_fault(type.dtype, quant.scales, quant.zero_points, smallest)


@frozen(eq=False)
class Tensor:
    """A type together with its data: what `reference()` computes on."""

    type: TensorType
    data: Array
