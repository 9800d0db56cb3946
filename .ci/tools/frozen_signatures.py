"""An extension of griffe, for the documentation: what `frozen` makes has the signature of a dataclass."""

from __future__ import annotations

from typing import Any

import griffe

_FROZEN = "microfold.support.frozen.frozen"


class FrozenSignatures(griffe.Extension):
    """Shows griffe's own extension for dataclasses the decorator that it knows."""

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        for decorator in cls.decorators:
            value = decorator.value
            if isinstance(value, griffe.Expr) and value.canonical_path == _FROZEN:
                decorator.value = griffe.ExprName("dataclasses.dataclass")
                cls.labels.add("dataclass")
