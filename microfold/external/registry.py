"""Finds external code generators: those of all installed packages, through entry points."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from microfold.errors import InputError
from microfold.external.cmsis_nn.external import CmsisNN
from microfold.external.ethos_u import EthosUDriver
from microfold.external.external import External

GROUP = "microfold.externals"

# Found without an installation, too: from a checkout, microfold has no entry points.
_SHIPPED: tuple[type[External], ...] = (CmsisNN, EthosUDriver)


def available() -> dict[str, type[External]]:
    """Every external code generator by its name.

    Raises:
        InputError: an entry point cannot be loaded, is no `External`, or takes a name that is in use.
    """
    found: dict[str, type[External]] = {shipped.name: shipped for shipped in _SHIPPED}
    for point in _points(tuple(sys.path)):
        loaded = _load(point)
        known = found.setdefault(point.name, loaded)
        if known is not loaded:
            raise InputError(
                f"external code generators need different names; {point.name!r} is both "
                f"{_origin(known)} and {_origin(loaded)}"
            )
    return found


@cache
def _points(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Those of all packages on the path, in order: to read what these hold takes as long as a small model."""
    del path
    return tuple(sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)))


def _load(point: EntryPoint) -> type[External]:
    try:
        loaded = point.load()
    except Exception as error:  # whatever the plug-in does when it is imported
        raise InputError(
            f"external code generator {point.name!r} ({point.value}) cannot be loaded: {error!r}"
        ) from None
    if not (isinstance(loaded, type) and issubclass(loaded, External)) or loaded.name != point.name:
        raise InputError(
            f"an entry point of {GROUP} must be a class derived from External, with its own name; "
            f"{point.name!r} is {loaded!r}"
        )
    return loaded


def _origin(external: type[External]) -> str:
    return f"{external.__module__}.{external.__qualname__}"


def resolve(names: Sequence[str]) -> tuple[External, ...]:
    """The external code generators of these names, in their order, then those that need not be asked for.

    Raises:
        InputError: one is not known.
    """
    known = available()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(
            f"unknown external code generator {', '.join(unknown)}; known are {', '.join(sorted(known))}"
        )
    automatic = [name for name in known if known[name].automatic]
    return tuple(known[name]() for name in dict.fromkeys([*names, *automatic]))
