"""Ticks of layers, measured on a device, for `microfold report --profile`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from microfold.errors import InputError
from microfold.reporting.schema import Count
from microfold.support.decode import decode, refuse

# Limit of a 64-bit counter.
_MOST_TICKS = 1 << 64
_MOST_NAMED = 5


class DeviceProfile(Struct, frozen=True):
    """Ticks of layers, measured on a device.

    Attributes:
        source: name of the file.
        ticks: ticks by the number of the layer, for all layers or some of them.
    """

    source: str
    ticks: Mapping[int, int]


class _DumpLayer(Struct, frozen=True):
    """A layer in the output of `microfold diff --json`."""

    name: str
    ticks: Count | None


class _DumpProfile(Struct, frozen=True):
    """Profile in the output of `microfold diff --json`."""

    layers: tuple[_DumpLayer, ...]


def read_profile(data: Any, path: Path, names: Sequence[str]) -> DeviceProfile:
    """Return the ticks in a JSON file.

    The file has the output of `microfold diff --json`, or an object that maps layers, by number or name, to
    ticks.

    Args:
        data: value of the file.
        names: names of the layers.

    Raises:
        InputError: the data is not a profile of this model.
    """
    if isinstance(data, dict) and isinstance(data.get("profile"), dict):
        layers = decode(_DumpProfile, data["profile"], str(path)).layers
        data = {layer.name: layer.ticks for layer in layers if layer.ticks is not None}
    if not isinstance(data, dict) or not data:
        raise InputError(
            f'{path} must be an object that maps layers to ticks, e.g. {{"0": 1200, "softmax": 310}}; '
            "got something else"
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
            f"layers must be numbers from 0 to {len(names) - 1}, or names of layers; unknown",
        ),
        (twice, "each layer may occur only once; given by number and by name"),
        (wrong, "ticks must be whole numbers of up to 64 bits; wrong for"),
    )
    refuse(str(path), [f"{rule}: {_listed(keys)}" for keys, rule in rules if keys])
    ticks = {layer: data[key] for key, layer in layers.items() if layer is not None}
    return DeviceProfile(path.name, ticks)


def _listed(keys: Sequence[str]) -> str:
    """Return a list of the first few keys."""
    text = ", ".join(repr(key[:40]) for key in keys[:_MOST_NAMED])
    return f"{text} and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else text
