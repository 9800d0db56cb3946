"""Ticks of layers as a device measured them: `microfold report --profile`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from microfold.errors import InputError
from microfold.report.decode import decode, refuse
from microfold.support.frozen import frozen

# Of a 64-bit counter.
_MOST_TICKS = 1 << 64
_MOST_NAMED = 5


@frozen
class Profile:
    """What a device measured.

    Attributes:
        source: name of the file.
        ticks: of layers, by their number; of all or some.
    """

    source: str
    ticks: Mapping[int, int]


@frozen
class _DumpLayer:
    """A layer in what `microfold diff --json` prints."""

    name: str
    ticks: int | None


@frozen
class _DumpProfile:
    """The profile of a dump."""

    layers: tuple[_DumpLayer, ...]


def read_profile(data: Any, path: Path, names: Sequence[str]) -> Profile:
    """The ticks that a JSON file holds.

    It is what `microfold diff --json` prints, or an object of layers, by number or name, and their ticks.

    Args:
        data: the file's value.
        names: of the layers.

    Raises:
        InputError: it is no profile, or not one of this model.
    """
    if isinstance(data, dict) and isinstance(data.get("profile"), dict):
        layers = decode(_DumpProfile, data["profile"], str(path)).layers
        data = {layer.name: layer.ticks for layer in layers if layer.ticks is not None}
    if not isinstance(data, dict) or not data:
        raise InputError(
            f'{path} must hold an object of layers and their ticks, e.g. {{"0": 1200, "softmax": 310}}; '
            "it holds something else"
        )
    numbers = {str(i): i for i in range(len(names))} | {name: i for i, name in enumerate(names)}
    layers = {key: numbers.get(key) for key in data}
    strange = [key for key, layer in layers.items() if layer is None]
    found = [layer for layer in layers.values() if layer is not None]
    twice = sorted({names[layer] for layer, count in Counter(found).items() if count > 1})
    wrong = [key for key, value in data.items() if type(value) is not int or not 0 <= value < _MOST_TICKS]
    rules = (
        (
            strange,
            f"layers must be numbers from 0 to {len(names) - 1}, or names of layers; these are neither",
        ),
        (twice, "each layer must be there once; these are by number and by name"),
        (wrong, "ticks must be whole numbers of up to 64 bits; those of these layers are not"),
    )
    refuse(str(path), [f"{rule}: {_listed(keys)}" for keys, rule in rules if keys])
    ticks = {layer: data[key] for key, layer in layers.items() if layer is not None}
    return Profile(path.name, ticks)


def _listed(keys: Sequence[str]) -> str:
    """Some of them."""
    text = ", ".join(repr(key[:40]) for key in keys[:_MOST_NAMED])
    return f"{text} and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else text
