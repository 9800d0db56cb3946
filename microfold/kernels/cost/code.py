"""Code size of kernel functions, in bytes of flash."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct, field

# Fraction of a kernel's estimated code that belongs to one function alone. All functions of the kernel share
# the rest. Source: judgement, until the kernel is measured.
GUESSED_OWN = 0.8


class CodeBytes(Struct, frozen=True):
    """Code of one function, in bytes.

    Attributes:
        shared: own code of a function that several layers call.
        alone: own code of a function that a single layer calls: the compiler propagates the layer's constants
            into it.
        helpers: code of the helper functions that it calls, by name. Each helper is in flash once, even if
            several functions call it. They include the parts of the function that the compiler merges with
            equal parts of functions with the same specification.
    """

    shared: int
    alone: int
    helpers: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


def guessed(kernel: str, code: int, function: int) -> CodeBytes:
    """Return the estimated size of a function that no data file contains.

    Args:
        kernel: the kernel's name, used as the name of the code that all its functions share.
        code: `Kernel.code`, in bytes.
        function: `Kernel.function_bytes`, in bytes.
    """
    own = int(function * GUESSED_OWN)
    return CodeBytes(own, own, {kernel: code - int(code * GUESSED_OWN)})
