"""Writes small `.tflite` files: mostly one subgraph, a few tensors, a few operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
import tflite
from numpy.typing import NDArray

Array = NDArray[np.generic]

TYPES = {
    np.dtype(key): value
    for key, value in {
        "f4": tflite.TensorType.FLOAT32,
        "i4": tflite.TensorType.INT32,
        "u1": tflite.TensorType.UINT8,
        "u4": tflite.TensorType.UINT32,
        "i8": tflite.TensorType.INT64,
        "u8": tflite.TensorType.UINT64,
        "?": tflite.TensorType.BOOL,
        "i2": tflite.TensorType.INT16,
        "i1": tflite.TensorType.INT8,
        "f2": tflite.TensorType.FLOAT16,
        "c8": tflite.TensorType.COMPLEX64,
    }.items()
}

_PACKED_TYPES = {4: tflite.TensorType.INT4, 2: 19}  # that of INT2 is not in the `tflite` package

_CUSTOM = "CUSTOM "


def _packed(raw: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Bytes whose lowest bits count, several to a byte, the first one lowest."""
    count = 8 // bits
    parts = np.pad(raw, (0, -raw.size % count)).reshape(-1, count) & (1 << bits) - 1
    return np.bitwise_or.reduce(parts << np.arange(0, 8, bits, dtype=np.uint8), axis=1).astype(np.uint8)


def _offsets(builder: flatbuffers.Builder, items: Sequence[int]) -> int:
    builder.StartVector(4, len(items), 4)
    for item in reversed(items):
        builder.PrependUOffsetTRelative(item)
    return builder.EndVector()


def _table(builder: flatbuffers.Builder, name: str, fields: dict[str, Any]) -> int:
    """A table of the schema, its fields by their names."""
    getattr(tflite, f"{name}Start")(builder)
    for field, value in fields.items():
        getattr(tflite, f"{name}Add{field}")(builder, value)
    return getattr(tflite, f"{name}End")(builder)


