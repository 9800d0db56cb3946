"""Importers of NON_MAX_SUPPRESSION_V4 and NON_MAX_SUPPRESSION_V5."""

from __future__ import annotations

from microfold.frontend.context import OperatorContext, Unsupported
from microfold.frontend.importers import imports
from microfold.ir.node import Value
from microfold.ops.movement.reshape import Reshape
from microfold.ops.non_max_suppression import NonMaxSuppression

_NUMBERS = ("limit", "overlap_threshold", "score_threshold", "sigma")


@imports("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(context: OperatorContext) -> None:
    """Import the operator. The constant limit, or else the shape in the file, is the number of rows."""
    soft = context.raw.name.endswith("V5")
    if context.known(2) is None:
        (size,) = context.static_shape("max_output_size", 1)
    else:
        (size,) = context.integers(2, "max_output_size")[:1] or (0,)
    sigma = context.known(5) if soft else None
    if sigma is not None and sigma.size == 1 and not float(sigma.reshape(())) >= 0:
        raise Unsupported(f"soft_nms_sigma must not be negative; it is {float(sigma.reshape(())):g}")
    numbers = [_number(context, 2 + index, what) for index, what in enumerate(_NUMBERS[: 3 + soft])]
    names = [context.name(index) for index in range(len(context.raw.outputs))]
    if len(names) != 2 + soft:
        raise Unsupported(f"it must have {2 + soft} outputs; it has {len(names)}")
    operands = context.input(0), context.input(1), *numbers
    context.finish(*context.emit(NonMaxSuppression(size, soft), *operands, names=names))


def _number(context: OperatorContext, index: int, what: str) -> Value:
    value = context.input(index)
    if value.type.size != 1:
        raise Unsupported(f"input {index} must be one number; it is {value.type}")
    if value.type.rank == 0:
        return value
    return context.emit(Reshape(()), value, names=[f"{context.name()}_{what}"])[0]
