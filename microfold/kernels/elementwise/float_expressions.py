"""C expressions of float32 elements, by function, for portable kernels."""

from __future__ import annotations

# Expressions of the element x, by the function's name in `ops.elementwise.unary`.
UNARY = {
    "ceil": "ceilf(x)",
    "cos": "cosf(x)",
    "elu": "x < 0.0f ? expm1f(x) : x",
    "exp": "expf(x)",
    "fast_exp": "mf_fast_exp(x)",
    "fast_logistic": "1.0f / (1.0f + mf_fast_exp(-x))",
    "fast_tanh": "1.0f - 2.0f / (1.0f + mf_fast_exp(2.0f * x))",
    "floor": "floorf(x)",
    "gelu": "0.5f * x * erfcf(x * -0.70710678f)",
    "gelu_rational_tanh": "0.5f * x * (1.0f + mf_rational_tanh(0.79788456f * (x + 0.044715f * (x * x * x))))",
    "gelu_tanh": "0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)))",
    "log": "logf(x)",
    "neg": "-x",
    "round": "rintf(x)",
    "sign": "(float)((x > 0.0f) - (x < 0.0f))",
    "sin": "sinf(x)",
    "sqrt": "sqrtf(x)",
    "square": "x * x",
}
# Expressions of the element x, by operator name, for operators without attributes.
ACTIVATIONS = {
    "abs": "fabsf(x)",
    "hard_swish": "x * mf_clamp_float(x + 3.0f, 0.0f, 6.0f) / 6.0f",
    "logistic": "x < -9.0f ? expf(x) : 1.0f / (1.0f + expf(-x))",
    "rsqrt": "1.0f / sqrtf(x)",
    "tanh": "tanhf(x)",
}
# Expressions of the elements a and b, by kernel.
BINARY = {
    "f32_add__c": "a + b",
    "f32_atan2__c": "atan2f(a, b)",
    "f32_div__c": "a / b",
    "f32_maximum__c": "a > b ? a : b",
    "f32_minimum__c": "a < b ? a : b",
    "f32_mul__c": "a * b",
    "f32_prelu__c": "a >= 0.0f ? a : a * b",
    "f32_squared_difference__c": "(a - b) * (a - b)",
    "f32_sub__c": "a - b",
}

# Functions of math.h (C99, 7.12) that return a number; the float32 functions have the suffix f.
_MATH = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos",
    "cosh", "erf", "erfc", "exp", "exp2", "expm1", "fabs", "fdim", "floor", "fma", "fmax", "fmin",
    "fmod", "frexp", "hypot", "ldexp", "lgamma", "log", "log10", "log1p", "log2", "logb", "modf",
    "nearbyint", "pow", "remainder", "rint", "round", "scalbn", "sin", "sinh", "sqrt", "tan", "tanh",
    "tgamma", "trunc",
)  # fmt: skip


def calls_math(expression: str) -> bool:
    """Return whether the expression calls a function of math.h."""
    return any(f"{name}f(" in expression for name in _MATH)