class Writer:
    """A model that is being put together. Tensors are handed around as their indices."""

    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(4096)
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self._codes: list[str] = []
        self._tensors: list[int] = []
        self._operators: list[int] = []
        self._subgraphs: list[dict[str, int]] = []
        self._signatures: list[int] = []
        self._buffers = [_table(self.builder, "Buffer", {})]

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str,
        scale: float | Sequence[float] | None = None,
        zero_point: int = 0,
        *,
        data: Array | None = None,
        axis: int = 0,
        variable: bool = False,
        bits: int = 8,
        blocks: tuple[int, int] | None = None,
    ) -> int:
        """A tensor of a numpy type; a constant if it has data; quantised if it has scales.

        Args:
            bits: of an element of int8 data: 4 and 2 are stored as INT4 and INT2.
            blocks: the tensor of scales of a block-wise quantisation, and how many elements have one.
        """
        b = self.builder
        fields: dict[str, Any] = {
            "Shape": b.CreateNumpyVector(np.array(shape, np.int32)),
            "Type": TYPES[np.dtype(dtype)] if bits == 8 else _PACKED_TYPES[bits],
            "Buffer": 0,
            "Name": b.CreateString(f"t{len(self._tensors)}"),
        }
        if data is not None:
            raw = np.frombuffer(np.ascontiguousarray(data, dtype).tobytes(), np.uint8)
            if bits < 8:
                raw = _packed(raw, bits)
            b.StartVector(1, raw.size, 16)  # the schema asks for buffers aligned to 16 bytes
            b.head -= raw.size
            b.Bytes[b.head : b.head + raw.size] = raw.tobytes()
            self._buffers.append(_table(b, "Buffer", {"Data": b.EndVector()}))
            fields["Buffer"] = len(self._buffers) - 1
        if scale is not None:
            scales = np.atleast_1d(np.asarray(scale, np.float32))
            quantization = {
                "Scale": b.CreateNumpyVector(scales),
                "ZeroPoint": b.CreateNumpyVector(np.full(scales.size, zero_point, np.int64)),
                "QuantizedDimension": axis,
            }
            fields["Quantization"] = _table(b, "QuantizationParameters", quantization)
        if blocks is not None:
            fields["Quantization"] = self._blocks(*blocks)
        if variable:
            fields["IsVariable"] = True
        self._tensors.append(_table(b, "Tensor", fields))
        return len(self._tensors) - 1

    def _blocks(self, scales: int, length: int) -> int:
        """A quantisation by blocks, which the `tflite` package does not know."""
        b = self.builder
        b.StartObject(3)
        b.PrependInt32Slot(0, scales, 0)
        b.PrependInt32Slot(1, -1, 0)
        b.PrependInt32Slot(2, length, 0)
        details = b.EndObject()
        return _table(b, "QuantizationParameters", {"DetailsType": 2, "Details": details})

    def input(self, *args: Any, **kwargs: Any) -> int:
        """A `tensor` that is an input of the model."""
        self.inputs.append(self.tensor(*args, **kwargs))
        return self.inputs[-1]

    def operator(
        self,
        name: str,
        inputs: Sequence[int],
        output: int | Sequence[int],
        options: str = "",
        *,
        custom: bytes | None = None,
        inner: bool = False,
        intermediates: Sequence[int] = (),
        **fields: Any,
    ) -> None:
        """An operator, whose results are outputs of the model; `fields` are those of its options.

        Args:
            custom: options of a custom operator; None: it is a builtin one.
            inner: its results are no outputs.
            intermediates: tensors that tell how values within the operator are quantised.
        """
        b = self.builder
        code = f"{_CUSTOM}{name}" if custom is not None else name
        if code not in self._codes:
            self._codes.append(code)
        table: dict[str, Any] = {}
        if custom:
            table["CustomOptions"] = b.CreateByteVector(custom)
        if options:
            union = "BuiltinOptions" if hasattr(tflite.BuiltinOptions, options) else "BuiltinOptions2"
            table[f"{union}Type"] = getattr(getattr(tflite, union), options)
            table[union] = _table(b, options, fields)
        table["Inputs"] = b.CreateNumpyVector(np.array(inputs, np.int32))
        outputs = [output] if isinstance(output, int) else list(output)
        table["Outputs"] = b.CreateNumpyVector(np.array(outputs, np.int32))
        if intermediates:
            table["Intermediates"] = b.CreateNumpyVector(np.array(intermediates, np.int32))
        self._operators.append(_table(b, "Operator", {"OpcodeIndex": self._codes.index(code), **table}))
        self.outputs += [] if inner else outputs

    def end_subgraph(self, signature: str = "") -> None:
        """What follows belongs to another subgraph; this one may have a signature."""
        b = self.builder
        if signature:
            fields = {"SignatureKey": b.CreateString(signature), "SubgraphIndex": len(self._subgraphs)}
            self._signatures.append(_table(b, "SignatureDef", fields))
        subgraph = {
            "Tensors": _offsets(b, self._tensors),
            "Operators": _offsets(b, self._operators),
            "Inputs": b.CreateNumpyVector(np.array(self.inputs, np.int32)),
            "Outputs": b.CreateNumpyVector(np.array(self.outputs, np.int32)),
        }
        self._subgraphs.append(subgraph)
        self.inputs, self.outputs, self._tensors, self._operators = [], [], [], []

    def pack(self) -> bytes:
        """The file, of what is written; a last subgraph may be open."""
        b = self.builder
        codes = [self._code(code) for code in self._codes]
        if self._tensors:
            self.end_subgraph()
        model = {
            "OperatorCodes": _offsets(b, codes),
            "Subgraphs": _offsets(b, [_table(b, "SubGraph", fields) for fields in self._subgraphs]),
            "Buffers": _offsets(b, self._buffers),
        }
        if self._signatures:
            model["SignatureDefs"] = _offsets(b, self._signatures)
        b.Finish(_table(b, "Model", {"Version": 3, **model}), b"TFL3")
        return bytes(b.Output())

    def _code(self, name: str) -> int:
        """The table of an operator's code."""
        custom = name.startswith(_CUSTOM)
        code = tflite.BuiltinOperator.CUSTOM if custom else getattr(tflite.BuiltinOperator, name)
        fields = {"DeprecatedBuiltinCode": min(code, 127), "BuiltinCode": code, "Version": 1}
        if custom:
            fields["CustomCode"] = self.builder.CreateString(name.removeprefix(_CUSTOM))
        return _table(self.builder, "OperatorCode", fields)


def one_operator(
    name: str, shapes: Sequence[Sequence[int]], dtype: str = "f4", options: str = "", **fields: Any
) -> bytes:
    """A file of one operator, whose inputs are the model's and broadcast to its result; `Writer` does more.

    Args:
        shapes: of the inputs.
        dtype: of inputs and result, as numpy spells it.
        options: the class of the operator's options, if it has any; `fields` are theirs.
    """
    writer = Writer()
    inputs = [writer.input(shape, dtype) for shape in shapes]
    result = writer.tensor(np.broadcast_shapes(*map(tuple, shapes)), dtype)
    writer.operator(name, inputs, result, options, **fields)
    return writer.pack()
