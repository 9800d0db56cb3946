"""Constant propagation: layer fields that have equal values in all calls become literals in the function.

A function with a single call keeps its fields, because C compilers propagate them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from microfold.codegen.heads import heads
from microfold.codegen.literals import literal
from microfold.kernels.call import KernelCall

_COMMENT = r"/\*.*?\*/"


def common_fields(name: str, calls: Sequence[KernelCall], code: str) -> dict[str, int]:
    """Return the fields that become literals, each with its value in all calls.

    Fields with a declared type stay, and so do fields whose address is taken. All fields stay if the function
    copies its layer struct or uses it by another name. At least one field stays, because C has no empty
    structs.

    Args:
        name: C name of the function.
        calls: all calls of the function.
        code: C code of the function.
    """
    parameters = calls[0].parameters
    if len(calls) < 2 or any("." in field for field in parameters) or _named_otherwise(name, code):
        return {}
    declared = {field.name for field in calls[0].function.fields if field.c_type}
    common = {
        field: value
        for field, value in parameters.items()
        if isinstance(value, int)
        and field not in declared
        and all(call.parameters.get(field) == value for call in calls)
        and not re.search(rf"&layer->{field}\b", code)
    }
    return common if len(common) < len(parameters) else {}


def _named_otherwise(name: str, code: str) -> bool:
    """Return whether the code copies a layer struct, or uses one by another name than ``layer``."""
    variables = set(re.findall(rf"\b{name}_layer\b[ *]*(\w+)", code))
    return variables != {"layer"} or "(*layer)" in code or "= *layer;" in code


def without_fields(calls: Sequence[KernelCall], common: Mapping[str, int]) -> list[KernelCall]:
    """Return the calls without the fields that become literals."""
    return [
        replace(call, parameters={f: v for f, v in call.parameters.items() if f not in common})
        for call in calls
    ]


def put_in_code(code: str, common: Mapping[str, int]) -> str:
    """Return the code with literals in place of the fields, and unused layer parameters marked as such."""
    if not common:
        return code

    def number(match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        text = literal(common[match[1]])
        return f"{f'({text})' if text.startswith('-') else text} /* {match[1]} */"

    code = re.sub(rf"{_COMMENT}|\blayer->({'|'.join(common)})\b", number, code, flags=re.DOTALL)
    parts: list[str] = []
    done = 0
    for head in heads(code):
        begin = code.index("{\n", head.start) + 2
        body = re.sub(_COMMENT, "", code[begin : code.index("\n}", begin - 1)], flags=re.DOTALL)
        if "_layer *layer" in head.text and not re.search(r"\blayer\b", body):
            parts += [code[done:begin], "    (void)layer;\n"]
            done = begin
    return "".join([*parts, code[done:]])
