"""Recipes for ai-edge-quantizer."""

from __future__ import annotations

import re

from microfold.cli.quantize import _SCHEMES
from microfold.quantization.schemes import SCHEMES, recipe


def test_the_command_line_offers_all_schemes() -> None:
    assert tuple(SCHEMES) == _SCHEMES


def test_int4_falls_back_to_int8() -> None:
    """Of two entries the last one that a layer supports counts; equal regexes would replace each other."""
    first, second = recipe(SCHEMES["int4"], {})
    assert first["regex"] != second["regex"]
    bits = [entry["op_config"]["weight_tensor_config"]["num_bits"] for entry in (first, second)]
    assert bits == [8, 4]


def test_a_layer_is_selected_by_its_whole_scope() -> None:
    """Names have characters that mean something in a regex, and can be the start of other names."""
    *_, entry = recipe(SCHEMES["int8"], {"a.b/conv(1)[0];": "float"})
    assert entry["algorithm_key"] == "no_quantize"
    assert re.search(entry["regex"], "a.b/conv(1)[0];")
    assert not re.search(entry["regex"], "a.b/conv(1)[0];c;")
    assert not re.search(entry["regex"], "a_b/conv(1)[0];")


def test_int16_has_no_zero_points() -> None:
    (entry,) = recipe(SCHEMES["int16x8"], {})
    assert entry["op_config"]["activation_tensor_config"]["symmetric"]
