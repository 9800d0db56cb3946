"""Reader of `.tflite` files. It copies an untrusted file into plain data.

The `tflite` package accesses flatbuffers without bounds checks. The reader copies everything that later
stages need, and checks every length against the size of the file. Any inconsistency raises
`ModelFormatError`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from io import BytesIO
from typing import Any

import flatbuffers.number_types
import numpy as np
import tflite

from microfold.errors import ModelFormatError
from microfold.frontend.formats import is_tflite, recognise
from microfold.frontend.raw import RawOperator, RawSubgraph, RawTensor, malformed_as_error, plain_text
from microfold.frontend.sparsity import densify
from microfold.ir import limits
from microfold.ir.types import MIN_SCALE, Array, DType, Quant, quantization_fault

MAX_FILE_RANK = 64  # axes that the reader accepts
READ_FACTOR = 8  # bytes that may be read for each byte of the file
SPARSE_FACTOR = 32  # elements that a sparse constant may have for each byte of the file

# Constants of the format that the `tflite` package lacks.
_BLOCKWISE = 2  # QuantizationDetails
_INT2 = 19  # TensorType
_PACKED_BITS = {tflite.TensorType.INT4: 4, _INT2: 2}  # several elements in a byte

_DTYPES = {
    tflite.TensorType.FLOAT32: DType.FLOAT32,
    tflite.TensorType.FLOAT16: DType.FLOAT16,
    tflite.TensorType.INT32: DType.INT32,
    tflite.TensorType.UINT8: DType.UINT8,
    tflite.TensorType.INT64: DType.INT64,
    tflite.TensorType.UINT32: DType.UINT32,
    tflite.TensorType.UINT64: DType.UINT64,
    tflite.TensorType.BOOL: DType.BOOL,
    tflite.TensorType.INT16: DType.INT16,
    tflite.TensorType.INT8: DType.INT8,
    tflite.TensorType.INT4: DType.INT4,
    _INT2: DType.INT4,  # constants only, like INT4; both become int8
}
_QUANTIZED = (DType.INT4, DType.INT8, DType.UINT8, DType.INT16)
_NEWER_TYPES = {18: "BFLOAT16", _INT2: "INT2"}
_TYPE_NAMES = {code: name for name, code in vars(tflite.TensorType).items() if isinstance(code, int)}
_OPERATOR_NAMES = {code: name for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int)}


_BUILTIN_CODE_SLOT = 10  # slot of OperatorCode.builtin_code in the vtable


def read_model(data: bytes, source: str) -> tuple[RawSubgraph, ...]:
    """Parse a whole file.

    Args:
        data: bytes of the file.
        source: name of the file in messages.

    Raises:
        ModelFormatError: the bytes are not a consistent model.
    """
    if not is_tflite(data):
        found = recognise(BytesIO(data), len(data))
        raise ModelFormatError(
            found.message(source)
            if found is not None
            else f"{source} is not a .tflite file: bytes 4 to 7 must be 'TFL3'; they are {data[4:8]!r}: "
            "convert the model with the TensorFlow Lite (LiteRT) converter (docs/model-files.md)"
        )
    with malformed_as_error(source):
        return _Reader(data, source).subgraphs()


class _Reader:
    """Copier of tables from the file.

    Vectors of a hostile file can overlap, so that a small file takes long to read. Therefore all reads count
    against a budget of a few times the file's size.
    """

    def __init__(self, data: bytes, source: str):
        self.source = source
        self.data = data
        self.size = len(data)
        self.budget = READ_FACTOR * self.size
        self.model = tflite.Model.GetRootAsModel(data, 0)
        self.arrays: dict[int, Array | None] = {}

    def length(self, count: int, what: str, element_size: int = 4) -> int:
        """Return the length of a vector, after checking that the file can contain as many elements."""
        if not 0 <= count * element_size <= self.size:
            raise ValueError(f"{what}: {count} entries do not fit in {self.size} bytes")
        self.budget -= count * element_size
        if self.budget < 0:
            raise ValueError(f"{what}: vectors overlap")
        return count

    def many(self, count: int, item: Callable[[int], Any], what: str) -> tuple[Any, ...]:
        return tuple(item(i) for i in range(self.length(count, what)))

    def text(self, raw: bytes | None) -> str:
        """Return a name for messages and the text form: printable, with a limited length."""
        raw = raw or b""
        self.length(len(raw), "name", element_size=1)
        return plain_text(raw)

    def subgraphs(self) -> tuple[RawSubgraph, ...]:
        self.codes = self.many(self.model.OperatorCodesLength(), self.operator_name, "operator codes")
        self.buffer_count = self.length(self.model.BuffersLength(), "buffers")
        self.memory_plan = self.offline_memory_plan()
        self.tensor_count = 0
        count = self.length(self.model.SubgraphsLength(), "subgraphs")
        if count == 0:
            raise ValueError("the model has no subgraph")
        return tuple(self.subgraph(i) for i in range(count))

    def offline_memory_plan(self) -> dict[int, int]:
        """Return the offsets from the start of the arena, in bytes, by tensor index across all subgraphs.

        Format: https://github.com/tensorflow/tflite-micro/blob/main/tensorflow/lite/micro/docs/memory_management.md
        """
        for index in range(self.length(self.model.MetadataLength(), "metadata")):
            entry: Any = self.model.Metadata(index)
            if entry.Name() != b"OfflineMemoryAllocation":
                continue
            if not 0 <= entry.Buffer() < self.buffer_count:
                raise ValueError(f"metadata: buffer {entry.Buffer()} does not exist")
            raw = self.bytes_of(entry.Buffer(), "metadata")
            words = np.frombuffer((raw if raw is not None else np.zeros(0, np.uint8)).tobytes(), "<i4")
            # Version, number of subgraphs, number of offsets. Offset -1: the plan does not place the tensor.
            if words.size < 3 or words.size < 3 + int(words[2]):
                raise ValueError(f"metadata: a memory plan of {words.size} words is cut off")
            offsets = words[3 : 3 + int(words[2])].tolist()
            return {tensor: offset for tensor, offset in enumerate(offsets) if offset >= 0}
        return {}

    def operator_name(self, index: int) -> str:
        code: Any = self.model.OperatorCodes(index)
        # Some quantisers fill only one of the two fields, and the larger value is always the right one.
        # The package's own BuiltinCode() does not return the second field if the first is missing.
        value = max(code.DeprecatedBuiltinCode(), _int32_field(code, _BUILTIN_CODE_SLOT))
        if value == tflite.BuiltinOperator.CUSTOM:
            custom = code.CustomCode()
            return f"CUSTOM {self.text(custom)}" if custom is not None else "CUSTOM"
        return _OPERATOR_NAMES.get(value, f"operator code {value}")

    def subgraph(self, index: int) -> RawSubgraph:
        table: Any = self.model.Subgraphs(index)
        what = f"subgraph {index}"
        tensors = self.many(table.TensorsLength(), lambda i: self.tensor(table.Tensors(i), i), what)
        self.tensor_count += len(tensors)
        inputs = self.many(table.InputsLength(), lambda i: int(table.Inputs(i)), what)
        outputs = self.many(table.OutputsLength(), lambda i: int(table.Outputs(i)), what)
        if table.OperatorsLength() > limits.MAX_NODES:
            raise ValueError(
                f"{what}: it must have at most {limits.MAX_NODES} operators; it has {table.OperatorsLength()}"
            )
        operators = self.many(
            table.OperatorsLength(), lambda i: self.operator(table.Operators(i), i, len(tensors)), what
        )
        for position in (*inputs, *outputs):
            if not 0 <= position < len(tensors):
                raise ValueError(f"{what}: tensor {position} of {len(tensors)} is an input or output")
        return RawSubgraph(self.text(table.Name()), tensors, operators, inputs, outputs)

    def operator(self, table: Any, index: int, tensors: int) -> RawOperator:
        what = f"operator {index}"
        inputs = self.many(table.InputsLength(), lambda i: int(table.Inputs(i)), what)
        outputs = self.many(table.OutputsLength(), lambda i: int(table.Outputs(i)), what)
        between = self.many(table.IntermediatesLength(), lambda i: int(table.Intermediates(i)), what)
        if any(not -1 <= i < tensors for i in (*inputs, *between)) or any(
            not 0 <= i < tensors for i in outputs
        ):
            raise ValueError(f"{what} refers to a tensor outside 0..{tensors - 1}")
        return RawOperator(
            index, self.codes[table.OpcodeIndex()], inputs, outputs, table, self.source, between
        )

    def tensor(self, table: Any, index: int) -> RawTensor:
        what = f"tensor {index}"
        rank = self.length(table.ShapeLength(), what)
        if rank > MAX_FILE_RANK:
            raise ValueError(f"{what}: rank {rank} is over {MAX_FILE_RANK}")
        shape = tuple(int(table.Shape(i)) for i in range(rank))
        # -1 stands for an extent that the file leaves open.
        shape_fault = limits.shape_fault(tuple(1 if extent == -1 else extent for extent in shape))
        signature = tuple(
            int(table.ShapeSignature(i)) for i in range(self.length(table.ShapeSignatureLength(), what))
        )
        code = table.Type()
        dtype = _DTYPES.get(code)
        bits = _PACKED_BITS.get(code, 0)
        data = (
            self.buffer(table.Buffer(), dtype, bits, shape, what, table.Sparsity())
            if not shape_fault
            else None
        )
        if dtype is DType.INT4 and data is not None:
            dtype = DType.INT8  # kernels decide how constants are packed
        quant, fault = self.quantization(table.Quantization(), dtype, shape, data, what)
        return RawTensor(
            index=index,
            name=self.text(table.Name()) or f"tensor_{index}",
            dtype=dtype,
            type_name=type_name(code),
            shape=shape,
            quant=quant,
            quant_fault=fault,
            blocks=_blocks(table.Quantization()),
            shape_fault=shape_fault,
            data=data,
            is_variable=bool(table.IsVariable()),
            arena_offset=self.memory_plan.get(self.tensor_count + index),
            signature=signature if len(signature) == rank else shape,
        )

    def buffer(
        self, index: int, dtype: DType | None, bits: int, shape: tuple[int, ...], what: str, sparsity: Any
    ) -> Array | None:
        """Return the elements of a constant as a dense array; None if the buffer is empty.

        Args:
            bits: bits per element, if a byte has several elements; else 0.
        """
        if not 0 <= index < self.buffer_count:
            raise ValueError(f"{what}: buffer {index} does not exist")
        if index not in self.arrays:
            self.arrays[index] = self.bytes_of(index, what)
        raw = self.arrays[index]
        if raw is None or dtype is None:
            return None
        if min(shape, default=0) < 0:
            raise ValueError(f"{what}: a constant must have a known shape; it has {shape}")
        if sparsity is not None:
            if bits or raw.size % dtype.itemsize:
                raise ValueError(f"{what}: a sparse constant of {dtype.value} has {raw.size} bytes")
            return densify(sparsity, _elements(raw, dtype), shape, SPARSE_FACTOR * self.size)
        elements = math.prod(shape)
        expected = -(-elements * bits // 8) if bits else elements * dtype.itemsize
        if raw.size != expected:
            raise ValueError(
                f"{what}: {dtype.value}{list(shape)} needs {expected} bytes; its buffer has {raw.size}"
            )
        if bits:
            return _unpack_bits(raw, bits, elements).reshape(shape)
        return _elements(raw, dtype).reshape(shape)

    def bytes_of(self, index: int, what: str) -> Array | None:
        """Return the bytes of a buffer, which large files store after the flatbuffer; None if it is empty."""
        table: Any = self.model.Buffers(index)
        if table.Offset() > 1:
            begin, length = int(table.Offset()), self.length(int(table.Size()), what, element_size=1)
            if begin + length > self.size:
                raise ValueError(f"{what}: its buffer lies outside the file")
            return np.frombuffer(self.data, np.uint8, length, begin)
        length = self.length(table.DataLength(), what, element_size=1)
        if length == 0:
            return None
        return _vector(table.DataAsNumpy(), length, what)

    def quantization(
        self, table: Any, dtype: DType | None, shape: tuple[int, ...], data: Array | None, what: str
    ) -> tuple[Quant | None, str]:
        """Return the quantisation, and the reason why it is invalid, or an empty string.

        If the scale is 0, both are returned, because the results of operators that move zeros may have it.

        Args:
            data: elements of a constant.
        """
        if table is None or dtype is None:
            return None, ""
        if table.DetailsType() == tflite.QuantizationDetails.CustomQuantization:
            return None, "its custom quantisation is not supported"
        if table.DetailsType() != tflite.QuantizationDetails.NONE:
            return None, "its block-wise quantisation is not supported"
        count = self.length(table.ScaleLength(), what)
        if count == 0:
            return None, ""
        scales = _numbers(table.ScaleAsNumpy(), count, what)
        points = self.length(table.ZeroPointLength(), what, element_size=8)
        zero_points = _numbers(table.ZeroPointAsNumpy(), points, what)
        fault = quantization_fault(dtype, scales, zero_points)
        unseen = bool(zero_points) and not any(scales)
        if unseen:
            # Quantisers write scale 0 for values that were always zero. MIN_SCALE yields the same products.
            scales = (MIN_SCALE,) * count
            if data is not None and (data == zero_points[0]).all():
                fault = quantization_fault(dtype, scales, zero_points)
        axis = None
        if count > 1 and not fault:
            axis = int(table.QuantizedDimension())
            if dtype not in _QUANTIZED:
                axis = _scale_axis(axis, shape, count)
            if axis is None or not 0 <= axis < len(shape) or shape[axis] != count:
                fault = f"{count} scales along axis {table.QuantizedDimension()} do not fit {list(shape)}"
        if dtype not in _QUANTIZED:
            # Biases and indices are plain integers, except int32 values with a valid quantisation.
            return (Quant(scales, zero_points, axis) if dtype is DType.INT32 and not fault else None), ""
        return Quant(scales, zero_points, axis) if unseen or not fault else None, fault


def type_name(code: int) -> str:
    """Return the name of an element type in the format."""
    return _TYPE_NAMES.get(code, _NEWER_TYPES.get(code, f"number {code}"))


def _elements(raw: Array, dtype: DType) -> Array:
    if dtype is DType.BOOL:
        return raw != 0
    return np.frombuffer(raw.tobytes(), dtype.numpy.newbyteorder("<")).astype(dtype.numpy)


def _vector(found: Any, length: int, what: str) -> Array:
    """Return a vector that the `tflite` package has read; for a missing one, that is not an array."""
    array = np.asarray(found)
    if array.shape != (length,):
        raise ValueError(f"{what}: a vector of {length} numbers is cut off")
    return array


def _numbers(found: Any, length: int, what: str) -> tuple[Any, ...]:
    return tuple(_vector(found, length, what).tolist()) if length else ()


def _int32_field(table: Any, slot: int) -> int:
    """Return a field whose accessor in the `tflite` package alters the value; 0 if it is missing."""
    return _int32_at(table._tab, slot)


def _int32_at(raw: Any, slot: int) -> int:
    """Return an int32 field of a table without a class; 0 if it is missing."""
    offset = raw.Offset(slot)
    return int(raw.Get(flatbuffers.number_types.Int32Flags, raw.Pos + offset)) if offset else 0


def _scale_axis(declared: int, shape: tuple[int, ...], count: int) -> int | None:
    """Return the axis of per-channel scales. In real files, biases declare the axis of their filter."""
    candidates = [axis for axis, extent in enumerate(shape) if extent == count]
    if declared in candidates:
        return declared
    return candidates[0] if len(candidates) == 1 else None


def _unpack_bits(raw: Array, bits: int, elements: int) -> Array:
    """Unpack two's-complement integers of a few bits, from the low bits of each byte up, to int8."""
    parts = np.stack([raw >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], axis=-1)
    numbers = parts.reshape(-1)[:elements].astype(np.int16)
    return np.where(numbers >> (bits - 1), numbers - (1 << bits), numbers).astype(np.int8)


def _blocks(quantization: Any) -> tuple[int, int] | None:
    if quantization is None or quantization.DetailsType() != _BLOCKWISE:
        return None
    details = quantization.Details()
    return (_int32_at(details, 4), _int32_at(details, 8)) if details is not None else None
