"""Emitter of the C files of a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from microfold.codegen import blob, helpers_header, provenance, requirements, stack_size
from microfold.codegen.environment import render
from microfold.codegen.fetching import fetched_bytes
from microfold.codegen.heads import in_section, kept_apart
from microfold.codegen.layout import few_blank_lines, wrap_code
from microfold.codegen.model import Model
from microfold.codegen.provenance import Build
from microfold.codegen.shared import Shared
from microfold.kernels.call import CFunction
from microfold.program import Program
from microfold.target.memories import TargetMemory


def emit(program: Program) -> dict[str, str]:
    """Return the C files of a program: file name to text. Equal programs have equal bytes."""
    return dict(emit_build(program).files)


def emit_build(program: Program) -> Build:
    """Return the C files of a program, with their common build id."""
    model = Model(program)
    parts = model_parts(model)
    around = {f"{program.name}_helpers.h": _helpers(model, parts)}
    if model.regions is not None:
        around[f"{program.name}.ld"] = linker_fragment(model.regions.plan.memories, parts)
    if model.blob:
        return _emit_blob(model, parts, around)
    return provenance.identify(_own_files(model, parts) | around)


def emit_model(program: Program, shared: Shared) -> dict[str, str]:
    """Return the files of one of several programs, with a placeholder for the build id."""
    model = Model(program, shared)
    parts = model_parts(model)
    return _own_files(model, parts) | {f"{program.name}_helpers.h": _helpers(model, parts)}


def model_parts(model: Model) -> dict[str, object]:
    """Return the variables for the templates of a model's files."""
    program, shared = model.program, model.shared
    functions = [function.text for function in model.own_functions.values()]
    records = requirements.helpers(sorted({array.record for array in model.arrays if array.record}))
    copies = ["mf_copy_block"] if program.state or program.moves else []
    copies += ["mf_copy_bytes"] if program.stream is not None and program.stream.copies_within else []
    copies += ["mf_noinline"] if any(_is_apart(model, function) for function in model.own_functions) else []
    helpers = requirements.helpers([*functions, *(record.text for record in records), *copies])
    if shared is not None:  # record types are in the header of the shared kernels
        types = requirements.helpers(sorted(shared.types))
        helpers, records = [h for h in helpers if h not in types], []
    preludes = [
        render(library.prelude, {}, library.templates) for library in program.libraries if library.prelude
    ]
    single = program.options.single_file
    parts = provenance.facts(program) | {
        "magic": blob.MAGIC,
        "format": blob.FORMAT,
        "layout_id": ("", ""),
        "port_names": True,
        "model": model,
        "preludes": [prelude.text.strip() for prelude in preludes],
        "functions": [model.own(_placed(model, function)) for function in model.own_functions],
        "records": [model.own(record.text) for record in records],
        # If weights have a separate file, its header defines the record types.
        "helpers": [
            model.own(in_section(h.text, f"{model.macro}_CODE_SECTION"))
            for h in helpers
            if single or model.blob or h not in records
        ],
        "checks": requirements.feature_checks(f for layer in program.calls for f in layer.kernel.features),
        "needs": requirements.needs(program),
        "stack_size": stack_size.definition(program),
        "uses_fpu": requirements.uses_fpu(program),
        "weight_headers": sorted(model.constants.headers),
    }
    headers = set(render("model/source.c.j2", parts | {"headers": []}).uses) | model.field_headers
    headers |= {header for function in model.own_functions.values() for header in function.headers}
    headers |= model.stream.headers if model.stream is not None else frozenset()
    headers |= {header for part in (*helpers, *preludes) for header in part.uses}
    if single:
        headers |= model.constants.headers
    parts["headers"] = sorted(headers)
    return parts


def _helpers(model: Model, parts: Mapping[str, object]) -> str:
    return render_file("model/helpers.h.j2", {**parts, **helpers_header.variables(model)})


def _own_files(model: Model, parts: Mapping[str, object]) -> dict[str, str]:
    """Return the files with the code and the constants."""
    name = model.name
    files = _code(name, parts)
    if not model.options.single_file:
        files[f"{name}_weights.h"] = render_file("model/weights.h.j2", parts)
        files[f"{name}_weights.c"] = render_file("model/weights.c.j2", parts)
    return files


def linker_fragment(memories: Sequence[TargetMemory], parts: Mapping[str, object]) -> str:
    """Return the linker script fragment for the target's memories."""
    variables = {
        "memories": memories,
        "regions": {memory.name: memory.region for memory in memories},
        "loaded": [memory for memory in memories if memory.load],
    }
    return few_blank_lines(render("model/regions.ld.j2", {**parts, **variables}).text.strip() + "\n")


def _code(name: str, parts: Mapping[str, object]) -> dict[str, str]:
    return {
        f"{name}.h": render_file("model/header.h.j2", parts),
        f"{name}.c": render_file("model/source.c.j2", parts),
    }


def _emit_blob(model: Model, parts: Mapping[str, object], around: Mapping[str, str]) -> Build:
    """Return the files without constants, and the blob with the constants.

    Args:
        around: files that do not affect how the code uses the constants.
    """
    # Provenance, taps and the stack size must not change the layout id.
    nameless = {"origin": None, "version": "", "license": "", "port_names": False, "stack_size": ""}
    nameless |= {"model": Model(model.program.without_trace)}
    layout = blob.layout_id(model.name, _code(model.name, {**parts, **nameless}))
    words = tuple(f"0x{word:08x}u" for word in (layout & 0xFFFFFFFF, layout >> 32))
    build = provenance.identify({**_code(model.name, {**parts, "layout_id": words}), **around})
    placed = [
        (place.offset, a.array) for place, a in zip(model.constants.blob_places, model.arrays, strict=True)
    ]
    content = blob.pack(placed, model.constants.blob_size, layout, int(build.id.rstrip("u"), 16))
    return replace(build, blob=content)


def _placed(model: Model, function: CFunction) -> str:
    """Return a function with the attribute of its section: its own, or the section of the model's code."""
    name, text = model.functions[function].name, model.functions[function].text
    own = model.code_sections.get(function)
    text = in_section(text, f'{model.macro}_PLACED("{own}")' if own else f"{model.macro}_CODE_SECTION")
    return kept_apart(text, name, "mf_noinline") if _is_apart(model, function) else text


def _is_apart(model: Model, function: CFunction) -> bool:
    """Return whether a function must not be inlined: it has a section, or its stack frame would add up."""
    return function in model.code_sections or function.only_layer is not None


def stand_ins(program: Program) -> dict[str, str]:
    """Return substitutes for firmware and libraries, to compile the code on its own: file name to text.

    If `external_flags` are set, the real libraries are used instead.
    """
    found: dict[str, str] = {}
    if any(fetched_bytes(program, layer) for layer in program.layers):
        found[f"{program.name}_prefetch.c"] = render("host/prefetch.c.j2", {"name": program.name}).text
    if program.options.external_flags:
        return found
    return found | {
        name: render(template, {}, library.templates).text
        for library in program.libraries
        for name, template in library.stand_in
    }


def render_file(template: str, parts: Mapping[str, object]) -> str:
    """Render a C file, and break its long lines."""
    text = render(template, parts).text
    return wrap_code(few_blank_lines(text.strip() + "\n"))
