"""Constants that several programs of one build read, e.g. of layers that were trained once for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from microfold.codegen.literals import c_type
from microfold.codegen.names import Namer
from microfold.codegen.parts import ConstantArray
from microfold.ir.types import Array
from microfold.kernels.call import Constant
from microfold.program import ConstantKey, Layer, Program, constant_key
from microfold.support.frozen import frozen


@frozen(eq=False)
class SharedConstants:
    """What is there once.

    Attributes:
        by_key: in the order in which the first program reads them.
        readers: names of the programs that read each.
    """

    by_key: Mapping[ConstantKey, ConstantArray]
    readers: Mapping[ConstantKey, Sequence[str]]

    @property
    def arrays(self) -> list[ConstantArray]:
        return [*self.by_key.values()]

    @property
    def saved(self) -> int:
        """Bytes that programs of their own would have more."""
        return sum(_saved(array.array, self.readers[key]) for key, array in self.by_key.items())

    def read_by(self, program: str) -> int:
        """Bytes of those that a program reads."""
        return sum(a.array.nbytes for key, a in self.by_key.items() if program in self.readers[key])


def shared_constants(name: str, programs: Sequence[Program], own: Callable[[str], str]) -> SharedConstants:
    """The constants that more than one of the programs read; none where memories are planned for constants.

    Args:
        name: what their names in C begin with.
        own: types of the templates as those of the build.
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
                f"Of {', '.join(readers[key])}: [{', '.join(map(str, constant.array.shape))}]",
                constant.members,
                max(each.alignment for _, _, each in uses),
            )
    return SharedConstants(arrays, readers)


def constant_bytes(programs: Sequence[Program]) -> int:
    """Bytes of constants in flash of programs in one build: what several read is counted once."""
    uses = _uses(programs).values()
    saved = sum(_saved(each[0][2].array, _readers(each)) for each in uses)
    return sum(program.weight_bytes for program in programs) - saved


# Where a constant is read.
_Uses = Sequence[tuple[Program, Layer, Constant]]


def _uses(programs: Sequence[Program]) -> Mapping[ConstantKey, _Uses]:
    """All constants of calls that programs may share."""
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
    """Names of the programs."""
    return [*dict.fromkeys(program.name for program, _, _ in uses)]


def _saved(array: Array, readers: Sequence[str]) -> int:
    """Bytes that these would have more, each with an array of its own."""
    return array.nbytes * (len(readers) - 1)
