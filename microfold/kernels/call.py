"""Kernel calls: the C function that computes a layer, and its parameters.

The specification of a `CFunction` has the compile-time choices. Layers with equal functions share one
function, unless each layer is to have its own.
The parameters of a `KernelCall` are the numbers and packed constants of one layer, in a `const` struct in
flash.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from msgspec import Struct, field

from microfold.errors import DeclarationError
from microfold.ir.types import Array
from microfold.kernels.fields import Fields

SpecValue = int | str | bool | tuple[int, ...] | tuple[tuple[int, ...], ...]


class Constant(Struct, frozen=True, eq=False):
    """A packed constant.

    Attributes:
        label: last part of its name in the generated C, e.g. ``weights`` in ``conv1_weights``.
        record: C struct type of one row (a helper of ``templates/simd``); empty for plain elements.
        members: number of elements of a row in each member of the struct. A member with several elements is
            a struct or an array, and gets braces of its own. If empty, each member has one element.
        alignment: alignment of its address, in bytes; 1 is the alignment of the elements.
    """

    label: str
    array: Array
    record: str = ""
    members: tuple[int, ...] = ()
    alignment: int = 1


# A value None is a null pointer, whose type the field declares.
Parameter = int | float | Constant | None


class Library(Struct, frozen=True):
    """External library that the firmware must link.

    Attributes:
        name: readable name with the supported versions, e.g. ``CMSIS-NN 7.0.0 or later``.
        headers: headers that the generated code includes.
        prelude: template under ``templates/`` of code that follows the includes; empty for none.
        stand_in: pairs of a file name and its template, for code that replaces the library on the host and
            on simulated cores.
        templates: folder of its templates and of the templates of its functions; None for microfold's own.
    """

    name: str
    headers: tuple[str, ...]
    prelude: str = ""
    stand_in: tuple[tuple[str, str], ...] = ()
    templates: Path | None = None


class CFunction(Struct, frozen=True, dict=True):
    """One C function of the generated code.

    Attributes:
        template: path under ``templates/`` of the template that renders the function.
        name: base of the C name, e.g. ``s8_conv2d__dsp_4x2``.
        spec: compile-time choices, in a fixed order.
        fields: all fields that its layer struct can have, in order.
        library: library that it calls; None if it calls none.
        calls: names of the library's functions that it calls.
        templates: folder of its template; None for the folder of its library, or microfold's own.
        only_layer: index of the layer that the function is made for. None if all layers with the same
            specification share it.
    """

    template: str
    name: str
    spec: tuple[tuple[str, SpecValue], ...] = ()
    fields: Fields = ()
    library: Library | None = None
    calls: tuple[str, ...] = ()
    templates: Path | None = None
    only_layer: int | None = None

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Selection counts functions often, so the hash leaves out the many fields, which rarely differ.
        return hash((self.template, self.name, self.spec, self.only_layer))


class KernelCall(Struct, frozen=True, eq=False):
    """One call of a function.

    The C call is ``function(&layer, inputs…, outputs…, scratch)``. Data inputs (see `Kernel.data_inputs`)
    and outputs are pointers. The call has no scratch argument if it needs no scratch.

    Attributes:
        parameters: values of the layer struct's fields, by name; exactly the fields that the function reads.
        scratch: arena memory needed only during the call, in bytes.
    """

    function: CFunction
    parameters: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    scratch: int = 0

    def __post_init__(self) -> None:
        """Raise DeclarationError if a parameter is not a declared field."""
        unknown = self.parameters.keys() - {field.name for field in self.function.fields}
        if unknown:
            names = ", ".join(sorted(unknown))
            raise DeclarationError(
                f"{self.function.name}: parameters must be declared fields; {names} are not: add them to the "
                "class attribute `fields` of the kernel, in the order of the struct"
            )

    @property
    def constants(self) -> dict[str, Constant]:
        return {name: p for name, p in self.parameters.items() if isinstance(p, Constant)}
