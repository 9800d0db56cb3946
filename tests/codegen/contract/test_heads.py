"""What is found of the functions in C of templates."""

from __future__ import annotations

import pytest

from microfold.codegen.heads import heads, in_section, kept_apart, parameter_types

CODE = """\
static const int8_t table[2] = {
    static_cast(1),
};

static int32_t forward(void);

static inline mf_sum *first(const mf_layer *layer, const int8_t *const *input,
                            int8_t *output)
{
    static int8_t seen;
}
static void second(void)
{
}
"""


def test_heads() -> None:
    assert [(head.name, head.text.count("\n")) for head in heads(CODE)] == [("first", 1), ("second", 0)]


def test_types_of_parameters() -> None:
    assert parameter_types(CODE, "first") == ("const mf_layer *", "const int8_t *const *", "int8_t *")
    with pytest.raises(ValueError, match="forward is not"):
        parameter_types(CODE, "forward")


def test_every_function_gets_its_section() -> None:
    lines = in_section(CODE, "FAST").split("\n")
    assert [lines[i + 1][:13] for i, line in enumerate(lines) if line == "FAST"] == [
        "static inline",
        "static void s",
    ]
    assert "\n".join(line for line in lines if line != "FAST") == CODE


def test_one_function_is_kept_apart() -> None:
    assert kept_apart(CODE, "second", "apart") == CODE.replace(
        "static void second", "static apart void second"
    )
    assert kept_apart(CODE, "forward", "apart") == CODE
