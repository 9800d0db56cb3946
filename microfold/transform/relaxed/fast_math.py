"""Approximates exp, tanh, logistic and softmax, on request.

    %y: float32[8] = tanh(%x)    ->    %y: float32[8] = unary(%x) {function="fast_tanh"}

The pass changes float32 only, and only if `PassContext.numerics` is relaxed, because the bits change. `exp`
has a relative error below 4e-7 in [-87, 88], and is saturated outside. `tanh` and `logistic` have an absolute
error below 4e-7; `tanh` therefore loses relative accuracy near zero. A softmax has a relative error below
1e-6 of each result. Instructions per element, measured by simulation:

                       exp    tanh    logistic    softmax
    Cortex-M4F          76     111          78        100
      approximated      42      47          44         61
    Cortex-M0+        2469    4133        2939       3228
      approximated    1808    2432        2253       2467

The library functions and their tables (0.4 to 0.9 KB on a Cortex-M4F) are then not linked.
"""

from __future__ import annotations

from microfold.ir.graph import Graph
from microfold.ir.op import Op
from microfold.ir.rewrite import Replacement, RewriteSite, Rule, forward_rewrite
from microfold.ir.types import DType
from microfold.ops.elementwise.activations.logistic import Logistic
from microfold.ops.elementwise.activations.tanh import Tanh
from microfold.ops.elementwise.fast_math import FastSoftmax
from microfold.ops.elementwise.unary import Unary
from microfold.ops.normalize.softmax import Softmax
from microfold.passes.context import PassContext
from microfold.passes.decorators import function_pass


@function_pass(opt_level=4)
def fast_math(graph: Graph, context: PassContext) -> Graph:
    """Replace functions of float32 values by approximations."""

    def approximate(site: RewriteSite[None]) -> Replacement:
        node = site.node
        fast = _fast(node.op)
        if fast is None:
            return None
        if node.output.type.dtype is not DType.FLOAT32:
            context.declined(node, f"it computes {node.output.type.dtype.value}, with tables or integers")
            return None
        if context.numerics != "relaxed":
            context.declined(node, "numerics must be relaxed for other bits; they are exact")
            return None
        context.fired(node, f"an approximation of {node.op.name}")
        return site.emit(fast, *site.inputs, epilogue=site.epilogue)

    rules: dict[type[Op], Rule[None]] = dict.fromkeys((Unary, Tanh, Logistic, Softmax), approximate)
    return forward_rewrite(graph, rules)


def _fast(op: Op) -> Op | None:
    """Return the approximation of an operator, or None."""
    if isinstance(op, Softmax):
        return FastSoftmax(op.beta, op.out) if not isinstance(op, FastSoftmax) else None
    if isinstance(op, Unary):
        return Unary("fast_exp", op.out) if op.function == "exp" else None
    if isinstance(op, Tanh):
        return Unary("fast_tanh", op.out)
    return Unary("fast_logistic", op.out) if isinstance(op, Logistic) else None
