"""Ticks of layers as a device measured them: `microfold report --profile`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from microfold.errors import InputError
from microfold.report.decode import refuse

# Of a 64-bit counter.
_MOST_TICKS = 1 << 64


@dataclass(frozen=True)
class Profile:
    """What a device measured.

    Attributes:
        source: name of the file.
        ticks: of layers, by their number; of all or some.
    """

    source: str
    ticks: Mapping[int, int]


def read_profile(data: Any, path: Path, names: Sequence[str]) -> Profile:
    """The ticks that a JSON file holds: an object of layers, by number or name, and their ticks.

    Args:
        data: the file's value.
        names: of the layers.

    Raises:
        InputError: it is no profile, or not one of this model.
    """
    if not isinstance(data, dict) or not data:
        raise InputError(
            f'{path} must hold an object of layers and their ticks, e.g. {{"0": 1200, "softmax": 310}}; '
            "it holds something else"
        )
    numbers = {str(i): i for i in range(len(names))} | {name: i for i, name in enumerate(names)}
    ticks: dict[int, int] = {}
    faults: list[str] = []
    for key, value in data.items():
        layer = numbers.get(key)
        if layer is None:
            faults.append(
                f"a layer must be a number from 0 to {len(names) - 1} or a name; {key[:60]!r} is none"
            )
        elif layer in ticks:
            faults.append(f"a layer must be there once; {key!r} is there by number and by name")
        elif type(value) is not int or not 0 <= value < _MOST_TICKS:
            faults.append(f"ticks must be a whole number of up to 64 bits; those of {key!r} are not")
        else:
            ticks[layer] = value
    refuse(str(path), faults)
    return Profile(path.name, ticks)
