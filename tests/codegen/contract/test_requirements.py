"""Helpers, headers and checks that generated code brings along."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from microfold import target
from microfold.codegen.environment import template_source
from microfold.codegen.requirements import HELPER_FILES, feature_checks, helper_names, helpers, needs
from microfold.compiler import compile_file
from tests.codegen.contract.scan import needed_headers, unknown_helpers


def _texts(code: str) -> list[str]:
    """Of the helpers that the code uses."""
    return [helper.text for helper in helpers([code])]


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
def test_scan_for_headers(code: str, headers: list[str]) -> None:
    assert sorted(needed_headers(code)) == headers


def test_every_helper_declares_its_headers() -> None:
    for name in helper_names():
        for helper in helpers([name]):
            assert helper.uses == needed_headers(helper.text), helper.text


def test_scan_for_unknown_helpers() -> None:
    code = ".macro mf_step weight\nmf_step s2 /* mf_gone */ mf_clamp(mf_channels, 0, 1);"
    assert unknown_helpers(code) == {"mf_channels"}
    assert not any(unknown_helpers(helper.text) for helper in helpers(helper_names()))


def test_helpers_bring_theirs_along_in_definition_order() -> None:
    texts = [helper.text for helper in helpers(["x = mf_requantize_general(sum, channel);"])]
    names = [re.findall(r"\b(mf_\w+)(?=\(|;)", text)[0] for text in texts]
    assert "mf_multiply_by_quantized_multiplier" in names and names[-1] == "mf_requantize_general"
    assert helpers(["nothing"]) == []


def test_every_helper_defines_its_name() -> None:
    names = [
        name for path in HELPER_FILES for name in re.findall(r"{% *macro +(mf_\w+)\(", template_source(path))
    ]
    assert len(set(names)) == len(names)
    for name in names:
        definition = rf"^(.*\b{name}\(|}} {name};|#define {name}\b)"
        assert any(re.search(definition, text, re.MULTILINE) for text in _texts(name)), name


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


def test_helpers_beside_assembly_are_hidden_where_it_is() -> None:
    """Each condition names what may lack: some compilers warn of helpers that nothing uses."""
    (guarded,) = [text for text in _texts("mf_expand_planes") if "mf_expand_pair(" in text][:1]
    condition = guarded.split("\n")[0]
    assert condition == "#if !mf_assembly || !mf_unaligned_assembly"
    fpu = "#if mf_fpu_assembly\nasm();\n#else\nmf_ssat16(x);\n#endif"
    condition = _texts(fpu)[-1].split("\n")[0]
    assert condition == "#if !mf_assembly || !mf_fpu_assembly"


def test_helpers_of_assembly_that_stands_in_for_assembly() -> None:
    """Used only where there is neither a floating-point unit nor unaligned access."""
    inner = "#if !mf_unaligned_assembly\nmf_expand_pair(x);\n#endif"
    both = f"#if mf_fpu_assembly\nasm();\n#else\n{inner}\n#endif"
    (text,) = [text for text in _texts(both) if "mf_expand_pair(" in text]
    condition = text.split("\n")[0]
    assert condition.endswith("|| !(mf_unaligned_assembly || mf_fpu_assembly)")


def test_needs() -> None:
    digits = Path(__file__).resolve().parents[3] / "examples" / "digits" / "digits.tflite"
    found = {core: needs(compile_file(digits, target.load(core))) for core in ("cortex-m4", "cortex-m4-nofp")}
    assert found["cortex-m4"][0] == found["cortex-m4-nofp"][0] == "DSP instructions"
    assert any("an FPU is recommended" in text for text in found["cortex-m4"])
    assert not any("an FPU is recommended" in text for text in found["cortex-m4-nofp"])
    for core, texts in found.items():
        assert any("CCR.UNALIGN_TRP" in text for text in texts)
        assert any(" ".join(target.load(core).cpu_flags) in text for text in texts)
    assert needs(compile_file(digits, target.load("host"))) == ["a C99 compiler"]
