"""A call of a C function: which function, with which numbers and packed constants.

Compile-time choices are the `CFunction`'s specification; layers with equal ones share a function, if each
is not to have its own.
The numbers and constants of one layer are the `KernelCall`'s parameters: a `const` struct in flash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path

from microfold.ir.types import Array
from microfold.kernels.fields import Fields
from microfold.support.frozen import frozen

SpecValue = int | str | bool | tuple[int, ...] | tuple[tuple[int, ...], ...]


@frozen(eq=False)
class Constant:
    """A packed constant.

    Attributes:
        label: ends its name in the generated C, e.g. ``conv1_weights``.
        record: C struct type of one row (a helper of ``templates/simd``); empty for plain elements.
        members: how many numbers of a row are in each member of the struct: more than one in a struct or an
            array, whose braces compilers want to see; empty: one in each.
        alignment: its address is a multiple of this many bytes; 1: what the elements need.
    """

    label: str
    array: Array
    record: str = ""
    members: tuple[int, ...] = ()
    alignment: int = 1


# None: a pointer to nothing, whose field declares its type.
Parameter = int | float | Constant | None


@frozen
class Library:
    """Code that is not generated, and that the firmware must link.

    Attributes:
        name: what people call it, with the versions that fit, e.g. ``CMSIS-NN 7.0.0 or later``.
        headers: to include.
        prelude: template under ``templates/`` of what stands behind the includes; empty for nothing.
        stand_in: templates, by the names of the files they give, of code that takes the library's place where
            there is none: on the host and on simulated cores.
        templates: folder where its templates and those of its functions are; None: those of microfold.
    """

    name: str
    headers: tuple[str, ...]
    prelude: str = ""
    stand_in: tuple[tuple[str, str], ...] = ()
    templates: Path | None = None


@frozen
class CFunction:
    """One C function of the generated code.

    Attributes:
        template: path under ``templates/``; renders the function.
        name: base of the C name, e.g. ``s8_conv2d__dsp_4x2``.
        spec: compile-time choices, in a fixed order.
        fields: all that its layer struct can have, in order.
        library: what it calls; None if it stands for itself.
        calls: names of the library's functions that it calls.
        templates: folder where its template is; None: that of its library, or of microfold.
        only_layer: index of the layer that it is for, where others have the same specification; None: all of
            them share it.
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
        # Fields are many, and hardly tell functions apart: selection counts functions again and again.
        return hash((self.template, self.name, self.spec, self.only_layer))


@frozen(eq=False)
class KernelCall:
    """One call of a function.

    The C call is ``function(&layer, inputs…, outputs…, scratch)``: data inputs (see `Kernel.data_inputs`)
    and outputs as pointers, scratch only if there is any.

    Attributes:
        parameters: what the fields of the layer struct hold, by name: exactly those that the function reads.
        scratch: bytes of arena needed only during the call.
    """

    function: CFunction
    parameters: Mapping[str, Parameter] = field(default_factory=dict[str, Parameter])
    scratch: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError if a parameter is no declared field."""
        unknown = self.parameters.keys() - {field.name for field in self.function.fields}
        if unknown:
            names = ", ".join(sorted(unknown))
            raise ValueError(f"{self.function.name}: parameters must be declared fields; {names} are not")

    @property
    def constants(self) -> dict[str, Constant]:
        return {name: p for name, p in self.parameters.items() if isinstance(p, Constant)}
