"""Program to C text."""

from __future__ import annotations

import re
from collections.abc import Mapping

from microfold.codegen import helpers_header, provenance, requirements
from microfold.codegen.environment import render
from microfold.codegen.layout import wrap_code
from microfold.codegen.model import Model
from microfold.codegen.provenance import Build
from microfold.program import Program


def emit(program: Program) -> dict[str, str]:
    """The C files of a program: file name to text. Equal programs give equal bytes."""
    return dict(emit_build(program).files)


def emit_build(program: Program) -> Build:
    """The C files of a program, and the identity that they share."""
    model = Model(program)
    functions = [function.text for function in model.functions.values()]
    records = requirements.helpers(sorted({array.record for array in model.arrays if array.record}))
    copies = ["mf_copy_block"] if program.state else []
    helpers = requirements.helpers([*functions, *(record.text for record in records), *copies])
    preludes = [
        render(library.prelude, {}, library.templates) for library in program.libraries if library.prelude
    ]
    parts = provenance.facts(program) | {
        "model": model,
        "preludes": [prelude.text.strip() for prelude in preludes],
        "functions": functions,
        "records": [record.text for record in records],
        # With weights in a file of their own, its header defines the record types.
        "helpers": [h.text for h in helpers if program.options.single_file or h not in records],
        "checks": requirements.feature_checks(f for layer in program.layers for f in layer.kernel.features),
        "needs": requirements.needs(program),
        "uses_fpu": requirements.uses_fpu(program),
        "weight_headers": sorted(model.constant_headers),
    }
    name = program.name
    single = program.options.single_file
    headers = set(render("model/source.c.j2", parts | {"headers": []}).uses) | model.field_headers
    headers |= {header for function in model.functions.values() for header in function.headers}
    headers |= {header for part in (*helpers, *preludes) for header in part.uses}
    if single:
        headers |= model.constant_headers
    files = {
        f"{name}.h": _render("model/header.h.j2", parts),
        f"{name}_helpers.h": _render("model/helpers.h.j2", parts | helpers_header.variables(model)),
        f"{name}.c": _render("model/source.c.j2", parts | {"headers": sorted(headers)}),
    }
    if not single:
        files[f"{name}_weights.h"] = _render("model/weights.h.j2", parts)
        files[f"{name}_weights.c"] = _render("model/weights.c.j2", parts)
    return provenance.identify(files)


def stand_ins(program: Program) -> dict[str, str]:
    """Files that take the place of libraries where the code is only tried out: file name to text.

    None if the options say where the libraries are.
    """
    if program.options.external_flags:
        return {}
    return {
        name: render(template, {}, library.templates).text
        for library in program.libraries
        for name, template in library.stand_in
    }


def _render(template: str, parts: Mapping[str, object]) -> str:
    text = render(template, parts).text
    return wrap_code(re.sub(r"\n{3,}", "\n\n", text.strip() + "\n"))
