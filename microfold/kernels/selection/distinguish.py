"""What tells the calls of a kernel's variants apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from microfold.kernels.call import KernelCall, SpecValue


def distinguish(calls: Sequence[KernelCall]) -> list[dict[str, SpecValue]]:
    """What tells the calls of a kernel's variants apart: as few choices of their functions as that takes.

    Where functions are the same, numbers of the layer do.
    """
    kept = distinguishing_names(calls)
    return [{name: known[name] for name in kept if name in known} for known in map(choices_of, calls)]


def choices_of(call: KernelCall) -> Mapping[str, SpecValue]:
    """All choices of a call's function, and the layer's whole numbers, by their names."""
    numbers = {name: value for name, value in call.parameters.items() if isinstance(value, int)}
    return numbers | dict(call.function.spec)


def distinguishing_names(calls: Sequence[KernelCall]) -> list[str]:
    """The names of the choices that `distinguish` gives."""
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
