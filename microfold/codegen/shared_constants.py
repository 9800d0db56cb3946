"""Constants that several programs of one build read, e.g. of layers that were trained once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from microfold.codegen.literals import c_type
from microfold.codegen.names import Namer
from microfold.codegen.parts import ConstantArray
from microfold.ir.types import Array
from microfold.kernels.call import Constant
from microfold.program import ConstantKey, Layer, Program, constant_key


class SharedConstants(Struct, frozen=True, eq=False):
    """Constants that are stored once for several programs.

    Attributes:
        by_key: constants in the order in which the first program reads them.
        readers: names of the programs that read each constant.
    """

    by_key: Mapping[ConstantKey, ConstantArray]
    readers: Mapping[ConstantKey, Sequence[str]]

    @property
    def arrays(self) -> list[ConstantArray]:
        return [*self.by_key.values()]

    @property
    def saved(self) -> int:
        """Bytes that sharing saves, compared with separate programs."""
        return sum(_saved(array.array, self.readers[key]) for key, array in self.by_key.items())

    def read_by(self, program: str) -> int:
        """Return the size of the shared constants that a program reads, in bytes."""
        return sum(a.array.nbytes for key, a in self.by_key.items() if program in self.readers[key])


def shared_constants(name: str, programs: Sequence[Program], own: Callable[[str], str]) -> SharedConstants:
    """Return the constants that several programs read; none if constants are planned for memories.

    Args:
        name: prefix of their C names.
        own: replaces types of the templates by types of the build.
    """
    found = _uses(programs)
    readers = {key: _readers(uses) for key, uses in found.items()}
    namer = Namer(name)
    arrays: dict[ConstantKey, ConstantArray] = {}
    for key, uses in found.items():
        if len(readers[key]) > 1:
            _, layer, constant = uses[0]
            arrays[key] = ConstantArray(
                namer.claim(f"{layer.name}_{constant.label}"),
                own(constant.record) or c_type(constant.array),
                constant.array,
                constant.record,
                f"Used by {', '.join(readers[key])}: [{', '.join(map(str, constant.array.shape))}]",
                constant.members,
                max(each.alignment for _, _, each in uses),
            )
    return SharedConstants(arrays, readers)


def constant_bytes(programs: Sequence[Program]) -> int:
    """Return the size of all programs' constants in flash, in bytes; shared constants count once."""
    uses = _uses(programs).values()
    saved = sum(_saved(each[0][2].array, _readers(each)) for each in uses)
    return sum(program.weight_bytes for program in programs) - saved


# Uses of a constant.
_Uses = Sequence[tuple[Program, Layer, Constant]]


def _uses(programs: Sequence[Program]) -> Mapping[ConstantKey, _Uses]:
    """Return the uses of all constants that programs may share."""
    if any(program.regions is not None and program.regions.constants for program in programs):
        return {}
    found: dict[ConstantKey, list[tuple[Program, Layer, Constant]]] = {}
    for program in programs:
        for layer in program.calls:
            for constant in layer.call.constants.values():
                key = constant_key(constant.array, constant.record)
                found.setdefault(key, []).append((program, layer, constant))
    return found


def _readers(uses: _Uses) -> list[str]:
    """Return the names of the programs that use a constant."""
    return [*dict.fromkeys(program.name for program, _, _ in uses)]


def _saved(array: Array, readers: Sequence[str]) -> int:
    """Return the bytes that sharing saves, compared with one array for each reader."""
    return array.nbytes * (len(readers) - 1)
