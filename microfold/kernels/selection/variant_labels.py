"""Labels that distinguish the variants of a kernel by the choices in their calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from microfold.kernels.call import KernelCall, SpecValue


def distinguish(calls: Sequence[KernelCall]) -> list[dict[str, SpecValue]]:
    """Return for each call the fewest choices of its function that distinguish all calls.

    If functions are equal, numbers of the layer are used also.
    """
    kept = distinguishing_names(calls)
    return [{name: known[name] for name in kept if name in known} for known in map(choices_of, calls)]


def choices_of(call: KernelCall) -> Mapping[str, SpecValue]:
    """Return all choices of a call's function, and the integer fields of its layer, by name."""
    numbers = {name: value for name, value in call.parameters.items() if isinstance(value, int)}
    return numbers | dict(call.function.spec)


def distinguishing_names(calls: Sequence[KernelCall]) -> list[str]:
    """Return the names of the choices that `variant_labels` uses."""
    described = [choices_of(call) for call in calls]
    names = [name for call in calls for name, _ in call.function.spec]
    names += [name for known in described for name in known]
    kept: list[str] = []
    parts = 1
    for name in dict.fromkeys(names):
        more = len({tuple(known.get(key) for key in (*kept, name)) for known in described})
        if more > parts:
            kept.append(name)
            parts = more
    return kept
