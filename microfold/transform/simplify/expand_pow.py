"""Replaces powers with some constant exponents by products and roots.

    %y: float32[8] = pow(%x, %two)   ->   %y: float32[8] = unary(%x) {function="square", out=float32}

The library function needs hundreds of instructions; the exponents 0.5, 1, 2, 3, -0.5 and -1 need one to three
operations. Each operation rounds, so that only the last bits of results can differ. The square root of minus
infinity is NaN, but its power is infinite. Infinite values are outside of the domain of float operators.
"""

from __future__ import annotations

import numpy as np

from microfold.ir.graph import Graph
from microfold.ir.rewrite import Replacement, RewriteSite, forward_rewrite
from microfold.ir.types import DType, ElementType, TensorType
from microfold.ops.elementwise.div import Div
from microfold.ops.elementwise.mul import Mul
from microfold.ops.elementwise.pow import Pow
from microfold.ops.elementwise.rsqrt import Rsqrt
from microfold.ops.elementwise.unary import Unary
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass

_FLOAT = ElementType(DType.FLOAT32)
_EXPONENTS = (0.5, 1.0, 2.0, 3.0, -0.5, -1.0)


@function_pass(opt_level=3)
def expand_pow(graph: Graph, context: PassContext) -> Graph:
    """Replace float32 powers with small constant exponents by products, quotients and roots."""

    def rewrite(site: RewriteSite[None]) -> Replacement:
        node, base = site.node, site.value(0)
        exponents = site.array(node.inputs[1])
        assert base is not None
        if node.output.type.dtype is not DType.FLOAT32 or node.epilogue:
            return None
        reason = "its exponent is not constant"
        if exponents is not None:
            exponent = float(exponents.flat[0]) if exponents.size else 1.0
            if not np.all(exponents == exponent):
                reason = "its exponents are not all the same"
            elif base.type != node.output.type:
                reason = "its base is broadcast to the shape of the exponents"
            elif exponent not in _EXPONENTS:
                reason = f"to the power of {exponent:g} needs the library function"
            else:
                context.fired(node, f"to the power of {exponent:g}")
                return _emit(site, exponent)
        context.declined(node, reason)
        return None

    return forward_rewrite(graph, {Pow: rewrite})


def _emit(site: RewriteSite[None], exponent: float) -> Replacement:
    base, builder, name = site.value(0), site.builder, site.node.output.name
    assert base is not None
    if exponent == 1.0:
        return base
    if exponent == -1.0:
        one = builder.constant(np.array(1, np.float32), TensorType(DType.FLOAT32, ()), f"{name}_one")
        return site.emit(Div(_FLOAT), one, base)
    if exponent == 3.0:
        (square,) = builder.emit(Unary("square", _FLOAT), [base], [f"{name}_square"])
        return site.emit(Mul(_FLOAT), square, base)
    op = {0.5: Unary("sqrt", _FLOAT), 2.0: Unary("square", _FLOAT), -0.5: Rsqrt(_FLOAT)}[exponent]
    return site.emit(op, base)
