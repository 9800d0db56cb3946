"""What programs of one build have in common: kernel functions that several call, constants that several read.

A function belongs here if several programs call it with the same specification, unless the choice of kernels
gave a layer a function of its own. Types of records belong here all: constants of one type may be handed to
shared functions and to those of a program's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from microfold.codegen.functions import RenderedFunction, render_named
from microfold.codegen.heads import exported
from microfold.codegen.names import HELPERS, rename
from microfold.codegen.requirements import closure_names
from microfold.codegen.shared_constants import SharedConstants, constant_bytes, shared_constants
from microfold.codegen.structs import definitions
from microfold.kernels.call import CFunction
from microfold.program import Program
from microfold.support.frozen import frozen


@frozen(eq=False)
class SharedFunction:
    """A kernel function that several programs call.

    Attributes:
        callers: names of these programs.
        prototype: for their files.
        code: what defines it.
    """

    rendered: RenderedFunction
    callers: tuple[str, ...]
    prototype: str
    code: str

    @property
    def types(self) -> str:
        """Its layer struct, if it has one."""
        return definitions(self.rendered.structs)


@frozen(eq=False)
class Shared:
    """What programs have in common.

    Attributes:
        name: what its names begin with: none of the programs' names does.
    """

    name: str
    programs: tuple[Program, ...]

    @property
    def macro(self) -> str:
        return self.name.upper()

    @property
    def section(self) -> str:
        """The macro for the place of the functions."""
        return f"{self.macro}_CODE_SECTION"

    @cached_property
    def functions(self) -> Mapping[CFunction, SharedFunction]:
        """In the order of their first use. No functions of single layers, nor those that call libraries."""
        callers: dict[CFunction, list[str]] = {}
        calls = [layer.call for program in self.programs for layer in program.calls]
        for program in self.programs:
            for function in dict.fromkeys(layer.call.function for layer in program.calls):
                callers.setdefault(function, []).append(program.name)
        found = [
            call
            for call in calls
            if call.function.library is None
            and call.function.only_layer is None
            and len(callers[call.function]) > 1
        ]
        narrow = self.programs[0].options.optimize != "speed"
        shared: dict[CFunction, SharedFunction] = {}
        for function, rendered in render_named(self.name, self.macro, found, narrow=narrow).items():
            prototype, code = exported(rendered.code, rendered.name, self.section)
            shared[function] = SharedFunction(rendered, tuple(callers[function]), prototype, code)
        return shared

    @cached_property
    def constants(self) -> SharedConstants:
        return shared_constants(self.name, self.programs, self.own)

    @property
    def weight_bytes(self) -> int:
        """Bytes of constants in flash."""
        return constant_bytes(self.programs)

    @cached_property
    def types(self) -> frozenset[str]:
        """Helpers that constants and shared functions have for types, with all that these need."""
        calls = [layer.call for program in self.programs for layer in program.calls]
        records = {constant.record for call in calls for constant in call.constants.values()}
        texts = [part for each in self.functions.values() for part in (each.types, each.prototype)]
        return frozenset(closure_names([*sorted(records), *texts]))

    def own(self, code: str, model: str = "") -> str:
        """The code with its helpers as those of a model, or else of the build; types are the build's."""

        def owned(name: str) -> str:
            return f"{self.name if name in self.types or not model else model}_{name}"

        return rename(code, HELPERS, owned)
