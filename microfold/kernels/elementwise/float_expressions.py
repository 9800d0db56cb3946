"""What portable kernels compute of float32 elements: one C expression for each function."""

from __future__ import annotations

import re

# Of the element x, by the function's name in `ops.elementwise.unary`.
UNARY = {
    "ceil": "ceilf(x)",
    "cos": "cosf(x)",
    "elu": "x < 0.0f ? expm1f(x) : x",
    "exp": "expf(x)",
    "fast_exp": "mf_fast_exp(x)",
    "fast_logistic": "1.0f / (1.0f + mf_fast_exp(-x))",
    "fast_tanh": "1.0f - 2.0f / (1.0f + mf_fast_exp(2.0f * x))",
    "floor": "floorf(x)",
    "gelu": "0.5f * x * (1.0f + erff(x * 0.70710678f))",
    "gelu_tanh": "0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)))",
    "log": "logf(x)",
    "neg": "-x",
    "round": "rintf(x)",
    "sin": "sinf(x)",
    "sqrt": "sqrtf(x)",
    "square": "x * x",
}
# Of the elements a and b, by the name of the operator, a `FloatBinary`.
BINARY = {
    "div": "a / b",
}


def calls_math(expression: str) -> bool:
    """Whether it calls a function of math.h: any that is no helper of ours."""
    return re.search(r"\b(?!mf_)\w+\(", expression) is not None
