"""Importers of RFFT2D, and of operators on complex numbers: COMPLEX_ABS, REAL, IMAG, CAST, MUL."""

from __future__ import annotations

import math

import numpy as np

from microfold.arithmetic.real_fft import MAX_LENGTH
from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.ir.node import Value
from microfold.ir.types import DType, ElementType
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.sub import Sub
from microfold.ops.fully_connected.fully_connected import FullyConnected
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.pad import Pad
from microfold.ops.movement.reshape import Reshape
from microfold.ops.movement.strided_slice import StridedSlice
from microfold.ops.movement.transpose import Transpose
from microfold.ops.signal.complex_numbers import PARTS, ComplexAbs, ComplexFft
from microfold.ops.signal.rfft import SignalRfft

_FLOAT = ElementType(DType.FLOAT32)


@imports("RFFT2D")
def rfft2d(context: OperatorContext) -> None:
    """Transform the rows, then the columns of their spectra.

    The input is cropped to the lengths of the transform, or padded with zeros at the end. Columns of one
    number remain unchanged.
    """
    x, name = context.input(0), context.name()
    height, width = _lengths(context)
    if x.type.dtype is not DType.FLOAT32 or x.type.rank < 2 or x in context.scope.complex:
        raise Unsupported(f"its input must be real float32 with at least two axes; it is {x.type}")
    *batch, rows, columns = x.type.shape
    kept = (*batch, min(rows, height), min(columns, width))
    if kept != x.type.shape:
        op = StridedSlice((0,) * x.type.rank, kept, (1,) * x.type.rank)
        (x,) = context.emit(op, x, names=[f"{name}_cut"])
    spectra = _spectra_of_two(context, x) if width == 2 else _spectra(context, x, width)
    (parts,) = context.emit(
        Reshape((math.prod(batch), kept[-2], width // 2 + 1, PARTS)), spectra, names=[f"{name}_parts"]
    )
    if kept[-2] < height:
        below = ((0, 0), (0, height - kept[-2]), (0, 0), (0, 0))
        (parts,) = context.emit(Pad(below, 0.0), parts, names=[f"{name}_rows"])
    if height > 1:
        (parts,) = context.emit(Transpose((0, 2, 1, 3)), parts, names=[f"{name}_columns"])
        (parts,) = context.emit(ComplexFft(), parts, names=[f"{name}_transformed"])
        (parts,) = context.emit(Transpose((0, 2, 1, 3)), parts, names=[f"{name}_moved"])
    (parts,) = context.emit(Reshape((*batch, height, width // 2 + 1, PARTS)), parts)
    context.finish(context.scope.complex_value(parts))


def _lengths(context: OperatorContext) -> tuple[int, int]:
    """Return height and width of the transform.

    If the model computes them, they are derived from the shape of the result in the file.
    """
    if context.known(1) is None:
        *_, height, numbers = context.static_shape("fft_length", context.input(0).type.rank)
        lengths = (height, 2 * (numbers - 1))
    else:
        lengths = context.integers(1, "fft_length")
    if len(lengths) != 2 or any(n < 1 or n & (n - 1) or n > MAX_LENGTH for n in lengths):
        raise Unsupported(
            f"fft_length must be two powers of two, at most {MAX_LENGTH}; it is {list(lengths)}"
        )
    height, width = lengths
    if width == 1 or height > MAX_LENGTH // 2:
        raise Unsupported(
            f"fft_length must be at most {MAX_LENGTH // 2} rows, and more than 1 column: the reference "
            f"computes an imaginary part for a row of one number; it is {list(lengths)}"
        )
    return height, width


def _spectra(context: OperatorContext, x: Value, width: int) -> Value:
    return context.emit(SignalRfft(width), x, names=[f"{context.name()}_spectra"])[0]


def _spectra_of_two(context: OperatorContext, x: Value) -> Value:
    """Return the real spectra of rows of at most two numbers: their sum and their difference."""
    name, columns = context.name(), x.type.shape[-1]
    matrix = np.array([[1, 1], [0, 0], [1, -1], [0, 0]], np.float32)[:, :columns]
    weights = context.add_constant(np.ascontiguousarray(matrix), f"{name}_matrix")
    (flat,) = context.emit(Reshape((x.type.size // columns, columns)), x, names=[f"{name}_flat"])
    return context.emit(FullyConnected(_FLOAT), flat, weights, names=[f"{name}_spectra"])[0]


def _complex(context: OperatorContext, index: int = 0) -> Value:
    parts = context.parts(index)
    if parts is None:
        raise Unsupported(f"input {index} must be complex; it is {context.input(index).type}")
    return parts


@imports("COMPLEX_ABS")
def complex_abs(context: OperatorContext) -> None:
    context.finish(*context.emit(ComplexAbs(), _complex(context)))


@imports("REAL")
def real(context: OperatorContext) -> None:
    context.finish(part(context, _complex(context), 0, context.name()))


@imports("IMAG")
def imag(context: OperatorContext) -> None:
    context.finish(part(context, _complex(context), 1, context.name()))


def part(context: OperatorContext, parts: Value, which: int, name: str) -> Value:
    """Return the real (0) or imaginary (1) parts [...] of complex numbers [..., 2], with this name."""
    column = _column(context, parts, which, f"{name}_column")
    return context.emit(Reshape(parts.type.shape[:-1]), column, names=[name])[0]


def _column(context: OperatorContext, parts: Value, which: int, name: str) -> Value:
    *shape, _ = parts.type.shape
    op = StridedSlice((*(0 for _ in shape), which), (*shape, 1), (1,) * parts.type.rank)
    return context.emit(op, parts, names=[name])[0]


def finish_complex(context: OperatorContext, x: Value) -> None:
    """Finish with a complex output: its real part is `x`, float32, and its imaginary part is 0."""
    (column,) = context.emit(Reshape((*x.type.shape, 1)), x, names=[f"{context.name()}_real"])
    pairs = (*((0, 0) for _ in x.type.shape), (0, 1))
    context.finish(context.scope.complex_value(context.emit(Pad(pairs, 0.0), column)[0]))


def finish_product(context: OperatorContext) -> None:
    """Finish with the product of two complex inputs."""
    first, second = _complex(context, 0), _complex(context, 1)
    name = context.name()
    names = ("a", "b", "c", "d")  # (a + bi) (c + di)
    columns = [
        _column(context, (first, second)[index // 2], index % 2, f"{name}_{letter}")
        for index, letter in enumerate(names)
    ]
    a, b, c, d = columns
    products = {
        pair: context.emit(Mul(_FLOAT), *factors, names=[f"{name}_{pair}"])[0]
        for pair, factors in {"ac": (a, c), "bd": (b, d), "ad": (a, d), "bc": (b, c)}.items()
    }
    (re,) = context.emit(Sub(_FLOAT), products["ac"], products["bd"], names=[f"{name}_real"])
    (im,) = context.emit(Add(_FLOAT), products["ad"], products["bc"], names=[f"{name}_imaginary"])
    (parts,) = context.emit(Concatenate(re.type.rank - 1), re, im)
    context.finish(context.scope.complex_value(parts))
