"""Numbers that are the same in all calls of a function: in its code, and not in the layers."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from microfold import target
from microfold.codegen.common_fields import common_fields, put_in_code
from microfold.codegen.functions import render_functions
from microfold.codegen.shared import Shared
from microfold.compiler import compile_graph
from microfold.kernels.call import CFunction, Constant, KernelCall, Parameter
from microfold.kernels.fields import Field, declare
from microfold.options import Options
from tests.codegen.test_warnings import check_core
from tests.kernels import graphs
from tests.kernels.cores import assert_exact
from tests.kernels.random_networks import merge
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import quick, sampled, sampled_rows

FUNCTION = CFunction("t", "f", (), declare("weights", "batch", "count", Field("fill", c_type="uint8_t")))
WEIGHTS = Constant("weights", np.zeros((2, 3), np.int8))
CODE = """static void f_part(const f_layer *layer, int8_t *output)
{
    *output = (int8_t)-layer->batch; /* layer->batch of them */
}

static void f(const f_layer *layer, int8_t *output)
{
    f_part(layer, output + layer->count);
}
"""


def _calls(*parameters: dict[str, Parameter]) -> list[KernelCall]:
    return [KernelCall(FUNCTION, each) for each in parameters]


def test_what_is_common() -> None:
    first: dict[str, Parameter] = {"weights": WEIGHTS, "batch": -1, "count": 7, "fill": 3}
    assert common_fields("f", _calls(first, first | {"count": 8}), CODE) == {"batch": -1}
    assert common_fields("f", _calls(first), CODE) == {}
    # No struct is empty.
    assert common_fields("f", _calls({"batch": 1}, {"batch": 1}), CODE) == {}


@pytest.mark.parametrize(
    "line", ["f_layer copy;", "const f_layer *next;", "copy = *layer;", "g(&layer->batch);"]
)
def test_functions_that_do_more_than_read(line: str) -> None:
    calls = _calls({"batch": 1, "count": 7}, {"batch": 1, "count": 8})
    assert common_fields("f", calls, CODE.replace("*output =", f"{line} *output =")) == {}


def test_code_with_numbers() -> None:
    code = put_in_code(CODE, {"batch": -1})
    assert "    (void)layer;\n    *output = (int8_t)-(-1) /* batch */; /* layer->batch of them */" in code
    assert "f_part(layer, output + layer->count);" in code and code.count("(void)layer") == 1
    assert put_in_code(CODE, {}) == CODE


GRAPHS = [
    graphs.conv2d_graph(9, 8, 4, 6, padding=((1, 1), (1, 1))),
    graphs.conv2d_graph(7, 6, 5, 9, seed=1),
    graphs.conv2d_graph(5, 4, 3, 4, (2, 1), batch=2, seed=2),
    graphs.depthwise_conv2d_graph(12, 9, 6, seed=3),
    graphs.depthwise_conv2d_graph(6, 15, 4, seed=4),
    graphs.fully_connected_graph(24, 16, seed=5),
    graphs.fully_connected_graph(40, 32, seed=6),
    graphs.fully_connected_graph(24, 7, batch=3, seed=7),
]


# At `balanced`, each layer has its own function on the host.
SHARING = [
    row
    for row in itertools.product(["cortex-m4", "host", "cortex-m0plus", "cortex-m55"], ["balanced", "size"])
    if row != ("host", "balanced")
]


@pytest.mark.parametrize(("core", "level"), sampled_rows(SHARING, 3))
def test_layers_hold_what_differs(core: str, level: str) -> None:
    program = compile_graph(merge(GRAPHS), target.load(core), Options(optimize=level))
    several = False
    for function, rendered in render_functions(program).items():
        calls = [layer.call for layer in program.calls if layer.call.function == function]
        members = {member.name for struct in rendered.structs for member in struct.members}
        read = set(re.findall(r"\blayer->(\w+)", rendered.code))
        assert {name.rpartition(".")[2] for name in members} == read
        for name in calls[0].parameters.keys() - members:
            assert len({call.parameters[name] for call in calls}) == 1 and len(calls) > 1
            several = True
    assert several


def test_models_agree_on_what_they_share() -> None:
    """A field that differs between models stays, though it is the same in each of them."""
    core, options = target.load("cortex-m4"), Options(optimize="size", memory="split")
    programs = [
        compile_graph(
            merge([graphs.fully_connected_graph(24, 16, batch=batch, seed=k) for k in range(2)]),
            core,
            options,
            name=f"model_{batch}",
        )
        for batch in (1, 2)
    ]
    (shared,) = Shared("both", tuple(programs)).functions.values()
    members = {member.name for struct in shared.rendered.structs for member in struct.members}
    assert "batch" in members and "inputs" not in members
    for program in programs:
        (alone,) = render_functions(program).values()
        assert not {"batch", "inputs"} & {m.name for struct in alone.structs for m in struct.members}


@pytest.mark.parametrize("core", quick(["cortex-m4", "cortex-m0plus", "cortex-m55"]))
def test_compilers_are_silent(core: str, tmp_path: Path) -> None:
    need_tools("arm-none-eabi-gcc", "clang")
    check_core([compile_graph(merge(GRAPHS), target.load(core))], core, tmp_path)


@pytest.mark.slow
@pytest.mark.needs(*CROSS_TOOLS)
@pytest.mark.parametrize("core", sampled(["cortex-m4", "cortex-m0plus", "cortex-m55"]))
def test_outputs_equal_the_reference(core: str) -> None:
    assert_exact(compile_graph(merge(GRAPHS), target.load(core)), 4)
