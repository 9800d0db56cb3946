"""Messages for operators that are not supported."""

from __future__ import annotations

from microfold.frontend.context import Unsupported
from microfold.frontend.importers import IMPORTERS

# Generic remedy.
CHANGE = "change this part of the model, or replace it by other operators, and convert it again"


def unsupported_operator(name: str) -> Unsupported:
    """Return the error for an operator without an importer."""
    if name.startswith("CUSTOM"):
        custom = name.removeprefix("CUSTOM").strip()
        if custom.startswith("Flex"):
            return Unsupported(
                "it is a TensorFlow operator inside the file (select TensorFlow ops)",
                "convert the model with built-in operators only (TFLITE_BUILTINS)",
            )
        return Unsupported(
            "custom operators are not supported",
            "replace it by built-in operators, or pass a file with --custom that defines it",
        )
    return Unsupported(
        "this operator is not supported",
        f"replace it by supported ones; the documentation lists all {len(IMPORTERS)}",
    )
