"""Registry of importers: the function that imports each operator of the format."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from microfold.frontend.schema import operator_names

if TYPE_CHECKING:
    from microfold.frontend.context import OperatorContext

ImportFunction = Callable[["OperatorContext"], None]
IMPORTERS: dict[str, ImportFunction] = {}

# Inputs that are scratch memory only, so that no operator needs to compute them; by operator.
SCRATCH_INPUTS: dict[str, tuple[int, ...]] = {}

# Inputs that may have block-wise quantisation, which the importers check themselves; by operator.
BLOCKWISE_INPUTS: dict[str, tuple[int, ...]] = {}


def imports(
    *names: str, scratch: tuple[int, ...] = (), blockwise: tuple[int, ...] = ()
) -> Callable[[ImportFunction], ImportFunction]:
    """Register a function as the importer of the TFLite operators with these names.

    Args:
        scratch: entry in `SCRATCH_INPUTS`.
        blockwise: entry in `BLOCKWISE_INPUTS`.

    Raises:
        ValueError: the format has no operator with one of these names.
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
