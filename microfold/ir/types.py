"""Types of values: element type, quantisation, shape."""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from microfold.ir.limits import shape_fault

Array = NDArray[Any]
Shape = tuple[int, ...]

FLOAT32_MAX = float(np.finfo(np.float32).max)
# With scales outside of this range, products and quotients of scales leave float32.
MIN_SCALE, MAX_SCALE = 2.0**-149, float(np.finfo(np.float32).max)


class DType(enum.Enum):
    """Element types. numpy arrays hold sub-byte types one element per byte; only flash holds them packed."""

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

    # Members are singletons, so hash by identity. `Enum.__hash__` hashes the name in Python, which is slow.
    __hash__ = object.__hash__

    @property
    def numpy(self) -> np.dtype[Any]:
        """numpy type that holds one element (int8 for int4)."""
        return _NUMPY_TYPES[self]

    @property
    def itemsize(self) -> int:
        """Size of one element in an array, in bytes."""
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


# Cached because type rules and references use these very often, and numpy needs microseconds to create one.
_NUMPY_TYPES = {dtype: np.dtype("int8" if dtype is DType.INT4 else dtype.value) for dtype in DType}
_RANGES = {
    dtype: (int(np.iinfo(dtype.numpy).min), int(np.iinfo(dtype.numpy).max))
    for dtype in DType
    if dtype.is_integer
} | {DType.INT4: (-8, 7)}


class Quant(Struct, frozen=True):
    """Affine quantisation: ``real = scale * (q - zero_point)``.

    Attributes:
        scales: one scale, or one per index along `axis`; each is a float32 value.
        zero_points: one zero point for each scale.
        axis: axis along which the scales vary; None for one scale per tensor.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None

    @staticmethod
    def per_tensor(scale: float, zero_point: int = 0) -> Quant:
        return Quant((float(np.float32(scale)),), (int(zero_point),))

    @property
    def scale(self) -> float:
        """Scale of a per-tensor quantisation."""
        if self.axis is not None:
            raise ValueError("a per-channel quantisation has no single scale")
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        """Zero point of a per-tensor quantisation."""
        if self.axis is not None:
            raise ValueError("a per-channel quantisation has no single zero point")
        return self.zero_points[0]


def quantization_fault(
    dtype: DType, scales: tuple[float, ...], zero_points: tuple[int, ...], smallest: float = MIN_SCALE
) -> str:
    """Return the fault of a quantisation of elements of this type, or "" if it is valid.

    Args:
        smallest: smallest scale that is allowed.
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


class ElementType(Struct, frozen=True):
    """Element type and, for quantised values, the quantisation."""

    dtype: DType
    quant: Quant | None = None


class TensorType(Struct, frozen=True):
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
        """Size of the tensor in RAM in bytes, with one array element for each element."""
        return self.size * self.dtype.itemsize

    @property
    def class_count(self) -> int:
        """Length of the last axis if it is the only axis longer than 1 (a vector of scores); else 0."""
        return self.shape[-1] if self.shape and self.shape[-1] == self.size > 1 else 0

    def with_shape(self, shape: Shape) -> TensorType:
        return TensorType(self.dtype, tuple(shape), self.quant)

    def with_element(self, element: ElementType) -> TensorType:
        return TensorType(element.dtype, self.shape, element.quant)

    def __str__(self) -> str:
        return f"{self.dtype.value}[{','.join(map(str, self.shape))}]"


def type_fault(type: TensorType) -> str:
    """Return the fault of a value's type, or "" if it is valid."""
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
    # The scale of an int32 bias is a product of two scales, so it can be smaller.
    smallest = math.ulp(0.0) if type.dtype is DType.INT32 else MIN_SCALE
    return quantization_fault(type.dtype, quant.scales, quant.zero_points, smallest)


class Tensor(Struct, frozen=True, eq=False):
    """Type together with its data; the operand of `Op.reference`."""

    type: TensorType
    data: Array
