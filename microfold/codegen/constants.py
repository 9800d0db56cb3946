"""Constants of a program, as arrays of the generated C or as parts of a blob."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from microfold.codegen import blob
from microfold.codegen.literals import c_type, literal_headers
from microfold.codegen.names import Namer, place_of
from microfold.codegen.parts import ConstantArray, NamedOffset
from microfold.kernels.call import Constant
from microfold.plan.overlap import align
from microfold.plan.regions import Regions
from microfold.program import ConstantKey, Program, constant_key


def constant_headers(arrays: Iterable[ConstantArray]) -> frozenset[str]:
    """Return the standard headers for the elements of constants."""
    # float16 elements are printed as their bits.
    floats = [a.array for a in arrays if a.array.dtype == np.float32]
    return literal_headers(extreme for array in floats for extreme in (array.min(), array.max()))


class ConstantArrays:
    """Constants in flash; equal constants are stored once.

    Attributes:
        blob: whether the constants are parts of a binary file.
        by_key: constants in the order in which they were added, without those shared by several programs.
    """

    def __init__(
        self,
        program: Program,
        namer: Namer,
        own: Callable[[str], str],
        shared: Mapping[ConstantKey, ConstantArray] | None = None,
    ):
        """Initialise an empty set; `own` replaces types of the templates by types of the model."""
        self._shared = shared or {}
        self.blob = program.options.weights == "blob"
        self.by_key: dict[ConstantKey, ConstantArray] = {}
        self._name = program.name
        self._namer = namer
        self._own = own

    def add(self, constant: Constant, comment: str, section: str = "") -> str:
        """Add a constant, and return the C expression of its address.

        Args:
            comment: comment line in the generated C.
            section: linker section; empty for the section of all constants.
        """
        array, record = constant.array, constant.record
        key = constant_key(array, record)
        if key in self._shared:
            return self._shared[key].name
        if key not in self.by_key:
            name = self._namer.claim(constant.label, "_offset" if self.blob else "")
            shape = ", ".join(map(str, array.shape))
            element = self._own(record) or c_type(array)
            comment = f"{comment}: [{shape}]"
            self.by_key[key] = ConstantArray(name, element, array, record, comment, constant.members)
        if section:
            self.by_key[key] = replace(self.by_key[key], section=section)
        if self.by_key[key].alignment < constant.alignment:
            self.by_key[key] = replace(self.by_key[key], alignment=constant.alignment)
        name = self.by_key[key].name
        return place_of(self._name, "weights", name) if self.blob else name

    def put_in(self, regions: Regions) -> None:
        """Move the constants to the sections of the memories that are planned for them."""
        for key, memory in regions.constants.items():
            self.by_key[key] = replace(self.by_key[key], section=memory.section("constants"))

    @property
    def arrays(self) -> list[ConstantArray]:
        return list(self.by_key.values())

    @property
    def headers(self) -> frozenset[str]:
        """Standard headers for the elements of the constants."""
        return constant_headers(self.arrays)

    @cached_property
    def blob_alignment(self) -> int:
        """Alignment of the address of a blob, in bytes."""
        return max([blob.ALIGNMENT, *(array.alignment for array in self.arrays)])

    @cached_property
    def blob_places(self) -> list[NamedOffset]:
        """Offsets of the constants in a blob."""
        offset, places = blob.HEADER_SIZE, list[NamedOffset]()
        for array in self.arrays:
            offset = align(offset, self.blob_alignment)
            places.append(NamedOffset(array.name, offset, array.comment))
            offset += array.array.nbytes
        return places

    @property
    def blob_size(self) -> int:
        """Size of a blob, in bytes."""
        ends = (p.offset + a.array.nbytes for p, a in zip(self.blob_places, self.arrays, strict=True))
        return max(ends, default=blob.HEADER_SIZE)
