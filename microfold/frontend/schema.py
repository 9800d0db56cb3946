"""What the file format allows in the fields of an options table.

A field that holds an enumeration must hold one of its members: readers that compare with one member take
everything else for the other. The format:
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/lite/schema/schema.fbs
"""

from __future__ import annotations

from typing import Any

import tflite

# The enumeration behind each field of this name, in whichever options it is.
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
CUSTOM = "CUSTOM "  # in front of the name of a custom operator
NO_OPTIONS = tflite.BuiltinOptions.NONE


def operator_names(*names: str) -> frozenset[str]:
    """Return the operator names of a table after checking that the format has each of them.

    Args:
        names: as the format spells them; those of custom operators follow `CUSTOM`.

    Raises:
        ValueError: the format has no such operator, so that the entry would never apply.
    """
    unknown = sorted(name for name in names if name not in _OPERATORS and not name.startswith(CUSTOM))
    if unknown:
        raise ValueError(f"the .tflite format must have each operator of a table; it lacks {unknown}")
    return frozenset(names)


def options_name(code: int) -> str:
    """What the format calls the options of a number."""
    return _OPTIONS.get(code, f"options number {code}")


def activation_name(code: int) -> str:
    """What the format calls an activation function."""
    return _ACTIVATIONS.get(code, f"number {code}")


def options_code(name: str) -> int:
    """The number of the options of a name."""
    return int(getattr(tflite.BuiltinOptions, name))


def members(enumeration: Any) -> dict[int, str]:
    """The names of an enumeration's members, by number."""
    return {code: name for name, code in vars(enumeration).items() if isinstance(code, int)}


def option_faults(kind: str, options: Any) -> list[str]:
    """Which fields hold no member of their enumeration.

    Args:
        kind: name of the options' class.
        options: the table.
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
    """A field's name as the format spells it."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in field).lstrip("_")
