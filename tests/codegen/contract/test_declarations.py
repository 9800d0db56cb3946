"""The tag by which templates say what their C needs."""

from __future__ import annotations

from microfold.codegen.declarations import split
from microfold.codegen.environment import environment

SOURCE = """\
{% macro call(name) %}
{% uses "string.h" if name == "memcpy" else "" %}
    {{ name }}(a, b, c);
{% endmacro %}
{% uses "stddef.h", "math.h" %}
{{ call(name) | trim }}
"""


def test_marks_are_taken_out() -> None:
    template = environment().from_string(SOURCE)
    rendered = split(template.render(name="memcpy"))
    assert rendered.text == "memcpy(a, b, c);\n"
    assert rendered.uses == {"stddef.h", "math.h", "string.h"}
    assert split(template.render(name="mf_copy")).uses == {"stddef.h", "math.h"}
