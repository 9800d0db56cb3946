"""C names from tensor names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microfold.codegen.names import Namer, c_identifier, names_in, own_helpers, short_name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("model/activation/Relu;model/bn/FusedBatchNormV3;model/conv2d_1/BiasAdd;model/x/Conv2D", "conv2d_1"),
        ("model_1/block_1_expand_relu/Relu6;model_1/block_3_depthwise/depthwise", "block_1_expand_relu"),
        ("StatefulPartitionedCall:0", "statefulpartitionedcall"),
        ("dense/MatMul", "dense"),
        ("Relu", "relu"),
        ("", "model"),
        ("3x3", "m_3x3"),
        ("float", "m_float"),
    ],
)
def test_telling_part(text: str, name: str) -> None:
    assert short_name(text) == name


@given(st.lists(st.text(max_size=60), max_size=12))
def test_names_are_unique_identifiers(texts: list[str]) -> None:
    namer = Namer()
    names = [namer.unique(text) for text in texts]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name.isascii() and name == name.lower() for name in names)


@given(st.text())
def test_identifiers_never_start_with_a_digit_or_are_keywords(text: str) -> None:
    name = c_identifier(text)
    assert name.isidentifier()
    assert name not in ("int", "while", "struct")


@pytest.mark.parametrize(
    ("code", "own", "names"),
    [
        ("mf_clamp(mf_clamp)", "kws_mf_clamp(kws_mf_clamp)", {"mf_clamp"}),
        ("x = mf_a+mf_b2", "x = kws_mf_a+kws_mf_b2", {"mf_a", "mf_b2"}),
        ("kws_mf_a, amf_b, mf_, mf_mf_c", "kws_mf_a, amf_b, mf_, kws_mf_mf_c", {"mf_mf_c"}),
        ("", "", set()),
    ],
)
def test_helpers_are_whole_identifiers(code: str, own: str, names: set[str]) -> None:
    assert own_helpers("kws", code) == own
    assert names_in(code, "mf_") == names
