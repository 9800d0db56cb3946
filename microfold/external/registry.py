"""Registry of external code generators, which installed packages provide through entry points."""

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

# Built-in generators, which need no entry points, because a checkout of microfold has none.
_SHIPPED: tuple[type[External], ...] = (CmsisNN, EthosUDriver)


def available() -> dict[str, type[External]]:
    """Return every external code generator by name.

    Raises:
        InputError: an entry point cannot be loaded, is not an `External`, or uses the name of another one.
    """
    found: dict[str, type[External]] = {shipped.name: shipped for shipped in _SHIPPED}
    for point in _points(tuple(sys.path)):
        loaded = _load(point)
        known = found.setdefault(point.name, loaded)
        if known is not loaded:
            raise InputError(
                f"external code generators must have different names; {point.name!r} is both "
                f"{_origin(known)} and {_origin(loaded)}: uninstall one of them"
            )
    return found


@cache
def _points(path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points of all packages on the path, sorted. Reading them is slow: cache the result."""
    del path
    return tuple(sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)))


def _load(point: EntryPoint) -> type[External]:
    try:
        loaded = point.load()
    except Exception as error:  # importing a plug-in can raise any exception
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
    """Return the external code generators of these names, in this order, then the automatic ones.

    Raises:
        InputError: a name is unknown.
    """
    known = available()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(
            f"unknown external code generator {', '.join(unknown)}; available: {', '.join(sorted(known))}"
        )
    automatic = [name for name in known if known[name].automatic]
    return tuple(known[name]() for name in dict.fromkeys([*names, *automatic]))
