"""Bytes of code that the function of a kernel takes in flash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from microfold.support.frozen import frozen

# The part of a kernel's guessed code that belongs to one function alone; its other functions share the rest.
# Source: judgement, until the kernel is measured.
GUESSED_OWN = 0.8


@frozen
class CodeBytes:
    """Code of one function, in bytes.

    Attributes:
        shared: own code of a function that several layers call.
        alone: own code of a function made for its only layer: the compiler puts the layer's numbers into it.
        helpers: code of the helper functions that it calls, by name. Each is in flash once, whatever number
            of functions call it. Parts of the function that the compiler merges with those of others with the
            same specification are among them.
    """

    shared: int
    alone: int
    helpers: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


def guessed(kernel: str, code: int, function: int) -> CodeBytes:
    """Return the size of a function that no data file knows.

    Args:
        kernel: the kernel's name, which stands for all that its functions share.
        code: `Kernel.code`, in bytes.
        function: `Kernel.function_bytes`, in bytes.
    """
    own = int(function * GUESSED_OWN)
    return CodeBytes(own, own, {kernel: code - int(code * GUESSED_OWN)})
