"""Results that are kept, for the questions that come again."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import ParamSpec, TypeVar, cast

import numpy as np

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def remembered(size: int) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """A decorator: the results of the latest calls are kept, by what arrays among the arguments hold.

    Results are shared: nothing may write into them.

    Args:
        size: how many results are kept.
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
    """What is found for keys, each found once and kept as long as this is."""

    def __init__(self) -> None:
        self._found: dict[Hashable, object] = {}

    def __call__(self, key: Hashable, find: Callable[[], _Result]) -> _Result:
        """What is found for a key.

        Args:
            key: also says who asks.
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
