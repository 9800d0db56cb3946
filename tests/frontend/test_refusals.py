"""What cannot be compiled is refused with operator, reason and hint: all of it at once."""

from __future__ import annotations

import struct

import pytest
import tflite

from microfold.errors import InputError, ModelFormatError, UnsupportedModelError
from microfold.frontend.tflite import import_model, load
from tests.frontend import models
from tests.tflite_writer import one_operator


def problems(name: str) -> list[str]:
    with pytest.raises(UnsupportedModelError) as refusal:
        load(models.MADE / f"{name}.tflite")
    return [str(problem) for problem in refusal.value.problems]


def patched(name: str, position: int, raw: bytes) -> bytes:
    data = bytearray((models.MADE / f"{name}.tflite").read_bytes())
    data[position : position + len(raw)] = raw
    return bytes(data)


def graph_of(name: str):
    data = (models.MADE / f"{name}.tflite").read_bytes()
    return tflite.Model.GetRootAsModel(data, 0).Subgraphs(0)


def vector(table, slot: int) -> int:
    return table._tab.Vector(table._tab.Offset(slot))


@pytest.mark.parametrize(
    ("name", "operator", "reason", "hint"),
    [
        ("gru_unrolled_int16x8", "FULLY_CONNECTED", "a scale must be in", "quantise again"),
        ("lt_nchw_aeq_w8a16", "HARD_SWISH", "int16 is not supported", "other operators"),
        ("ops/padv2_int16x8", "PADV2", "fill value", "other operators"),
    ],
)
def test_reason_and_hint(name: str, operator: str, reason: str, hint: str) -> None:
    first = problems(name)[0]
    assert operator in first
    assert "operator " in first
    assert "'" in first  # the tensor's name
    assert reason in first
    assert hint in first


def test_an_operator_that_there_is_not() -> None:
    with pytest.raises(UnsupportedModelError) as refusal:
        import_model(one_operator("MULTINOMIAL", [(1, 4)]))
    (problem,) = map(str, refusal.value.problems)
    assert "operator 0 (MULTINOMIAL)" in problem
    assert "not supported" in problem
    assert "supported ones" in problem


def test_all_problems_at_once() -> None:
    assert len(problems("lstm_fixed_f32")) == 5


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_scales_that_mean_nothing(scale: float) -> None:
    quantization = graph_of("ops/add_int8").Tensors(0).Quantization()
    data = patched("ops/add_int8", vector(quantization, 8), struct.pack("<f", scale))
    with pytest.raises(UnsupportedModelError, match="a scale must be in"):
        import_model(data)


@pytest.mark.parametrize("zero_point", [128, -129, 1 << 40])
def test_zero_points_out_of_range(zero_point: int) -> None:
    quantization = graph_of("ops/add_int8").Tensors(0).Quantization()
    data = patched("ops/add_int8", vector(quantization, 10), struct.pack("<q", zero_point))
    with pytest.raises(UnsupportedModelError, match="zero point of int8 must be in"):
        import_model(data)


@pytest.mark.parametrize("extent", [0, -2, 0x7FFFFFFF])
def test_extents_that_mean_nothing(extent: int) -> None:
    data = patched(
        "ops/abs_int8", vector(graph_of("ops/abs_int8").Tensors(0), 4) + 4, struct.pack("<i", extent)
    )
    with pytest.raises((UnsupportedModelError, ModelFormatError)):
        import_model(data)


def test_operator_that_writes_an_input() -> None:
    graph = graph_of("ops/abs_int8")
    target = struct.pack("<i", graph.Inputs(0))
    data = patched("ops/abs_int8", vector(graph.Operators(0), 8), target)
    with pytest.raises(UnsupportedModelError, match="which already has a value"):
        import_model(data)


def test_operator_that_reads_its_own_output() -> None:
    graph = graph_of("ops/abs_int8")
    data = patched("ops/abs_int8", vector(graph.Operators(0), 6), struct.pack("<i", graph.Outputs(0)))
    with pytest.raises(UnsupportedModelError, match="no earlier operator has computed"):
        import_model(data)


def test_names_are_made_printable() -> None:
    data = patched("ops/abs_int8", vector(graph_of("ops/abs_int8").Tensors(0), 10), b"a\n\x00\xff b")
    graph = import_model(data)
    assert graph.inputs[0].name.startswith("a__")
    assert graph.inputs[0].name.isprintable()
    assert " " not in graph.inputs[0].name


@pytest.mark.parametrize("data", [b"", b"TFL3", b"\x00" * 64, b"\x08\x00\x00\x00TFL3", b"\xff" * 8 + b"TFL3"])
def test_not_a_model(data: bytes) -> None:
    with pytest.raises(ModelFormatError):
        import_model(data)


def test_missing_file(tmp_path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        load(tmp_path / "none.tflite")
    with pytest.raises(InputError, match="cannot read"):
        load(tmp_path)


def test_overlapping_vectors_are_not_read_for_ever() -> None:
    """A small file whose many operators share one long vector."""
    data = (models.MADE / "ops/abs_int8.tflite").read_bytes()
    graph = graph_of("ops/abs_int8")
    # One list of operators, as long as the file allows, all of them the same table.
    count = 20_000
    table = graph.Operators(0)._tab.Pos
    field = graph._tab.Pos + graph._tab.Offset(10)
    start = len(data) + (-len(data)) % 4
    hostile = bytearray(data.ljust(start, b"\0"))
    hostile += struct.pack("<I", count)
    for i in range(count):
        hostile += struct.pack("<I", (table - (start + 4 + 4 * i)) & 0xFFFFFFFF)
    struct.pack_into("<I", hostile, field, start - field)
    with pytest.raises((UnsupportedModelError, ModelFormatError)):
        import_model(bytes(hostile))
