"""Names and valid values in the file format: operators, options and enumerations.

An enumeration field must hold one of its members. Importers rely on this: after comparing with one of two
members, they assume the other. Format:
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/lite/schema/schema.fbs
"""

from __future__ import annotations

from typing import Any

import tflite

# Enumeration of each field, by the field's name, for all options that have it.
_ENUMERATIONS: dict[str, Any] = {
    "Combiner": tflite.CombinerType,
    "FusedActivationFunction": tflite.ActivationFunctionType,
    "IdxOutType": tflite.TensorType,
    "InDataType": tflite.TensorType,
    "KernelType": tflite.LSTMKernelType,
    "Mode": tflite.MirrorPadMode,
    "OutDataType": tflite.TensorType,
    "OutType": tflite.TensorType,
    "OutputType": tflite.TensorType,
    "Padding": tflite.Padding,
    "QuantizedBiasType": tflite.TensorType,
    "Type": tflite.LSHProjectionType,
    "WeightsFormat": tflite.FullyConnectedOptionsWeightsFormat,
}
_OPTIONS = {code: name for name, code in vars(tflite.BuiltinOptions).items() if isinstance(code, int)}
_ACTIVATIONS = {
    code: name for name, code in vars(tflite.ActivationFunctionType).items() if isinstance(code, int)
}
_OPERATORS = frozenset(name for name, code in vars(tflite.BuiltinOperator).items() if isinstance(code, int))
CUSTOM = "CUSTOM "  # prefix of the name of a custom operator
NO_OPTIONS = tflite.BuiltinOptions.NONE


def operator_names(*names: str) -> frozenset[str]:
    """Return the names as a set, after checking that the format has all these operators.

    Args:
        names: names in the format; custom operators have the prefix `CUSTOM`.

    Raises:
        ValueError: the format has no such operator, so the entry would never apply.
    """
    unknown = sorted(name for name in names if name not in _OPERATORS and not name.startswith(CUSTOM))
    if unknown:
        raise ValueError(f"operators of a table must exist in the .tflite format; it lacks {unknown}")
    return frozenset(names)


def options_name(code: int) -> str:
    """Return the name of an options type in the format."""
    return _OPTIONS.get(code, f"options number {code}")


def activation_name(code: int) -> str:
    """Return the name of an activation function in the format."""
    return _ACTIVATIONS.get(code, f"number {code}")


def options_code(name: str) -> int:
    """Return the number of an options type, by name."""
    return int(getattr(tflite.BuiltinOptions, name))


def members(enumeration: Any) -> dict[int, str]:
    """Return the names of an enumeration's members, by number."""
    return {code: name for name, code in vars(enumeration).items() if isinstance(code, int)}


def option_faults(kind: str, options: Any) -> list[str]:
    """Return a message for each field whose value is not a member of its enumeration.

    Args:
        kind: class name of the options.
    """
    faults: list[str] = []
    for field, enumeration in _ENUMERATIONS.items():
        if hasattr(getattr(tflite, kind), field):
            code, known = int(getattr(options, field)()), members(enumeration)
            if code not in known:
                names = ", ".join(f"{number} ({name})" for number, name in sorted(known.items()))
                faults.append(f"{_spelled(field)} must be one of {names}; it is {code}")
    return faults


def _spelled(field: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in field).lstrip("_")
