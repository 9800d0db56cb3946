"""Grammar of kernel names.

A name consists of the type of the activations, the type of the weights (with a ``w``) or of the results if
it differs, the operator, two underscores, the instruction set and the variant: ``s8_conv2d__dsp_4x2``,
``s8_s4w_conv2d__mve``, ``s8_s16_softmax__c``. Kernels for all types have no type in their name: ``copy__c``.
"""

from __future__ import annotations

import re

from microfold.errors import DeclarationError
from microfold.ir.types import DType

TYPES = {
    DType.BOOL: "bool",
    DType.INT8: "s8",
    DType.UINT8: "u8",
    DType.INT16: "s16",
    DType.INT32: "s32",
    DType.UINT32: "u32",
    DType.INT64: "s64",
    DType.UINT64: "u64",
    DType.FLOAT16: "f16",
    DType.FLOAT32: "f32",
}
INSTRUCTION_SETS = ("c", "thumb1", "thumb2", "dsp", "fpu", "mve")

_TYPE = "|".join(TYPES.values())
_WEIGHT = f"(?:{_TYPE}|s4)w"
_NAME = re.compile(
    rf"(?:(?:{_TYPE})_(?:(?:{_WEIGHT}|{_TYPE})_)?)?"  # type of activations; type of weights or results
    rf"(?!(?:{_WEIGHT}|{_TYPE}|s4)_)(?P<operator>[a-z][a-z0-9]*(?:_[a-z0-9]+)*)"
    rf"__(?:{'|'.join(INSTRUCTION_SETS)})(?:_[a-z0-9]+)*"
)


def operator(name: str) -> str:
    """Return the operator in a name: "maximum" for ``s8_maximum__c``."""
    found = _NAME.fullmatch(name)
    assert found is not None, name
    return found["operator"]


def activation_type(name: str) -> DType:
    """Return the type of the activations, which begins a name: int8 for ``s8_maximum__c``."""
    prefix = name.split("_")[0]
    return next(dtype for dtype, text in TYPES.items() if text == prefix)


def check_name(name: str) -> None:
    """Raise DeclarationError if a name breaks the grammar."""
    if not _NAME.fullmatch(name):
        raise DeclarationError(
            "a kernel's name must be types, operator, two underscores, instruction set, variant "
            f"(types: {', '.join(TYPES.values())}; sets: {', '.join(INSTRUCTION_SETS)}); got {name!r}: "
            "rename it, for example s8_clip__dsp"
        )
