"""Literals of the text form: attributes of a declared Python type, and types of values."""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

from microfold.ir.tokens import Cursor
from microfold.ir.types import DType, ElementType, Quant, TensorType


def read_scale(text: str) -> float:
    """Return a scale: the float32 nearest to the decimal, or the double if a ``d`` follows."""
    if text.endswith("d"):
        return float(text[:-1])
    with np.errstate(over="ignore"):  # infinite if beyond float32
        return float(np.float32(float(text)))


def has_text_form(hint: Any) -> bool:
    """Return whether the text form has literals of this type."""
    if get_origin(hint) in (Union, types.UnionType):
        return all(has_text_form(option) for option in get_args(hint))
    if get_origin(hint) is tuple:
        return all(option is Ellipsis or has_text_form(option) for option in get_args(hint))
    if get_origin(hint) is Literal:
        return True
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return True
    return hint in (type(None), bool, int, float, str, ElementType, TensorType, Quant)


class LiteralCursor(Cursor):
    """Cursor that reads tokens as values of Python types."""

    def literal(self, hint: Any, what: str) -> Any:
        """Return an attribute's value, read as its declared type."""
        token = self.next
        options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        if type(None) in options:
            if self.accept("none"):
                return None
            options = tuple(option for option in options if option is not type(None))
        hint = options[0]
        if get_origin(hint) is Literal:
            return self.choice({str(choice): choice for choice in get_args(hint)}, what)
        if hint is bool:
            if not (self.sees("true") or self.sees("false")):
                self.expected(f"true or false for {what}")
            return self.take().text == "true"
        if hint is int:
            return self.integer()
        if hint is float:
            return float(self.expect_kind("number").text.rstrip("d"))
        if hint is str:
            return self.text_literal()
        if hint is ElementType:
            return ElementType(self.dtype(), self.quant())
        if hint is TensorType:
            return self.type()
        if hint is Quant:
            return self.quant() or self.expected(f"q(…) for {what}")
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return self.choice({str(member.value): member for member in hint}, what)
        if get_origin(hint) is tuple:
            return self.tuple(get_args(hint), what)
        return self.fail(token, f"{what} cannot be written as text: its type is {hint}")

    def text_literal(self) -> str:
        token = self.expect_kind("string")
        return self.string(token, token.text)

    def choice(self, choices: Mapping[str, Any], what: str) -> Any:
        word = self.take()
        if word.text not in choices:
            self.fail(word, f"expected one of {', '.join(choices)} for {what}; found {word.text!r}")
        return choices[word.text]

    def tuple(self, hints: tuple[Any, ...], what: str) -> tuple[Any, ...]:
        start = self.next
        any_length = len(hints) == 2 and hints[1] is Ellipsis
        items: list[Any] = []

        def item() -> None:
            if not any_length and len(items) >= len(hints):
                self.fail(start, f"{what} has {len(hints)} elements in each pair of parentheses")
            items.append(self.literal(hints[0 if any_length else len(items)], what))

        self.separated(item, "(", ")")
        if not any_length and len(items) != len(hints):
            self.fail(start, f"{what} must have {len(hints)} elements here; got {len(items)}")
        return tuple(items)

    def dtype(self) -> DType:
        token = self.expect_kind("word")
        names = {member.value: member for member in DType}
        if token.text not in names:
            self.fail(token, f"expected an element type ({', '.join(names)}); found {token.text!r}")
        return names[token.text]

    def type(self) -> TensorType:
        dtype = self.dtype()
        start = self.next
        shape = tuple(self.separated(self.integer, "[", "]"))
        if min(shape, default=0) < 0:
            self.fail(start, f"extents must not be negative; they are {list(shape)}")
        return TensorType(dtype, shape, self.quant())

    def quant(self) -> Quant | None:
        if not self.accept("q"):
            return None
        self.expect("(")
        if self.accept("axis"):
            self.expect("=")
            axis = None if self.accept("none") else self.integer()
            for sign in (",", "scales", "="):
                self.expect(sign)
            scales = tuple(self.separated(self.scale, "[", "]"))
            for sign in (",", "zero_points", "="):
                self.expect(sign)
            listed = self.sees("[")
            points = self.separated(self.integer, "[", "]") if listed else [self.integer()] * len(scales)
            quant = Quant(scales, tuple(points), axis)
        else:
            scale = self.scale()
            self.expect(",")
            quant = Quant((scale,), (self.integer(),))
        self.expect(")")
        return quant

    def scale(self) -> float:
        return read_scale(self.expect_kind("number").text)
