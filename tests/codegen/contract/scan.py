"""What Python declares of the C of kernels, compared with a scan of that C."""

from __future__ import annotations

import re

from microfold.codegen import requirements
from microfold.codegen.declarations import Rendered
from microfold.codegen.functions import render_functions
from microfold.program import Program

_HEADERS = {
    # Intrinsics are __name(...); what ends in __ is a keyword, and __builtin needs no header.
    "arm_acle.h": r"\b__(?!builtin_)[a-z]\w*(?<!__)\(|\bu?int(8x4|16x2)_t\b",
    "arm_mve.h": r"\bu?int(8x16|16x8|32x4|64x2)_t\b|\bfloat(32x4|16x8)_t\b|\bmve_pred16_t\b",
    "float.h": r"\bFLT_\w+\b",
    "math.h": r"\b(INFINITY|NAN|isnan|isinf|isfinite|signbit|(a?(cos|sin|tan)h?|atan2|cbrt|ceil|copysign|"
    r"erfc?|exp(2|m1)?|fabs|floor|fma|fmax|fmin|fmod|ldexp|log(2|10|1p)?|lrint|lround|nearbyint|pow|rint|"
    r"round|sqrt|trunc)f)\b|\b(exp|floor)\(",
    "stdbool.h": r"\b(bool|true|false)\b",
    "stddef.h": r"\b(size_t|ptrdiff_t|NULL)\b",
    "string.h": r"\bmem(cpy|set|move|cmp)\b",
}


def needed_headers(code: str) -> set[str]:
    """Standard headers that the code needs, besides stdint.h."""
    code = re.sub(r"/\*.*?\*/", "", code, flags=re.DOTALL)
    return {header for header, pattern in _HEADERS.items() if re.search(pattern, code)}


def unknown_helpers(code: str) -> set[str]:
    """Names like those of helpers, but for the assembler's macros, that no helper has."""
    code = re.sub(r"/\*.*?\*/", "", code, flags=re.DOTALL)
    macros = re.findall(r"\.macro (\w+)", code)
    return set(re.findall(r"\bmf_\w+", code)) - {*requirements.helper_names(), *macros}


def assert_declared(program: Program) -> None:
    """Functions and helpers declare exactly the headers that they need, and name only helpers that there are.

    Layers have no unread fields, and lines are indented.
    """
    functions = {f.name: Rendered(f.text, f.headers) for f in render_functions(program).values()}
    helpers = requirements.helpers([function.text for function in functions.values()])
    for name, part in (*functions.items(), *((part.text, part) for part in helpers)):
        assert not unknown_helpers(part.text), name
        needed = needed_headers(part.text)
        assert part.uses == needed, f"{name} declares {sorted(part.uses)}; it needs {sorted(needed)}"
        assert_indented(part.text)
    assert not unread_fields(program)


def assert_indented(code: str) -> None:
    """Lines are indented as deep as their braces, at least; labels of cases as their switch."""
    depth = 0
    code = re.sub(r'/\*.*?\*/|"[^"\n]*"', lambda m: re.sub(r"[{}]", "_", m.group()), code, flags=re.DOTALL)
    for number, line in enumerate(code.split("\n"), 1):
        text = line.lstrip()
        inside = depth - text.startswith(("}", "case ", "default:"))
        if text and not text.startswith(("#", "*")):
            assert len(line) - len(text) >= 4 * inside, f"line {number}: {line}"
        depth += line.count("{") - line.count("}")
    assert depth == 0


def unread_fields(program: Program) -> set[str]:
    """``function.field`` of each field that no line behind the struct reads, or that the struct lacks.

    What is the same in all calls may be in the code instead, with a comment that names it.
    """
    found: set[str] = set()
    rendered = render_functions(program)
    for function in {layer.call.function for layer in program.calls}:
        calls = [layer.call for layer in program.calls if layer.call.function == function]
        text = rendered[function].text
        head, _, code = text.partition(f"}} {rendered[function].name}_layer;")
        read = set(re.findall(r"\blayer->(\w+)", code))
        for field in calls[0].parameters:
            name = field.rpartition(".")[2]
            in_struct = name in read and re.search(rf"\b{name};", head)
            common = len(calls) > 1 and len({call.parameters[field] for call in calls}) == 1
            if not in_struct and not (common and f"/* {name} */" in code):
                found.add(f"{function.name}.{field}")
    return found
