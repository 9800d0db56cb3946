"""Helpers, headers and checks that generated code brings along."""

from __future__ import annotations

import re

import pytest

from microfold.codegen.environment import template_source
from microfold.codegen.requirements import HELPER_FILES, feature_checks, helpers, standard_headers


@pytest.mark.parametrize(
    ("code", "headers"),
    [
        ("int32_t a = __smlad(x, y, z);", ["arm_acle.h"]),
        ("int8x16_t a = vldrbq_s8(p);", ["arm_mve.h"]),
        ('__asm__ volatile("nop"); __attribute__((unused)) int a = __builtin_clz(1);', []),
        ("float a = expf(x) + INFINITY;", ["math.h"]),
        ("memcpy(a, b, (size_t)n);", ["stddef.h", "string.h"]),
        ("/* memcpy, expf and true are only mentioned */", []),
        ("int32_t shift = half(shiftf);", []),
    ],
)
def test_headers(code: str, headers: list[str]) -> None:
    assert standard_headers(code) == headers


def test_helpers_bring_theirs_along_in_definition_order() -> None:
    found = helpers(["x = mf_requantize_general(sum, channel);"])
    names = [re.findall(r"\b(mf_\w+)(?=\(|;)", text)[0] for text in found]
    assert "mf_multiply_by_quantized_multiplier" in names and names[-1] == "mf_requantize_general"
    assert helpers(["nothing"]) == []


def test_every_helper_defines_its_name() -> None:
    names = [
        name for path in HELPER_FILES for name in re.findall(r"{% *macro +(mf_\w+)\(", template_source(path))
    ]
    assert len(set(names)) == len(names)
    for name in names:
        definition = rf"^(.*\b{name}\(|}} {name};|#define {name}\b)"
        assert any(re.search(definition, text, re.MULTILINE) for text in helpers([name])), name


def test_checks() -> None:
    assert [what for what, _ in feature_checks(["mve", "dsp", "fpu"])] == [
        "DSP instructions",
        "integer vectors (MVE)",
    ]
    assert feature_checks([]) == []


def test_a_helper_has_one_definition() -> None:
    names = [
        name for path in HELPER_FILES for name in re.findall(r"{% *macro +(mf_\w+)\(", template_source(path))
    ]
    assert sorted(names) == sorted(set(names))
