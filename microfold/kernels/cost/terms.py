"""How often each part of a kernel's code runs in one call."""

from __future__ import annotations

from collections.abc import Mapping

from microfold.ir.types import DType


class Terms(dict[str, float]):
    """Counts by the names of parts: ``Terms(call=1, pixel=49, tap=441)``.

    They follow from the loops alone. What each part takes on a core is a coefficient, see `coefficients`.
    Sums add the counts of equal names; a factor is that of a loop around.
    """

    def __add__(self, other: Mapping[str, float]) -> Terms:
        found = Terms(self)
        for name, count in other.items():
            found[name] = found[name] + count if name in found else count
        return found

    def __mul__(self, factor: float) -> Terms:
        return Terms({name: count * factor for name, count in self.items()})

    __rmul__ = __mul__


# What begins the names of parts that run for each element of loops that compilers may make vectors of.
WHOLE = "whole_"


def length_prefix(length: int, dtype: DType, features: frozenset[str]) -> str:
    """What begins the names of parts that run for each element of a plain loop of such a length.

    Where compilers know the length, as of short functions that become part of their callers, they make
    vectors of the loop, or words, if these leave no element over.
    """
    group = (16 if "mve" in features else 4) // dtype.itemsize
    return WHOLE if group > 1 and length % group == 0 else ""


def vector_terms(runs: int, length: int, lanes: int) -> Terms:
    """Of runs of neighbouring elements, so many in a vector: where some are left over, other loops do all."""
    vectors = runs * -(-length // lanes)
    return Terms(whole_vector=vectors) if length % lanes == 0 else Terms(tail=runs, tail_vector=vectors)
