"""Caches of function results."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import ParamSpec, TypeVar, cast

import numpy as np

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def remembered(size: int) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Decorate a function with a cache of its latest results. Arrays among the arguments compare by content.

    Results are shared, so callers must not modify them.

    Args:
        size: maximum number of cached results.
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        kept: OrderedDict[Hashable, _Result] = OrderedDict()

        @functools.wraps(function)
        def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            key = _key((args, tuple(sorted(kwargs.items()))))
            if key in kept:
                kept.move_to_end(key)
                return kept[key]
            result = kept[key] = function(*args, **kwargs)
            if len(kept) > size:
                kept.popitem(last=False)
            return result

        return call

    return decorate


class Remembered:
    """Cache of results by key, without a limit."""

    def __init__(self) -> None:
        self._found: dict[Hashable, object] = {}

    def __call__(self, key: Hashable, find: Callable[[], _Result]) -> _Result:
        """Return the result for a key, computing it at the first call.

        Args:
            key: key of the result; it must also identify the caller.
            find: function that computes the result.
        """
        if key not in self._found:
            self._found[key] = find()
        return cast("_Result", self._found[key])


def _key(value: object) -> Hashable:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, tuple):
        return tuple(_key(each) for each in cast("tuple[object, ...]", value))
    return cast("Hashable", value)
