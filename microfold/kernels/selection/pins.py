"""Kernels that the user has given to layers: all others are rejected before selection compares any.

A pin is `LAYER=KERNEL` or `OPERATOR=KERNEL`. A layer takes the best of the kernels that are pinned to it.
Where there are none, it takes the best of those that are pinned to its operator and can compute it. A pinned
kernel need not be worth its flash or its RAM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from microfold.errors import InputError
from microfold.ir.node import Node, Value
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.layer_names import select_layers
from microfold.options import check_pin
from microfold.support.frozen import frozen

# Names of the only kernels that may compute a node, by its first result: bands of it have another node.
Pins = Mapping[Value, frozenset[str]]
NO_PINS: Pins = {}


def pinned(pins: Pins, layer: LayerContext) -> frozenset[str] | None:
    """Return the names of the kernels that may compute a layer, or a band of it; None: any may."""
    return pins.get(layer.whole.outputs[0]) if pins else None


@frozen
class PinnableLayer:
    """A layer as pins name it.

    Attributes:
        name: of the layer in the generated C; unique.
        kernels: each kernel of its operator with the reason why it cannot compute the layer, None if it can;
            none: an external code generator computes it, or it only runs other layers.
    """

    name: str
    node: Node
    kernels: Mapping[str, str | None]


def resolve_pins(texts: Sequence[str], layers: Sequence[PinnableLayer]) -> Pins:
    """Return the kernels that pins leave to each node.

    Args:
        texts: `LAYER=KERNEL`, by the layer's name or number, or `OPERATOR=KERNEL`.
        layers: of the model, in the order of their numbers.

    Raises:
        InputError: lists all pins that name no layer or no kernel, or a kernel that cannot compute it.
    """
    names = [(each.name, each.node.op.name) for each in layers]
    problems: list[str] = []
    by_layer: dict[Value, set[str]] = {}
    by_operator: dict[Value, set[str]] = {}
    for text in texts:
        where, kernel = check_pin(text)
        selected = select_layers(where, names)
        if isinstance(selected, str):
            problems.append(selected)
            continue
        concerned = [layers[number] for number in selected]
        fitting = [each for each in concerned if each.kernels.get(kernel, "") is None]
        if not fitting:
            problems.append(_problem(where, kernel, concerned))
        is_layer = any(where in (str(number), layers[number].name) for number in selected)
        for each in fitting:
            (by_layer if is_layer else by_operator).setdefault(each.node.outputs[0], set()).add(kernel)
    if problems:
        raise InputError(
            f"pinned kernels must be able to compute their layers: {'; '.join(problems)}. "
            "`microfold kernels` lists the kernels of all layers, with reasons"
        )
    return {value: frozenset(kernels) for value, kernels in (by_operator | by_layer).items()}


def _problem(where: str, kernel: str, concerned: Sequence[PinnableLayer]) -> str:
    """Return why a kernel can compute none of these layers, and what can."""
    reasons = dict.fromkeys(each.kernels.get(kernel) for each in concerned)
    operator = concerned[0].node.op.name
    why = "; ".join(reason for reason in reasons if reason) or f"no kernel of {operator} has this name"
    possible = dict.fromkeys(name for each in concerned for name, no in each.kernels.items() if no is None)
    return f"{where} by {kernel}: {why}; possible are {', '.join(possible) or 'none'}"
