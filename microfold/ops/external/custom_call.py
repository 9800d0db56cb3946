"""Custom operator, computed by a C function of the firmware."""

from __future__ import annotations

import re
from typing import ClassVar

from microfold.errors import NoReferenceError
from microfold.ir.op import Op, Pattern, register, require
from microfold.ir.types import Array, Tensor, TensorType

# Attributes that become part of the generated C: name, allowed syntax, and its description.
NAMES = (
    ("function", re.compile(r"[A-Za-z_][A-Za-z0-9_]*"), "a name in C"),
    ("header", re.compile(r"[A-Za-z0-9_./+-]+"), "a header's name"),
)


@register
class CustomCall(Op, frozen=True):
    """Call ``function(inputs…, outputs…)`` of unknown code, which can have effects and state.

    Attributes:
        function: name of the C function.
        header: header that declares it.
        results: types of the outputs.
    """

    name: ClassVar[str] = "custom_call"
    pattern: ClassVar[Pattern] = Pattern.OPAQUE
    any_zero_point: ClassVar[bool] = True
    takes_infinities: ClassVar[bool] = True

    function: str
    header: str
    results: tuple[TensorType, ...]

    @property
    def has_effect(self) -> bool:
        return True

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        del inputs
        for field, pattern, what in NAMES:
            text = getattr(self, field)
            require(bool(pattern.fullmatch(text)), f"custom_call: {field} must be {what}; it is {text!r}")
        return self.results

    def reference(self, *inputs: Tensor) -> tuple[Array, ...]:
        raise NoReferenceError(f"{self.function} has no reference: it is code of the firmware")
