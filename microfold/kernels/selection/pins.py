"""Pinned kernels: the user's choices, before selection compares any kernels.

A pin is `LAYER=KERNEL` or `OPERATOR=KERNEL`. Selection chooses the best of the kernels that are pinned to a
layer. If there are none, it chooses the best of the kernels that are pinned to the layer's operator and can
compute the layer. A pinned kernel need not be worth its flash or its RAM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from microfold.errors import InputError
from microfold.ir.node import Node, Value
from microfold.kernels.layer import LayerContext
from microfold.kernels.selection.layer_names import select_layers
from microfold.options import check_pin

# Names of the only kernels that may compute a node, by its first result, because bands of it have another
# node.
Pins = Mapping[Value, frozenset[str]]
NO_PINS: Pins = {}


def pinned(pins: Pins, layer: LayerContext) -> frozenset[str] | None:
    """Return the names of the kernels that may compute a layer, or a band of it; None if any may."""
    return pins.get(layer.whole.outputs[0]) if pins else None


class PinnableLayer(Struct, frozen=True):
    """A layer, with the name and the kernels that pins can use.

    Attributes:
        name: unique name of the layer in the generated C.
        kernels: each kernel of its operator, with the reason why it cannot compute the layer, or None if it
            can. Empty if an external code generator computes the layer, or if it only runs other layers.
    """

    name: str
    node: Node
    kernels: Mapping[str, str | None]


def resolve_pins(texts: Sequence[str], layers: Sequence[PinnableLayer]) -> Pins:
    """Return the kernels that pins allow for each node.

    Args:
        texts: `LAYER=KERNEL`, by the layer's name or number, or `OPERATOR=KERNEL`.
        layers: layers of the model, in the order of their numbers.

    Raises:
        InputError: some pins name an unknown layer or kernel, or a kernel that cannot compute the layer. The
            error lists all of them.
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
    """Return why a kernel can compute none of these layers, and which kernels can."""
    reasons = dict.fromkeys(each.kernels.get(kernel) for each in concerned)
    operator = concerned[0].node.op.name
    why = "; ".join(reason for reason in reasons if reason) or f"no kernel of {operator} has this name"
    possible = dict.fromkeys(name for each in concerned for name, no in each.kernels.items() if no is None)
    return f"{where} by {kernel}: {why}; possible: {', '.join(possible) or 'none'}"
