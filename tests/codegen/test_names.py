"""C names from tensor names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from microfold.codegen.names import Namer, c_identifier, short_name


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
