"""Every kernel of an operator that works by rows: bands one after the other give the image.

Rows lie at addresses that are multiples of what the kernel says it needs, and of nothing more; where it can
read them by their addresses, also in another order.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest
from msgspec.structs import replace

from microfold import target
from microfold.analysis.interval import Range
from microfold.analysis.ranges import analyze
from microfold.codegen.functions import render_function
from microfold.ir.graph import Graph
from microfold.ir.node import EpilogueStep, Value, make_node
from microfold.ir.op import Op
from microfold.ir.types import DType, ElementType, Quant
from microfold.kernels.band import LayerBand, layer_band, lower_by_rows
from microfold.kernels.call import KernelCall
from microfold.kernels.kernel import KERNELS, Kernel
from microfold.kernels.layer import LayerContext
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.convolution.transpose_conv2d import TransposeConv2D
from microfold.ops.elementwise.add import Add
from microfold.ops.elementwise.expression import Call as ExpressionStep
from microfold.ops.elementwise.expression import Expression
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.movement.resize_nearest_neighbor import ResizeNearestNeighbor
from microfold.ops.normalize.softmax import Softmax
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.rows import REFUSED, Rows
from microfold.plan.stream.row_node import RowNode, as_row_node
from microfold.target import Target
from tests.kernels import graphs
from tests.kernels.bands import BandedLayer, assert_bands_are_images, banded
from tests.kernels.cores import load
from tests.kernels.row_cases import IMAGE, cases
from tests.needs import CROSS_TOOLS, need_tools
from tests.sampling import sampled

# Where kernels of each instruction set run: on the first core that has it.
CORES = ("host", "cortex-m3", "cortex-m0plus", "cortex-m4", "cortex-m55")
# No type rule admits what they are for; LiteRT, which decides where TFLM has no kernel, does compare int16.
UNUSED = {"s16_compare__c"}
RUNS = 4
# Operators whose kernels all find rows by their addresses.
READ_ROWS = (Conv2D, DepthwiseConv2D, TransposeConv2D, AveragePool2D, MaxPool2D, ResizeNearestNeighbor)
UNIT = ElementType(DType.INT8, Quant.per_tensor(1 / 256, -128))


def kernels_of(core: str) -> list[Kernel]:
    """Kernels of operators that work by rows, whose instructions this core is the first to have.

    Those that add a second tensor have no bands.
    """
    features = {name: target.load(name).features for name in CORES}
    return [
        kernel
        for kernel in KERNELS
        if not issubclass(kernel.op, tuple(REFUSED))
        and kernel.name not in UNUSED
        and not kernel.name.endswith("_residual")
        and next(name for name in CORES if kernel.features <= features[name]) == core
    ]


@cache
def layers(op: type[Op], core: str) -> list[LayerContext]:
    """The operator's cases as layers."""
    return [layer_of(graph, core) for graph in cases() if type(graph.nodes[0].op) is op]


def banded_cases(kernel: Kernel, core: str) -> Iterator[BandedLayer]:
    """The cases that the kernel computes in bands, by all its variants."""
    for layer in layers(kernel.op, core):
        if kernel.supports(layer) is None:
            for variant in range(len(kernel.variants(layer))):
                case = banded(kernel, layer, variant)
                if isinstance(case, BandedLayer):
                    yield case


def check(kernels: Sequence[Kernel], core: Target, most: int | None = None) -> None:
    """In one program: to start compilers and simulators for every kernel would take longer than all else.

    Args:
        most: cases of each kernel; None: all.
    """
    found = [list(itertools.islice(banded_cases(kernel, core.name), most)) for kernel in kernels]
    missing = [kernel.name for kernel, own in zip(kernels, found, strict=True) if not own]
    assert not missing, "row_cases.py must have something for each kernel"
    images = [case for own in found for case in own]
    tables = [case.by_addresses() for case in images if case.supports_indirection]
    assert_bands_are_images([*images, *tables], core, RUNS)


def test_portable() -> None:
    need_tools("cc")
    check(kernels_of("host"), target.load("host"), 1)


