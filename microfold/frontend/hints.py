"""What to say about operators that are not supported."""

from __future__ import annotations

from microfold.frontend.context import Unsupported
from microfold.frontend.importers import IMPORTERS

# Where nothing better is known.
CHANGE = "change this part of the model, or replace it by other operators, and convert it again"


def unsupported_operator(name: str) -> Unsupported:
    """The refusal of an operator that has no importer."""
    if name.startswith("CUSTOM"):
        custom = name.removeprefix("CUSTOM").strip()
        if custom.startswith("Flex"):
            return Unsupported(
                "it is a TensorFlow operator inside the file (select TensorFlow ops)",
                "convert the model with built-in operators only (TFLITE_BUILTINS)",
            )
        return Unsupported(
            "custom operators are not supported",
            "replace it by built-in operators, or say with --custom what computes it",
        )
    return Unsupported(
        "this operator is not supported",
        f"replace it by supported ones; there are {len(IMPORTERS)}, see the documentation",
    )
