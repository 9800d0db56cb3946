"""What messages call values."""

from __future__ import annotations

import pytest

from microfold.ir.node import BRIEF, Value, primary_name
from microfold.ir.types import DType, TensorType
from tests.command_line import refuse
from tests.counts import MODELS


@pytest.mark.parametrize(
    ("name", "brief"),
    [
        ("conv", "conv"),
        ("net/relu;net/mul;net/conv/BiasAdd;net/conv/Conv2D;7", "net/conv/BiasAdd"),
        ("net/relu/Relu;net/mul", "net/relu/Relu"),
        ("3;4", "3;4"),
        ("", ""),
        ("a" * 50 + "b" * 50, "a" * 30 + "…" + "b" * 29),
        ("a" * BRIEF, "a" * BRIEF),
    ],
)
def test_brief(name: str, brief: str) -> None:
    assert Value(name, TensorType(DType.INT8, (1,))).short_name == brief


def test_primary() -> None:
    assert primary_name("1;2") == ""


def test_messages_of_budgets() -> None:
    """A tensor whose name joins eight."""
    text = refuse("build", MODELS["dscnn_bn_int8"], "-t", "cortex-m4", "--ram", "1000")
    assert "layer 2 (conv2d) 'sequential_1_1/conv2d_3_1/BiasAdd' alone needs" in text
