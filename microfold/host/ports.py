"""Inputs and outputs of a compiled model, as seen from Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike

from microfold.arithmetic.numerics import round_half_away_array
from microfold.errors import InputError
from microfold.ir.types import Array, TensorType
from microfold.support.notebook import html_table


class Port(Struct, frozen=True):
    """Input or output of a model.

    Attributes:
        name: name in the model.
        type: element type, shape and quantisation.
    """

    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape in numpy."""
        return self.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type in numpy."""
        return self.type.dtype.numpy

    @property
    def scale(self) -> float | None:
        """Scale in ``real = scale * (q - zero_point)``; None if the port is not quantised."""
        return self.type.quant.scale if self.type.quant is not None else None

    @property
    def zero_point(self) -> int | None:
        """Stored value of the real number 0; None if the port is not quantised."""
        return self.type.quant.zero_point if self.type.quant is not None else None

    @property
    def quantization(self) -> str:
        """Formula of the real numbers; empty if the port is not quantised."""
        return "" if self.scale is None else f"real = {self.scale:.6g} * (q - {self.zero_point})"

    def quantize(self, real: ArrayLike) -> Array:
        """Quantise real numbers: round to the nearest step, ties away from zero, and saturate.

        NaN counts as 0, as in the helpers of the generated code.

        Args:
            real: array of the port's shape, or an array that broadcasts to it.

        Returns:
            An array of the port's shape and type. For ports without quantisation, the numbers are only
            converted.

        Raises:
            InputError: the shape does not match, or the port has integers that are not quantised and a number
                is not one of them.
        """
        try:
            values = np.broadcast_to(np.asarray(real), self.shape)
        except ValueError:
            raise InputError(
                f"{self.name!r} must have the shape {list(self.shape)}; got {list(np.shape(real))}"
            ) from None
        quant = self.type.quant
        if quant is None:
            return self._converted(values)
        finite = np.nan_to_num(values.astype(np.float32), nan=0.0, posinf=np.inf, neginf=-np.inf)
        steps = round_half_away_array(finite / np.float32(quant.scale)).astype(np.float64) + quant.zero_point
        return np.clip(steps, *self.type.dtype.range).astype(self.dtype)

    def _converted(self, values: Array) -> Array:
        with np.errstate(invalid="ignore", over="ignore"):  # checked below
            found = values.astype(self.dtype)
        if self.dtype.kind in "iub" and not np.array_equal(found, values):
            raise InputError(
                f"{self.name!r} must hold numbers of the type {self.dtype}; some of the given numbers are "
                "fractions or out of its range: round or clip them"
            )
        return found

    def dequantize(self, array: Array) -> Array:
        """Return the elements as real numbers, float32. For float ports, they are only converted."""
        if self.type.quant is None:
            return array.astype(np.float32)
        centred = array.astype(np.int64) - self.type.quant.zero_point
        return (centred * self.type.quant.scale).astype(np.float32)

    def __str__(self) -> str:
        return f"{self.name!r} {self.type}"

    def __repr__(self) -> str:
        formula = f", {self.quantization}" if self.quantization else ""
        return f"<Port {self}{formula}>"

    def _repr_html_(self) -> str:
        rows = [(self.name, self.type, self.quantization)]
        return html_table("port", ("name", "type", "quantisation"), rows)


def check_stored(ports: Sequence[Port], given: Sequence[ArrayLike]) -> None:
    """Check that each input has one array with exactly its shape and stored type.

    Raises:
        InputError: arrays do not fit; the message lists all of them.
    """
    _check(ports, given, _stored_problem)


def check_reals(ports: Sequence[Port], given: Sequence[ArrayLike]) -> list[Array]:
    """Return one array of numbers per input, with exactly its shape.

    Raises:
        InputError: arrays do not fit; the message lists all of them.
    """
    return _check(ports, given, _real_problem)


def _check(
    ports: Sequence[Port], given: Sequence[ArrayLike], problem_of: Callable[[int, Port, Array], str]
) -> list[Array]:
    if len(given) != len(ports):
        names = ", ".join(repr(port.name) for port in ports)
        raise InputError(
            f"the model has {len(ports)} inputs; got {len(given)} arrays: pass one array per input, in the "
            f"order {names}"
        )
    arrays: list[Array] = []
    problems: list[str] = []
    for index, (port, each) in enumerate(zip(ports, given, strict=True)):
        try:
            array = np.asarray(each)
        except ValueError as error:  # e.g. nested lists of different lengths
            problems.append(f"input {index} ({port.name!r}) must be one array: {error}")
            continue
        arrays.append(array)
        problems += filter(None, [problem_of(index, port, array)])
    if problems:
        raise InputError("; ".join(problems))
    return arrays


def _stored_problem(index: int, port: Port, array: Array) -> str:
    if array.shape == port.shape and array.dtype == port.dtype:
        return ""
    advice = [_shape_advice(port, array)]
    if array.dtype != port.dtype:
        astype = f"for stored values, convert it with .astype('{port.dtype}')"
        real = f"for real numbers, call session(x), or use session.inputs[{index}].quantize(x)"
        advice.append(f"{astype}; {real}" if port.scale is not None else astype)
    return f"{_rule(index, port, array, str(port.type))}: {'; '.join(filter(None, advice))}"


def _real_problem(index: int, port: Port, array: Array) -> str:
    advice = [_shape_advice(port, array)] if array.shape != port.shape else []
    if array.dtype.kind not in "biuf":
        advice.append("convert it to numbers with .astype('float32')")
    elif port.scale is not None and array.dtype == port.dtype:
        advice.append(
            f"{port.dtype} is the stored type of this input: for stored values, call session.run(x); for "
            "real numbers, convert it with .astype('float32')"
        )
    if not advice:
        return ""
    shape = ",".join(map(str, port.shape))
    return f"{_rule(index, port, array, f'real numbers [{shape}]')}: {'; '.join(advice)}"


def _rule(index: int, port: Port, array: Array, wanted: str) -> str:
    return f"input {index} ({port.name!r}) must be {wanted}; got {array.dtype}{list(array.shape)}"


def _shape_advice(port: Port, array: Array) -> str:
    """Return what to do if the shape does not match; empty if it does."""
    if array.shape == port.shape:
        return ""
    size = math.prod(port.shape)
    if array.size == size:
        return f"if the order of the axes is right, reshape it with .reshape({port.shape})"
    if array.shape[1:] == port.shape[1:] and len(port.shape) > 1:
        return f"pass {port.shape[0]} of its {array.shape[0]} entries per call"
    return f"each call takes {size:,} numbers; got {array.size:,}"
