"""Constants that several programs of one build read, e.g. of layers that were trained once for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from microfold.codegen.literals import c_type
from microfold.codegen.names import Namer
from microfold.codegen.parts import ConstantArray
from microfold.kernels.call import Constant
from microfold.program import ConstantKey, Layer, Program, constant_key


@dataclass(frozen=True, eq=False)
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
        sizes = {key: array.array.nbytes for key, array in self.by_key.items()}
        return sum(size * (len(self.readers[key]) - 1) for key, size in sizes.items())

    def read_by(self, program: str) -> int:
        """Bytes of those that a program reads."""
        return sum(a.array.nbytes for key, a in self.by_key.items() if program in self.readers[key])


def shared_constants(name: str, programs: Sequence[Program], own: Callable[[str], str]) -> SharedConstants:
    """The constants that more than one of the programs read; none where memories are planned for constants.

    Args:
        name: what their names in C begin with.
        own: types of the templates as those of the build.
    """
    if any(program.regions is not None and program.regions.constants for program in programs):
        return SharedConstants({}, {})
    found: dict[ConstantKey, list[tuple[Program, Layer, Constant]]] = {}
    for program in programs:
        for layer in program.calls:
            for constant in layer.call.constants.values():
                key = constant_key(constant.array, constant.record)
                found.setdefault(key, []).append((program, layer, constant))
    readers = {key: [*dict.fromkeys(program.name for program, _, _ in uses)] for key, uses in found.items()}
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
