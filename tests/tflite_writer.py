"""Writes small `.tflite` files of one subgraph: a few tensors, a few operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flatbuffers
import numpy as np
import tflite
from numpy.typing import NDArray

Array = NDArray[np.generic]

_TYPES = {
    np.dtype(key): value
    for key, value in {
        "f4": tflite.TensorType.FLOAT32,
        "i4": tflite.TensorType.INT32,
        "u1": tflite.TensorType.UINT8,
        "i8": tflite.TensorType.INT64,
        "?": tflite.TensorType.BOOL,
        "i2": tflite.TensorType.INT16,
        "i1": tflite.TensorType.INT8,
    }.items()
}


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
        self._codes: list[int] = []
        self._tensors: list[int] = []
        self._operators: list[int] = []
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
    ) -> int:
        """A tensor of a numpy type; a constant if it has data; quantised if it has scales."""
        b = self.builder
        fields: dict[str, Any] = {
            "Shape": b.CreateNumpyVector(np.array(shape, np.int32)),
            "Type": _TYPES[np.dtype(dtype)],
            "Buffer": 0,
            "Name": b.CreateString(f"t{len(self._tensors)}"),
        }
        if data is not None:
            raw = np.frombuffer(np.ascontiguousarray(data, dtype).tobytes(), np.uint8)
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
        if variable:
            fields["IsVariable"] = True
        self._tensors.append(_table(b, "Tensor", fields))
        return len(self._tensors) - 1

    def input(self, *args: Any, **kwargs: Any) -> int:
        """A `tensor` that is an input of the model."""
        self.inputs.append(self.tensor(*args, **kwargs))
        return self.inputs[-1]

    def operator(
        self, name: str, inputs: Sequence[int], output: int | Sequence[int], options: str = "", **fields: Any
    ) -> None:
        """An operator, whose results are outputs of the model; `fields` are those of its options."""
        outputs = [output] if isinstance(output, int) else list(output)
        b = self.builder
        code = getattr(tflite.BuiltinOperator, name)
        if code not in self._codes:
            self._codes.append(code)
        table: dict[str, Any] = {}
        if options:
            table["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, options)
            table["BuiltinOptions"] = _table(b, options, fields)
        table["Inputs"] = b.CreateNumpyVector(np.array(inputs, np.int32))
        table["Outputs"] = b.CreateNumpyVector(np.array(outputs, np.int32))
        self._operators.append(_table(b, "Operator", {"OpcodeIndex": self._codes.index(code), **table}))
        self.outputs += outputs

    def pack(self) -> bytes:
        """The file."""
        b = self.builder
        codes = [
            _table(
                b,
                "OperatorCode",
                {"DeprecatedBuiltinCode": min(code, 127), "BuiltinCode": code, "Version": 1},
            )
            for code in self._codes
        ]
        subgraph = {
            "Tensors": _offsets(b, self._tensors),
            "Operators": _offsets(b, self._operators),
            "Inputs": b.CreateNumpyVector(np.array(self.inputs, np.int32)),
            "Outputs": b.CreateNumpyVector(np.array(self.outputs, np.int32)),
        }
        model = {
            "OperatorCodes": _offsets(b, codes),
            "Subgraphs": _offsets(b, [_table(b, "SubGraph", subgraph)]),
            "Buffers": _offsets(b, self._buffers),
        }
        b.Finish(_table(b, "Model", {"Version": 3, **model}), b"TFL3")
        return bytes(b.Output())


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
