"""C literals of numbers and arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from microfold.codegen.layout import LINE_WIDTH
from microfold.ir.types import Array, DType

C_TYPES = {
    DType.BOOL: "uint8_t",
    DType.INT4: "int8_t",
    DType.INT8: "int8_t",
    DType.UINT8: "uint8_t",
    DType.INT16: "int16_t",
    DType.INT32: "int32_t",
    DType.UINT32: "uint32_t",
    DType.INT64: "int64_t",
    DType.UINT64: "uint64_t",
    DType.FLOAT16: "uint16_t",
    DType.FLOAT32: "float",
}
_NUMPY_C_TYPES = {
    np.dtype("int8"): "int8_t",
    np.dtype("uint8"): "uint8_t",
    np.dtype("int16"): "int16_t",
    np.dtype("uint16"): "uint16_t",
    np.dtype("int32"): "int32_t",
    np.dtype("uint32"): "uint32_t",
    np.dtype("int64"): "int64_t",
    np.dtype("uint64"): "uint64_t",
    np.dtype("float16"): "uint16_t",
    np.dtype("float32"): "float",
    np.dtype("bool"): "uint8_t",
}


def c_type(array: Array) -> str:
    """Return the C type of an array's elements."""
    return _NUMPY_C_TYPES[array.dtype]


def float_literal(value: float) -> str:
    """Return a float literal that reads back as the same float32."""
    if math.isinf(value):
        return "-INFINITY" if value < 0 else "INFINITY"
    if math.isnan(value):
        return "NAN"
    text = str(np.float32(value))
    if not any(mark in text for mark in ".e"):
        text += ".0"
    return f"{text}f"


def integer_literal(value: int) -> str:
    """Return an integer constant; the smallest int32 and int64 are expressions, since C has no literals."""
    if value == -(1 << 31):
        return "(-2147483647 - 1)"
    if value == -(1 << 63):
        return "(-9223372036854775807LL - 1)"
    if -(1 << 31) < value < 1 << 31:
        return str(value)
    if value >= 1 << 63:
        return f"{value}ULL"
    return f"{value}LL" if value < 0 else f"{value}{'U' if value < 1 << 32 else 'LL'}"


def literal(value: float | np.floating[Any]) -> str:
    """Return a number as a C literal."""
    if isinstance(value, (float, np.floating)):
        return float_literal(float(value))
    return integer_literal(int(value))


def string_literal(text: str) -> str:
    """Return a string literal of the text in UTF-8, with octal escapes for special characters."""
    # Question marks could form trigraphs. Octal escapes end after three digits; hexadecimal ones have no end.
    return '"' + "".join(c if _plain(c) else _octal(c) for c in text) + '"'


def _plain(character: str) -> bool:
    return " " <= character <= "~" and character not in '"\\?'


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "replace"))


def literal_headers(values: Iterable[float | np.floating[Any]]) -> frozenset[str]:
    """Return the standard headers for the literals of numbers: ``math.h`` if one of them is not finite."""
    floats = (float(value) for value in values if isinstance(value, (float, np.floating)))
    return frozenset() if all(map(math.isfinite, floats)) else frozenset({"math.h"})


def array_lines(array: Array) -> Iterator[str]:
    """Yield the elements of an array, comma-separated, in lines of limited width; float16 as bits."""
    if array.dtype == np.float16:
        array = array.view(np.uint16)
    floating = array.dtype.kind == "f"
    line = ""
    for element in array.reshape(-1).tolist():
        item = (float_literal(element) if floating else integer_literal(int(element))) + ","
        if line and len(line) + 1 + len(item) > LINE_WIDTH - 4:
            yield line
            line = ""
        line = f"{line} {item}" if line else item
    if line:
        yield line
