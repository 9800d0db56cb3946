"""Fields of layers that generated code has no use for: they would be in flash for every layer."""

from __future__ import annotations

import re

from microfold.codegen.functions import render_functions
from microfold.program import Program


def unread_fields(program: Program) -> set[str]:
    """``function.field`` of each field that no line behind the struct reads, or that the struct lacks."""
    found: set[str] = set()
    rendered = render_functions(program)
    for function in {layer.call.function for layer in program.layers}:
        fields = {
            n for layer in program.layers if layer.call.function == function for n in layer.call.parameters
        }
        text = rendered[function].text
        head, _, code = text.partition(f"}} {rendered[function].name}_layer;")
        read = set(re.findall(r"\blayer->(\w+)", code))
        for field in fields:
            name = field.rpartition(".")[2]
            if name not in read or not re.search(rf"\b{name};", head):
                found.add(f"{function.name}.{field}")
    return found
