"""Options of operators: enumerations, counts and numbers out of range are refused, not guessed."""

from __future__ import annotations

import pytest

from microfold.errors import UnsupportedModelError
from microfold.frontend.schema import _ENUMERATIONS, members
from microfold.frontend.tflite import import_model
from tests.frontend import fields, models

OPS = [name for name in models.made() if name.startswith("ops/") and name.endswith(("_int8", "_f32"))]


def refusal(data: bytes) -> str:
    with pytest.raises(UnsupportedModelError) as refused:
        import_model(data)
    return str(refused.value)


def compiles(data: bytes) -> bool:
    try:
        import_model(data)
    except UnsupportedModelError:
        return False
    return True


def test_every_enumeration_of_every_operator() -> None:
    changed: set[tuple[str, str]] = set()
    for name in OPS:
        data = fields.made(name)
        kind, table = fields.options(data, 0)
        if table is None or not compiles(data):
            continue
        for field in _ENUMERATIONS:
            if not hasattr(type(table), field):
                continue
            for value in (-1, max(members(_ENUMERATIONS[field])) + 1, 99):
                try:
                    damaged = fields.with_field(data, table, field, value)
                except fields.Absent:
                    break
                assert "must be one of 0 (" in refusal(damaged), (name, field, value)
                changed.add((kind, field))
    assert len(changed) > 8
    assert {field for _, field in changed} >= {"Padding", "FusedActivationFunction", "Mode", "OutputType"}


@pytest.mark.parametrize(
    ("name", "code", "field", "values", "message"),
    [
        ("unpack_int8", "UNPACK", "Num", (-1, 0, 2, 99), "num must be the number of its outputs"),
        ("pack_int8", "PACK", "ValuesCount", (-1, 0, 1, 99), "values_count must be the number of its inputs"),
        ("split_int8", "SPLIT", "NumSplits", (-1, 0, 2, 99), "num_splits must be the number of its outputs"),
        ("argmax_f32", "ARG_MAX", "OutputType", (0, 4, 9), "output_type must be the type of its output"),
        ("conv_dil_int8", "CONV_2D", "DilationHFactor", (-2, 0), "dilations must be positive"),
        ("conv_dil_int8", "CONV_2D", "DilationWFactor", (-(1 << 31), 0), "dilations must be positive"),
        ("conv_int8", "CONV_2D", "StrideH", (-1, 0), "strides must be positive"),
        ("dw_m2s2_int8", "DEPTHWISE_CONV_2D", "StrideW", (-1, 0), "strides must be positive"),
        ("maxpool3same_int8", "MAX_POOL_2D", "FilterHeight", (-3, 0), "filter sizes must be positive"),
        ("avgpool2_int8", "AVERAGE_POOL_2D", "FilterWidth", (-3, 0), "filter sizes must be positive"),
        ("dw_m2s2_int8", "DEPTHWISE_CONV_2D", "DepthMultiplier", (-1, 1, 3), "depth_multiplier must be 0 or"),
        ("sslice_int8", "STRIDED_SLICE", "BeginMask", (-1, 1 << 4), "at most a bit for each of 4"),
        ("s2d_f32", "SPACE_TO_DEPTH", "BlockSize", (-1, 0, 3, 1 << 20), "block"),
        ("softmax_f32", "SOFTMAX", "Beta", (0.0, -1.0, float("inf"), float("nan")), "beta must be"),
        ("leaky_relu_f32", "LEAKY_RELU", "Alpha", (float("inf"), float("nan")), "alpha must be a finite"),
    ],
)  # fmt: skip
def test_numbers_of_options(
    name: str, code: str, field: str, values: tuple[float, ...], message: str
) -> None:
    assert compiles(fields.made(f"ops/{name}"))
    for value in values:
        assert message in refusal(fields.with_option(f"ops/{name}", code, field, value)), value


def test_a_depth_multiplier_of_0_says_nothing() -> None:
    """The shapes decide: LiteRT does not read the field."""
    data = fields.with_option("ops/dw_m2s2_int8", "DEPTHWISE_CONV_2D", "DepthMultiplier", 0)
    expected = import_model(fields.made("ops/dw_m2s2_int8"))
    assert [node.op for node in import_model(data).nodes] == [node.op for node in expected.nodes]


@pytest.mark.parametrize("name", ["conv_int8", "add_int8", "softmax_f32", "pack_int8", "gather_f32"])
def test_options_of_another_operator(name: str) -> None:
    data = fields.made(f"ops/{name}")
    for other in (0, 5, 105):
        damaged = fields.with_field(data, fields.operator(data), "BuiltinOptionsType", other)
        assert "its options must be " in refusal(damaged)


def test_all_problems_at_once() -> None:
    data = fields.made("cnn_int8")
    for code in ("CONV_2D", "MAX_POOL_2D"):
        data = fields.with_field(data, fields.options(data, fields.find(data, code))[1], "StrideH", 0)
    message = refusal(data)
    assert "CONV_2D" in message
    assert "MAX_POOL_2D" in message
    assert message.count("strides must be positive") == 2
