"""Layers of a float model, with the names by which they are found in the quantised file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from microfold.errors import InputError
from microfold.frontend.tflite import ImportTrace
from microfold.ir.graph import Graph
from microfold.ir.node import Node, Value
from microfold.quantization.normalise import FileOperator
from microfold.quantization.schemes import LAYER_SCHEMES


class FloatLayer(Struct, frozen=True):
    """Operator of a float model, with its first result.

    Attributes:
        number: position among the layers.
        scope: name by which ai-edge-quantizer selects the operator.
    """

    number: int
    value: Value
    operator: str
    scope: str


def layers_of(model: ImportTrace, operators: Mapping[int, FileOperator]) -> tuple[FloatLayer, ...]:
    """Return the operators that compute float tensors, in order.

    Args:
        operators: see `Normalised`.
    """
    tensors = {value: index for index, value in model.values.items()}
    found: list[FloatLayer] = []
    seen: set[str] = set()
    for node in model.graph.nodes:
        value = node.outputs[0]
        operator = operators.get(tensors.get(value, -1))
        if operator is not None and operator.scope not in seen and value.type.dtype.is_float:
            seen.add(operator.scope)
            found.append(FloatLayer(len(found), value, operator.name, operator.scope))
    return tuple(found)


def named_results(graph: Graph) -> dict[str, tuple[Node, int]]:
    """Return the last node that computes a value of a name, and the index of its output.

    A tensor of the file can be computed by several nodes, e.g. an operator and its activation function.
    """
    return {value.name: (node, index) for node in graph.nodes for index, value in enumerate(node.outputs)}


def layer_schemes(words: Sequence[str], layers: Sequence[FloatLayer]) -> dict[str, str]:
    """Return the schemes of single layers, by scope.

    Args:
        words: ``N=SCHEME`` each, with the number or the tensor's name of a layer.

    Raises:
        InputError: words are invalid. The message lists all problems.
    """
    by_name = Counter(layer.value.name for layer in layers)
    found: dict[str, str] = {}
    problems: list[str] = []
    for word in words:
        name, _, scheme = word.rpartition("=")
        if scheme not in LAYER_SCHEMES:
            problems.append(f"{word!r}: the scheme of a layer must be {', '.join(LAYER_SCHEMES)}")
            continue
        chosen = [layer for layer in layers if name in (str(layer.number), layer.value.name)]
        if not chosen or by_name[name] > 1:
            problems.append(
                f"{word!r}: a layer must be a number from 0 to {len(layers) - 1}, or a tensor's name"
            )
            continue
        found[chosen[0].scope] = scheme
    if problems:
        raise InputError("--layer must be LAYER=SCHEME: " + "; ".join(problems))
    return found
