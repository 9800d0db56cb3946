"""float16 activations: operators for which LiteRT has them compute float32, and round once.

Their operands are cast, and so is what they give.
"""

from __future__ import annotations

from microfold.frontend.schema import operator_names

# Operators of the file format; those that only move elements take float16 as it is.
WIDENED = operator_names(
    *("ATAN2", "COS", "FLOOR", "GELU", "LOGISTIC", "ROUND", "SIN", "SOFTMAX", "TANH"),
    *("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"),
)
