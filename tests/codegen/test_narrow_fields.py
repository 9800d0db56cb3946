"""Descriptions of layers unless speed alone counts: fields are as narrow as the values allow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from microfold import target
from microfold.codegen.functions import render_functions
from microfold.compiler import compile_graph
from microfold.kernels.call import Constant
from microfold.ops.movement.transpose import Transpose
from microfold.options import Options
from microfold.program import Program
from tests.codegen.test_warnings import check_core
from tests.kernels import graphs
from tests.kernels.random_networks import merge
from tests.needs import need_tools
from tests.sampling import quick

RANGES = {
    "uint8_t": (0, 255),
    "int8_t": (-128, 127),
    "uint16_t": (0, 65535),
    "int16_t": (-32768, 32767),
    "int32_t": (-(2**31), 2**31 - 1),
}
GRAPH = merge(
    [
        graphs.conv2d_graph(20, 20, 4, 8, padding=((1, 1), (1, 1))),
        graphs.conv2d_graph(300, 2, 3, 6, (1, 1), activation=graphs.RELU6),
        graphs.depthwise_conv2d_graph(30, 30, 6),
        graphs.fully_connected_graph(40, 70),
    ]
)


def _fields(text: str) -> list[tuple[str, str]]:
    """Types and names of the integers in a layer struct, in order."""
    members = re.search(r"typedef struct {\n((?: .*\n|\n)*)} \w+_layer;", text)
    return re.findall(r"^ +(u?int\d+_t) (\w+);", members[1] if members else "", re.M)


def _compiled(core: str, optimize: str) -> Program:
    return compile_graph(GRAPH, target.load(core), Options(optimize=optimize))


@pytest.mark.parametrize("core", ["cortex-m4", "cortex-m0plus", "cortex-m55"])
def test_fields_hold_all_values_in_the_narrowest_type(core: str) -> None:
    program = _compiled(core, "size")
    seen: set[str] = set()
    for function, rendered in render_functions(program).items():
        types = {name: c_type for c_type, name in _fields(rendered.text)}
        calls = [layer.call for layer in program.layers if layer.call.function == function]
        for name, c_type in types.items():
            values = [call.parameters[name] for call in calls]
            assert not any(isinstance(value, Constant) for value in values)
            whole = [value for value in values if isinstance(value, int)]
            fitting = [t for t, (low, high) in RANGES.items() if low <= min(whole) and max(whole) <= high]
            assert c_type == fitting[0], name
            seen.add(c_type)
    assert {"uint8_t", "uint16_t", "int8_t"} <= seen


def test_declared_types_stay() -> None:
    graph = graphs.one_node_graph(Transpose((0, 2, 1)), [graphs.int8_input("x", (2, 12, 16))], {})
    program = compile_graph(graph, target.load("cortex-m4"))
    (rendered,) = render_functions(program).values()
    types = {name: c_type for c_type, name in _fields(rendered.text)}
    assert types == {
        "rows": "uint8_t",
        "columns": "uint8_t",
        "source_step": "int32_t",
        "target_step": "int32_t",
    }


@pytest.mark.parametrize("core", quick(["cortex-m4", "cortex-m0plus", "cortex-m55"]))
def test_compilers_are_silent(core: str, tmp_path: Path) -> None:
    need_tools("arm-none-eabi-gcc", "clang")
    check_core([_compiled(core, "size")], core, tmp_path)


def test_wide_members_come_first() -> None:
    """There is no padding between them."""
    for rendered in render_functions(_compiled("cortex-m4", "size")).values():
        sizes = [int(c_type.strip("uint_")) for c_type, _ in _fields(rendered.text)]
        assert sizes == sorted(sizes, reverse=True)


def test_where_speed_counts_fields_stay_as_they_are() -> None:
    for rendered in render_functions(_compiled("cortex-m4", "speed")).values():
        assert {c_type for c_type, _ in _fields(rendered.text)} <= {"int32_t", "uint32_t"}
