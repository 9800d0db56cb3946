"""Kernel functions and constants that several programs of one build share.

A function is shared if several programs call it with the same specification, unless kernel selection has
specialised it for one layer. All record types are shared, because constants of one type may be passed both to
shared functions and to functions of a single program.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct

from microfold.codegen.functions import RenderedFunction, render_named
from microfold.codegen.heads import exported
from microfold.codegen.names import HELPERS, rename
from microfold.codegen.requirements import closure_names
from microfold.codegen.shared_constants import SharedConstants, constant_bytes, shared_constants
from microfold.codegen.structs import definitions
from microfold.kernels.call import CFunction
from microfold.program import Program


class SharedFunction(Struct, frozen=True, eq=False):
    """A kernel function that several programs call.

    Attributes:
        callers: names of these programs.
        prototype: declaration for the files of these programs.
        code: definition.
    """

    rendered: RenderedFunction
    callers: tuple[str, ...]
    prototype: str
    code: str

    @property
    def types(self) -> str:
        """Definition of the layer struct, if any."""
        return definitions(self.rendered.structs)


class Shared(Struct, frozen=True, eq=False, dict=True):
    """Programs of one build, with the functions and constants that they share.

    Attributes:
        name: prefix of all shared names; no program's name starts with it.
    """

    name: str
    programs: tuple[Program, ...]

    @property
    def macro(self) -> str:
        return self.name.upper()

    @property
    def section(self) -> str:
        """Macro of the functions' section."""
        return f"{self.macro}_CODE_SECTION"

    @cached_property
    def functions(self) -> Mapping[CFunction, SharedFunction]:
        """Shared functions in order of first use, without functions for one layer and for libraries."""
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
        """Size of the constants of all programs in flash, in bytes."""
        return constant_bytes(self.programs)

    @cached_property
    def types(self) -> frozenset[str]:
        """Helpers that define types of constants and shared functions, and the helpers that these need."""
        calls = [layer.call for program in self.programs for layer in program.calls]
        records = {constant.record for call in calls for constant in call.constants.values()}
        texts = [part for each in self.functions.values() for part in (each.types, each.prototype)]
        return frozenset(closure_names([*sorted(records), *texts]))

    def own(self, code: str, model: str = "") -> str:
        """Return the code with helpers renamed for a model, or else for the build; types for the build."""

        def owned(name: str) -> str:
            return f"{self.name if name in self.types or not model else model}_{name}"

        return rename(code, HELPERS, owned)
