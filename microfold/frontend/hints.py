"""What to say about operators that are not supported."""

from __future__ import annotations

from microfold.frontend.context import IMPORTERS, Unsupported

_RECURRENT = (
    "unroll it into FULLY_CONNECTED, LOGISTIC, TANH, MUL and ADD; Keras RNN layers have `unroll=True`"
)

# Where nothing better is known.
CHANGE = "change this part of the model, or replace it by other operators, and convert it again"

_HINTS = {
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _RECURRENT,
    "BIDIRECTIONAL_SEQUENCE_LSTM": _RECURRENT,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _RECURRENT,
    "BIDIRECTIONAL_SEQUENCE_RNN": _RECURRENT,
    "LSTM": _RECURRENT,
    "RNN": _RECURRENT,
    "NON_MAX_SUPPRESSION_V4": "end the model before it, and select boxes in the application",
    "NON_MAX_SUPPRESSION_V5": "end the model before it, and select boxes in the application",
}


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
    hint = _HINTS.get(
        name, f"replace it by supported ones; there are {len(IMPORTERS)}, see the documentation"
    )
    return Unsupported("this operator is not supported", hint)
