"""Extension of griffe for the documentation: classes made by `frozen` get the signature of a dataclass."""

from __future__ import annotations

from typing import Any

import griffe

_FROZEN = "microfold.support.frozen.frozen"


class FrozenSignatures(griffe.Extension):
    """Extension that replaces `frozen` by the `dataclass` decorator, which griffe supports."""

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        for decorator in cls.decorators:
            value = decorator.value
            if isinstance(value, griffe.Expr) and value.canonical_path == _FROZEN:
                decorator.value = griffe.ExprName("dataclasses.dataclass")
                cls.labels.add("dataclass")
