"""Operators that LiteRT computes in float32 for float16 activations, with one rounding of the result.

The import casts their operands to float32 and their results to float16.
"""

from __future__ import annotations

from microfold.frontend.schema import operator_names

# Operators of the file format. Operators that only move elements process float16 directly.
WIDENED = operator_names(
    *("ATAN2", "COS", "FLOOR", "GELU", "LOGISTIC", "ROUND", "SIN", "SOFTMAX", "TANH"),
    *("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"),
)
