"""Hyperbolic tangent of float32 as in LiteRT's GELU: a rational function.

It is the quotient of an odd polynomial of degree 9 and an even one of degree 8, which Eigen publishes as
``ptanh_float`` (https://gitlab.com/libeigen/eigen, Eigen/src/Core/MathFunctionsImpl.h). The error is at most
5
units in the last place, and the result is -1 or 1 from `LIMIT` on. If ``1 + tanh(x)`` cancels, the result
depends on these units. `mf_rational_tanh` is the same function in C.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.types import Array

LIMIT = np.float32(7.90738964)
# Coefficients of polynomials in x^2, highest power first: tanh is (x + x^3 * numerator) / denominator.
_NUMERATOR = tuple(np.float32(c) for c in (1.394553628e-8, 2.102733560e-5, 3.520756727e-3, 1.340216100e-1))
_DENOMINATOR = tuple(
    np.float32(c) for c in (8.015776984e-7, 3.326951409e-4, 2.597254514e-2, 4.673548340e-1, 1.0)
)


def rational_tanh(x: Array) -> Array:
    """Return tanh of float32 elements; each step is rounded to float32."""
    limited = np.clip(x, -LIMIT, LIMIT)
    square = limited * limited
    over, under = (_polynomial(square, coefficients) for coefficients in (_NUMERATOR, _DENOMINATOR))
    return (limited * square * over + limited) / under


def _polynomial(x: Array, coefficients: tuple[np.float32, ...]) -> Array:
    """Return the polynomial's value by Horner's rule."""
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total
