"""Selection of layers by the names and numbers that users write."""

from __future__ import annotations

from collections.abc import Sequence

# Prefix of an operator's name, for names that are also the name of a layer.
OPERATOR = "op:"


def select_layers(where: str, layers: Sequence[tuple[str, str]]) -> list[int] | str:
    """Return the numbers of the layers that a text selects, or the reason why it selects none.

    Args:
        where: number or name of a layer, or name of an operator, which selects all its layers.
        layers: names of layers and of their operators, in the order of the numbers.
    """
    by_name = [number for number, (name, _) in enumerate(layers) if where in (str(number), name)]
    operator = where.removeprefix(OPERATOR)
    by_operator = [number for number, (_, op) in enumerate(layers) if op == operator]
    if by_name and by_operator and by_name != by_operator:
        return (
            f"{where!r} is layer {by_name[0]} and the operator of {len(by_operator)} layers: "
            f"write {by_name[0]} or {OPERATOR}{where}"
        )
    if by_name or by_operator:
        return by_name or by_operator
    names, operators = (", ".join(dict.fromkeys(column)) for column in zip(*layers, strict=True))
    return f"unknown layer or operator {where!r}; layers: {names}; operators: {operators}"