@pytest.mark.slow
@pytest.mark.always
@pytest.mark.parametrize("core", sampled(CORES[1:], 3))
def test_cores(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    check(kernels_of(core), target.load(core), 1)


@pytest.mark.exhaustive
def test_portable_where_unaligned_accesses_fault() -> None:
    need_tools(*CROSS_TOOLS)
    check(kernels_of("host"), target.load("cortex-m0plus"), 1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("core", CORES)
def test_all_cases(core: str) -> None:
    need_tools("cc", *CROSS_TOOLS)
    check(kernels_of(core), target.load(core))


@pytest.mark.exhaustive
@pytest.mark.parametrize("core", [core for core in CORES if core not in ("host", "cortex-m0plus")])
def test_code_that_takes_unaligned_accesses_to_fault(core: str) -> None:
    need_tools(*CROSS_TOOLS)
    check(kernels_of(core), load(core, "-mno-unaligned-access"))


def test_operands_that_all_bands_read_whole() -> None:
    """They are computed, and broadcast over rows; two cases read the same one."""
    need_tools("cc")
    operands = [graphs.float_input("x", IMAGE), graphs.float_input("y", IMAGE[-1:])]
    steps: tuple[ExpressionStep, ...] = (("sub", (0, 1), ()), ("mul", (2, 1), ()))
    layer = layer_of(graphs.one_node_graph(Expression(steps), operands, {}))
    (kernel,) = (kernel for kernel in KERNELS if kernel.name == "f32_expression__c")
    case, other = banded(kernel, layer), banded(kernel, layer)
    assert isinstance(case, BandedLayer)
    assert isinstance(other, BandedLayer)
    assert [*case.images] == [0]
    assert case.shared == (1,)
    assert_bands_are_images([case, other], target.load("host"), RUNS)


def test_which_kernels_read_rows_by_their_addresses() -> None:
    for core in CORES:
        for kernel in kernels_of(core):
            found = any(case.supports_indirection for case in banded_cases(kernel, core))
            assert found == issubclass(kernel.op, READ_ROWS), kernel.name


@pytest.mark.parametrize("core", CORES)
def test_functions_read_all_their_fields(core: str) -> None:
    for kernel in kernels_of(core):
        for case in itertools.islice(banded_cases(kernel, core), 2):
            for variant, part in zip(case.kernels[:1], case.parts[:1], strict=True):
                assert not _unread(variant.lower(part.layer)), kernel.name
                if variant.supports_indirection(part.layer):
                    assert not _unread(lower_by_rows(variant, part.layer)), kernel.name


def _unread(call: KernelCall) -> set[str]:
    """Fields of the layer that the function's C does not read."""
    text = render_function("function", "MODEL", [call]).text
    return {name for name in call.parameters if not re.search(rf"(->|\.){name.split('.')[-1]}\b", text)}


def test_pixels_are_not_read_by_rows() -> None:
    kernels = {kernel.name: kernel for kernel in KERNELS}
    for name in ("s8_conv2d__c_2x2", "s8_conv2d__dsp_4x2"):
        for width in (1, 2):
            layer = layer_of(graphs.conv2d_graph(5, 5, 4, 4, (1, width)), "cortex-m4")
            assert kernels[name].variants(layer)[0].supports_indirection(layer) == (width > 1)


def layer_of(graph: Graph, core: str = "host") -> LayerContext:
    return LayerContext(graph.nodes[0], graph.constants, target.load(core), analyze(graph))


def _band(layer: LayerContext, rows: Rows) -> LayerBand:
    found = layer_band(layer, rows)
    assert isinstance(found, LayerBand), found
    return found


def test_what_is_proved_of_the_layer_holds_for_its_bands() -> None:
    layer = layer_of(graphs.conv2d_graph(7, 6, 3, 4, padding=((1, 1), (1, 1)), activation=graphs.RELU))
    assert layer.ranges is not None
    bands = [_band(layer, rows) for rows in ((0, 1), (3, 5), (6, 7))]
    for part in bands:
        assert part.layer.sums() is layer.sums() is not None
        assert part.layer.ranges is not None
        whole, own = layer.ranges, part.layer.ranges
        assert own.unsaturated[part.layer.node] is whole.unsaturated[layer.node]
        assert own.values[part.layer.node.output] is whole.values[layer.node.output]
        assert part.layer.node.infer() == (part.layer.node.output.type,)


def test_an_input_can_be_the_padding() -> None:
    """Not what the layer's input can be: here, 40 and more."""
    graph = graphs.conv2d_graph(7, 6, 3, 4, padding=((1, 1), (1, 1)))
    known = Range(np.full(3, 40, np.int64), np.full(3, 90, np.int64))
    layer = layer_of(graph)
    assert layer.ranges is not None
    layer = replace(layer, ranges=replace(layer.ranges, values={graph.inputs[0]: known}))
    zero_point = graph.inputs[0].type.quant.zero_point  # type: ignore[union-attr]
    assert _band(layer, (0, 2)).layer.range(0).hull == (zero_point, 90)
    assert _band(layer, (2, 4)).layer.range(0).hull == (40, 90)


def test_bands_of_a_form_share_what_is_proved() -> None:
    """Only the last row of windows reads padding; calls for all rows are the same."""
    graph = graphs.conv2d_graph(8, 6, 3, 4, strides=(2, 1), padding=((0, 1), (1, 1)))
    known = Range(np.full(3, 40, np.int64), np.full(3, 90, np.int64))
    layer = layer_of(graph)
    assert layer.ranges is not None
    layer = replace(layer, ranges=replace(layer.ranges, values={graph.inputs[0]: known}))
    node = as_row_node(layer)
    assert isinstance(node, RowNode)
    (part,) = node.bands.values()
    zero_point = graph.inputs[0].type.quant.zero_point  # type: ignore[union-attr]
    assert part.layer.range(0).hull == (zero_point, 90)


def test_constant_images_are_cut() -> None:
    x = graphs.int8_input("x", (1, 5, 2, 1))
    array = np.arange(10, dtype=np.int8).reshape(5, 2, 1)
    image = {Value("image", x.type.with_shape(array.shape)): array}
    part = _band(layer_of(graphs.one_node_graph(Add(graphs.int8_element()), [x], image)), (1, 3))
    constant = part.layer.array(1)
    assert constant is not None
    np.testing.assert_array_equal(constant, array[1:3])


def test_a_value_read_twice_stays_one() -> None:
    x = graphs.int8_input("x", (1, 5, 2, 1))
    part = _band(layer_of(graphs.one_node_graph(Add(graphs.int8_element()), [x, x], {})), (1, 3))
    assert part.layer.node.inputs[0] is part.layer.node.inputs[1]


def test_reasons() -> None:
    x = graphs.int8_input("x", (1, 5, 2, 1))
    pool = make_node(
        MaxPool2D((1, 1), (1, 1), graphs.NO_PADDING), [x], ["out"], [EpilogueStep(Softmax(1.0, UNIT))]
    )
    layer = layer_of(Graph("net", (x,), pool.outputs, (pool,)))
    assert layer_band(layer, (0, 1)) == "its epilogue has softmax, which needs more than one input element"
    layer = layer_of(graphs.one_node_graph(Concatenate(1), [x, x], {}))
    assert layer_band(layer, (0, 1)) == "it concatenates along the rows"


@pytest.mark.parametrize(
    ("name", "graph", "rows"),
    [
        ("s8_conv2d__dsp_winograd_4x4", graphs.conv2d_graph(9, 8, 4, 4), 4),
        ("s8_conv2d__dsp_winograd_2x2", graphs.conv2d_graph(9, 8, 4, 4), 2),
        ("s8_conv2d__dsp_4x2", graphs.conv2d_graph(9, 8, 4, 4), 1),
        ("s8_conv2d__dsp_fpu", graphs.conv2d_graph(8, 40, 4, 26), 6),
        ("s8_conv2d__dsp_fpu", graphs.conv2d_graph(8, 40, 4, 26, (1, 1)), 1),
        ("s8_depthwise_conv2d__mve_tile", graphs.depthwise_conv2d_graph(9, 8, 4), 2),
    ],
)
def test_rows_computed_together(name: str, graph: Graph, rows: int) -> None:
    (kernel,) = (kernel for kernel in KERNELS if kernel.name == name)
    layer = layer_of(graph, "cortex-m55" if "mve" in name else "cortex-m4")
    assert kernel.supports(layer) is None
    assert kernel.variants(layer)[0].row_granularity(layer) == rows


def test_no_bands_of_sums_with_another_tensor() -> None:
    graph = graphs.conv2d_graph(7, 6, 3, 4)
    (node,) = graph.nodes
    residual = graphs.int8_input("residual", node.output.type.shape)
    total = make_node(
        node.op, node.inputs, ["total"], [EpilogueStep(Add(graphs.int8_element()), (residual,))]
    )
    layer = LayerContext(total, graph.constants, target.load("host"))
    assert layer_band(layer, (0, 1)) == "its epilogue has add, which needs more than one input element"
