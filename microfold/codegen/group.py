"""Emitter of several programs: the C files of each, and their shared kernels, constants and arena."""

from __future__ import annotations

from collections.abc import Sequence

from microfold.codegen import provenance, requirements
from microfold.codegen.constants import constant_headers
from microfold.codegen.emit import emit_model, linker_fragment, render_file
from microfold.codegen.heads import in_section
from microfold.codegen.model import Model
from microfold.codegen.provenance import Build
from microfold.codegen.shared import Shared
from microfold.errors import InputError
from microfold.plan.overlap import align
from microfold.program import Program

# Size of the word that names the owner of the arena, in bytes.
WORD = 4


def arena_size(programs: Sequence[Program]) -> int:
    """Return the size of the shared arena in bytes: the largest program's arena and the owner word."""
    models = [Model(program) for program in programs]
    unit = models[0].alignment
    return align(max(model.arena_bytes for model in models) + WORD, unit)


def arena_room(size: int, unit: int) -> int:
    """Return the limit for each program's arena if the shared arena is limited to `size`, in bytes.

    Args:
        unit: alignment of the arena, in bytes.
    """
    return max(size // unit * unit - align(WORD, unit), 0)


def emit_group(shared: Shared) -> Build:
    """Return the C files of programs for one target, with the same options and a split arena.

    Raises:
        InputError: names collide.
    """
    name, programs = shared.name, shared.programs
    _check_names(name, [program.name for program in programs])
    files: dict[str, str] = {}
    for program in programs:
        files |= emit_model(program, shared)
    regions = programs[0].regions
    models = [Model(program, shared) for program in programs]
    parts = provenance.facts(programs[0]) | {
        "name": name,
        "macro": shared.macro,
        "shared": shared,
        "models": models,
        "model": models[0],  # for templates that depend only on the target
        "arena_memory": regions.arenas[0] if regions is not None else None,
    }
    files[f"{name}.h"] = render_file("group/arena.h.j2", parts)
    files |= _kernels(shared, parts)
    if regions is not None:
        files[f"{name}.ld"] = linker_fragment(regions.plan.memories, parts)
    return provenance.identify(files)


def _kernels(shared: Shared, parts: dict[str, object]) -> dict[str, str]:
    """Return the files that define and declare the shared functions and constants."""
    codes = [each.code for each in shared.functions.values()]
    types = requirements.helpers(sorted(shared.types))
    # The header defines the helpers that types need, even if function definitions also need them.
    helpers = [h for h in requirements.helpers([*codes, *(t.text for t in types)]) if h not in types]
    layers = [layer for program in shared.programs for layer in program.calls]
    features = [
        f for layer in layers if layer.call.function in shared.functions for f in layer.kernel.features
    ]
    headers = {h for each in shared.functions.values() for h in each.rendered.headers}
    headers |= {header for helper in helpers for header in helper.uses}
    arrays = shared.constants.arrays
    headers |= constant_headers(arrays)
    parts |= {
        "checks": requirements.feature_checks(features),
        "uses_fpu": any(requirements.uses_fpu(program) for program in shared.programs),
        "type_headers": sorted({header for helper in types for header in helper.uses}),
        "headers": sorted(headers),
        "arrays": arrays,
        # The templates' macros need these attributes of a `Model`.
        "constants": {
            "macro": shared.macro,
            "options": shared.programs[0].options,
            "aligned": False,
            "arrays": arrays,
        },
        "types": [shared.own(helper.text) for helper in types],
        "structs": [shared.own(each.types) for each in shared.functions.values() if each.types],
        "prototypes": [shared.own(each.prototype) for each in shared.functions.values()],
        "helpers": [shared.own(in_section(helper.text, shared.section)) for helper in helpers],
        "functions": [shared.own(code) for code in codes],
    }
    return {
        f"{shared.name}_kernels.h": render_file("group/kernels.h.j2", parts),
        f"{shared.name}_kernels.c": render_file("group/kernels.c.j2", parts),
    }


def _check_names(name: str, models: Sequence[str]) -> None:
    """Check that names cannot collide. Programs and the group use their own names as prefixes."""
    twice = sorted({each for each in models if models.count(each) > 1})
    if twice:
        raise InputError(
            f"models of one build must have different names; several are named {', '.join(twice)}: "
            "rename a file"
        )
    clashing = [each for each in models if each == name or each.startswith(f"{name}_")]
    if clashing:
        raise InputError(
            f"no model's name may start with the name of the common files, {name}; "
            f"{', '.join(clashing)} does: choose another --name"
        )
