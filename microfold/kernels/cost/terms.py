"""Counts of how often each part of a kernel's code runs in one call."""

from __future__ import annotations

from collections.abc import Mapping

from microfold.ir.types import DType


class Terms(dict[str, float]):
    """Run counts by name of the code part: ``Terms(call=1, pixel=49, tap=441)``.

    They follow from trip counts alone. The cost of one run of a part on a core is a coefficient, see
    `coefficients`. A sum adds the counts of equal names; a factor is the trip count of an enclosing loop.
    """

    def __add__(self, other: Mapping[str, float]) -> Terms:
        found = Terms(self)
        for name, count in other.items():
            found[name] = found[name] + count if name in found else count
        return found

    def __mul__(self, factor: float) -> Terms:
        return Terms({name: count * factor for name, count in self.items()})

    __rmul__ = __mul__


# Name prefix of parts that run once per element in loops that compilers can vectorise.
WHOLE = "whole_"


def length_prefix(length: int, dtype: DType, features: frozenset[str]) -> str:
    """Return the name prefix of parts that run once per element of a simple loop with this trip count.

    Compilers know the trip count if they inline a short function into its caller. They then vectorise the
    loop, or process words, if no elements are left over.
    """
    group = (16 if "mve" in features else 4) // dtype.itemsize
    return WHOLE if group > 1 and length % group == 0 else ""


def vector_terms(runs: int, length: int, lanes: int) -> Terms:
    """Count the vectors of all runs of a loop; a run with a partial vector counts as predicated entirely."""
    vectors = runs * -(-length // lanes)
    return Terms(whole_vector=vectors) if length % lanes == 0 else Terms(tail=runs, tail_vector=vectors)
