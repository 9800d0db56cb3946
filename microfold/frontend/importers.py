"""The registry of importers: the function that imports each operator of the format."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from microfold.frontend.schema import operator_names

if TYPE_CHECKING:
    from microfold.frontend.context import OperatorContext

ImportFunction = Callable[["OperatorContext"], None]
IMPORTERS: dict[str, ImportFunction] = {}

# Inputs that are only memory, so that nothing has to compute them; by operator.
SCRATCH_INPUTS: dict[str, tuple[int, ...]] = {}

# Inputs whose quantisation may be block-wise, which importers look for themselves; by operator.
BLOCKWISE_INPUTS: dict[str, tuple[int, ...]] = {}


def imports(
    *names: str, scratch: tuple[int, ...] = (), blockwise: tuple[int, ...] = ()
) -> Callable[[ImportFunction], ImportFunction]:
    """Decorate the function that imports the TFLite operators of these names.

    Args:
        scratch: their entry in `SCRATCH_INPUTS`.
        blockwise: their entry in `BLOCKWISE_INPUTS`.

    Raises:
        ValueError: the format has no operator of such a name.
    """
    operator_names(*names)

    def decorate(function: ImportFunction) -> ImportFunction:
        for name in names:
            IMPORTERS[name] = function
            if scratch:
                SCRATCH_INPUTS[name] = scratch
            if blockwise:
                BLOCKWISE_INPUTS[name] = blockwise
        return function

    return decorate
