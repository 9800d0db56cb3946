"""Extension of griffe for the documentation: a `msgspec.Struct` gets the signature of a dataclass."""

from __future__ import annotations

from typing import Any

import griffe


class StructSignatures(griffe.Extension):
    """Extension that adds the `dataclass` decorator, which griffe supports, to subclasses of `Struct`."""

    def on_class_instance(self, *, cls: griffe.Class, **_: Any) -> None:
        bases = (base.canonical_path for base in cls.bases if isinstance(base, griffe.Expr))
        if "msgspec.Struct" in bases:
            decorator = griffe.ExprName("dataclasses.dataclass")
            cls.decorators.append(griffe.Decorator(decorator, lineno=None, endlineno=None))
            cls.labels.add("dataclass")
