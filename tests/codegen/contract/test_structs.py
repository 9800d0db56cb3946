"""Layer structs: the declared fields that calls have parameters for."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from microfold.codegen.environment import template_source
from microfold.codegen.structs import definitions, layer_structs
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.fields import Field, Fields, declare, inner_fields
from microfold.support import resources

FIELDS = declare(
    Field("weights", "[outputs][inputs]"),
    "channels",
    Field("scale", "of the input"),
    "count",
    Field("step", "bytes"),
    Field("fill", c_type="uint8_t"),
)
WEIGHTS = Constant("weights", np.zeros((2, 3), np.int8))
CHANNELS = Constant("channels", np.zeros((2, 4), np.int32), record="mf_channel")


def _structs(*calls: Mapping[str, Parameter], fields: Fields = FIELDS, narrow: bool = False) -> str:
    function = CFunction("t", "f", (), fields)
    return definitions(layer_structs("f_1", [KernelCall(function, call) for call in calls], narrow=narrow))


def test_types_follow_from_values_and_order_from_the_declaration() -> None:
    text = _structs(
        {"step": 7, "fill": 3, "count": 70000, "scale": 0.5, "channels": CHANNELS, "weights": WEIGHTS}
    )
    assert text == "\n".join(
        [
            "typedef struct {",
            "    const int8_t *weights; /* [outputs][inputs] */",
            "    const mf_channel *channels;",
            "    float scale; /* of the input */",
            "    int32_t count;",
            "    int32_t step; /* bytes */",
            "    uint8_t fill;",
            "} f_1_layer;",
        ]
    )


def test_fields_without_parameters_are_left_out() -> None:
    assert _structs({"count": 1}) == "typedef struct {\n    int32_t count;\n} f_1_layer;"
    assert _structs({}) == ""


def test_a_pointer_may_be_to_nothing() -> None:
    fields = declare(Field("rests", c_type="const int16_t *"), "weights")
    assert "    const int16_t *rests;\n" in _structs({"rests": None}, fields=fields)
    with pytest.raises(ValueError, match="must declare its C type"):
        _structs({"weights": None}, {"weights": WEIGHTS}, fields=fields)


def test_narrow_types_hold_the_values_of_all_calls() -> None:
    text = _structs(
        {"scale": 1.0, "count": 5, "step": -3, "fill": 1}, {"scale": 1.0, "count": 300, "step": 4, "fill": 2},
        narrow=True,
    )  # fmt: skip
    lines = [line.split(";")[0].strip() for line in text.split("\n")[1:-1]]
    assert lines == ["float scale", "uint8_t fill", "uint16_t count", "int8_t step"]
    wide = _structs({"count": 65536, "step": 1}, narrow=True)
    assert wide.index("int32_t count") < wide.index("uint8_t step")


def test_the_layer_of_another_function_is_a_member() -> None:
    fields = (*inner_fields("inner", FIELDS), *declare(Field("inner", "of one row"), "count"))
    text = _structs({"inner.count": 1, "inner.weights": WEIGHTS, "count": 2}, fields=fields, narrow=True)
    assert text == "\n".join(
        [
            "typedef struct {",
            "    const int8_t *weights; /* [outputs][inputs] */",
            "    int32_t count;",
            "} f_1_inner_layer;",
            "",
            "typedef struct {",
            "    f_1_inner_layer inner; /* of one row */",
            "    uint8_t count;",
            "} f_1_layer;",
        ]
    )


def test_calls_must_agree() -> None:
    with pytest.raises(ValueError, match="f: all calls must have the same parameters; some have step"):
        _structs({"count": 1}, {"count": 1, "step": 2})
    with pytest.raises(ValueError, match=r"f_1\.weights: .* const int32_t \*, const int8_t \*"):
        _structs({"weights": WEIGHTS}, {"weights": Constant("weights", np.zeros(3, np.int32))})


def test_templates_leave_the_struct_to_python() -> None:
    for path in resources.template_dir().rglob("*.j2"):
        text = template_source(str(path.relative_to(resources.template_dir())))
        assert "}}_layer;" not in text.replace("} ", "}"), path
