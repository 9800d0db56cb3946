"""Numbers that are the same in all calls of a function: they are in its code rather than in the layers.

Of a function with a single call they stay in its layer, which compilers put into the code themselves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from microfold.codegen.heads import heads
from microfold.codegen.literals import literal
from microfold.kernels.call import KernelCall

_COMMENT = r"/\*.*?\*/"


def common_fields(name: str, calls: Sequence[KernelCall], code: str) -> dict[str, int]:
    """The fields that the code can do without, and the value that each has in all calls.

    Those with a declared type stay, as do all fields of functions that write to layers or hand parts of them
    on. Some field is left, since C has no empty structs.

    Args:
        name: of the function in C.
        calls: all calls of the function.
        code: the function.
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
    """Whether there are layers that are not called so, or copies of them."""
    variables = set(re.findall(rf"\b{name}_layer\b[ *]*(\w+)", code))
    return variables != {"layer"} or "(*layer)" in code or "= *layer;" in code


def without_fields(calls: Sequence[KernelCall], common: Mapping[str, int]) -> list[KernelCall]:
    """The calls as their layers are."""
    return [
        replace(call, parameters={f: v for f, v in call.parameters.items() if f not in common})
        for call in calls
    ]


def put_in_code(code: str, common: Mapping[str, int]) -> str:
    """The code with numbers where it read fields; functions that read nothing else of a layer say so."""
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
