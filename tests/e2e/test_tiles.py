"""First layers in tiles of columns: bits are the reference's where nothing else fits the RAM."""

from __future__ import annotations

import json
import random
from contextlib import suppress

import pytest
from msgspec.structs import replace

from microfold import target
from microfold.cli.common import to_json
from microfold.codegen.emit import emit
from microfold.compiler import compile_graph
from microfold.errors import InputError
from microfold.ir.graph import Graph
from microfold.ir.graph import verify as check_graph
from microfold.ir.node import Value, make_node
from microfold.ir.types import DType, ElementType, TensorType
from microfold.lowering import chosen_kernels, selection_result, stream
from microfold.lowering.stream_tiles import Tilings
from microfold.lowering.streamed import Streamed
from microfold.lowering.streaming_search import StreamingSearch
from microfold.ops.convolution.conv2d import Conv2D
from microfold.ops.convolution.depthwise_conv2d import DepthwiseConv2D
from microfold.ops.elementwise.add import Add
from microfold.ops.movement.concatenate import Concatenate
from microfold.ops.pool2d import AveragePool2D, MaxPool2D
from microfold.ops.window import same_padding
from microfold.options import OPTIMIZE, Options
from microfold.plan.stream.check_memory import check_memory
from microfold.reporting.data import build_report
from microfold.verification.verify import input_sets, verify
from tests.e2e.refusals import needed
from tests.needs import CROSS_TOOLS, need_tools
from tests.plan.stream.nets import Nets
from tests.reporting.test_schema import faults
from tests.sampling import sampled_rows


class WideNets(Nets):
    """Networks of wide images: what is computed of them by rows is far wider than tiles."""

    def wide(self) -> Graph:
        """Layers with strides, pads and dilation, residuals, pools and joints, in an order that is drawn."""
        pick = random.Random(self.pick.random())
        height, width = pick.choice([(16, 24), (20, 33), (12, 40)])
        image = Value("image", TensorType(DType.INT8, (1, height, width, 3), self.quant()))
        kinds = ["conv", "depthwise", pick.choice(["max", "mean", "dilated"]), "residual", "join"]
        pick.shuffle(kinds)
        x = self.windowed(image, "conv", 8, stride=pick.choice([1, 2]))
        for kind in kinds:
            x = self.layer(x, kind, pick)
        x = self.windowed(x, "depthwise", 0, stride=2)
        x = self.windowed(x, "pointwise", 6)
        pool = AveragePool2D(x.type.shape[1:3], (1, 1), ((0, 0), (0, 0)))
        self.nodes.append(make_node(pool, [x], ["pooled"]))
        graph = Graph("wide", (image,), (self.nodes[-1].output,), tuple(self.nodes), self.constants)
        check_graph(graph)
        return graph

    def layer(self, x: Value, kind: str, pick: random.Random) -> Value:
        if kind == "residual":
            inner = self.windowed(x, "pointwise", 12)
            inner = self.windowed(inner, "depthwise", 0)
            inner = self.windowed(inner, "pointwise", x.type.shape[3])
            self.nodes.append(
                make_node(Add(ElementType(DType.INT8, self.quant())), [inner, x], [self.name()])
            )
        elif kind == "join":
            self.pool(x, MaxPool2D)
            self.nodes.append(make_node(Concatenate(3), [x, self.nodes[-1].output], [self.name()]))
        elif kind in ("max", "mean"):
            self.pool(x, MaxPool2D if kind == "max" else AveragePool2D)
        else:
            dilation = 2 if kind == "dilated" else 1
            kind = kind if kind in ("conv", "depthwise") else "depthwise"
            self.windowed(x, kind, 8, same=pick.random() < 0.7, dilation=dilation)
        return self.nodes[-1].output

    def windowed(
        self, x: Value, kind: str, filters: int, *, stride: int = 1, same: bool = True, dilation: int = 1
    ) -> Value:
        _, height, width, channels = x.type.shape
        size = 1 if kind == "pointwise" else 3
        extent = (size - 1) * dilation + 1
        same = same or height < 2 * extent
        padding = tuple(same_padding(n, extent, stride) if same else (0, 0) for n in (height, width))
        out = ElementType(DType.INT8, self.quant())
        pair = (stride, stride), (dilation, dilation), (padding[0], padding[1]), out
        if kind == "depthwise":
            node = make_node(DepthwiseConv2D(*pair), [x, self.weights((1, 3, 3, channels), 3)], [self.name()])
        else:
            weights = self.weights((filters, size, size, channels), 0)
            node = make_node(Conv2D(*pair), [x, weights], [self.name()])
        self.nodes.append(node)
        return node.output

    def pool(self, x: Value, kind: type[MaxPool2D | AveragePool2D]) -> None:
        self.nodes.append(make_node(kind((3, 3), (1, 1), ((1, 1), (1, 1))), [x], [self.name()]))

    def name(self) -> str:
        return f"v{len(self.nodes)}"


def in_turns(search: StreamingSearch, number: int) -> Streamed:
    """The tilings that fit in turns, in windows and in rings, however large their arenas are."""
    options = search.options
    assert options.ram is not None
    found = [*Tilings(search.cuts).within(options.ram)]
    for tiling in found[number % len(found) :] + found:
        tiles = StreamingSearch(Tilings(search.cuts).partitions_of(tiling), search.reference)
        planners = [*tiles.with_non_contiguous_buffers, *tiles.cuts.shortlist]
        for planner in planners[:: -1 if number % 2 else 1]:
            with suppress(InputError):
                fitting = tiles.decided(planner)
                assert fitting is not None
                check_memory(fitting.memory, [candidate.kernel for candidate in fitting.chosen])
                return fitting
    raise InputError("no tiles fit")


def check(seed: int, core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network in tiles, whatever would be best."""
    graph = WideNets(seed).wide()
    whole = compile_graph(graph, target.load(core), Options(io="caller"))
    monkeypatch.setattr(chosen_kernels, "prefers_streaming", lambda _: True)
    monkeypatch.setattr(selection_result, "best_streamed", lambda _: [])
    monkeypatch.setattr(selection_result, "best_tiled", lambda *given: in_turns(given[0], seed))
    options = Options(io="caller", ram=whole.arena.size, optimize=OPTIMIZE[seed % len(OPTIMIZE)])
    program = compile_graph(graph, target.load(core), options, name=f"wide{seed}")
    assert program.stream is not None
    assert sum(bool(region.inputs) for region in program.stream.timeline.regions) > 1
    result = verify(program, input_sets([b.type for b in program.inputs], 4))
    assert result.exact, (program.name, result.first_difference)


@pytest.mark.parametrize("seed", range(4))
def test_host(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    need_tools("cc")
    check(seed, "host", monkeypatch)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(100, 160))
def test_more_on_the_host(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    need_tools("cc")
    check(seed, "host", monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "core"), sampled_rows([(10, "cortex-m0plus"), (11, "cortex-m4"), (12, "cortex-m55")])
)
def test_simulated(seed: int, core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need_tools(*CROSS_TOOLS)
    check(seed, core, monkeypatch)


def test_what_a_refusal_names_fits() -> None:
    """It is less than rows of full width need, and the model says what it does so."""
    graph = WideNets(3).wide()
    with pytest.raises(InputError, match="computed by rows and in tiles of columns, the smallest") as refused:
        compile_graph(graph, target.load("cortex-m4"), Options(io="caller", ram=8))
    ram = needed(refused.value)
    program = compile_graph(graph, target.load("cortex-m4"), Options(io="caller", ram=ram), name="wide")
    assert program.arena.size <= ram
    assert faults(json.loads(to_json(build_report(program, None)))) == []
    with pytest.raises(InputError, match="computed by rows, the smallest arena found needs") as refused:
        compile_graph(graph, target.load("cortex-m4"), Options(io="arena", ram=8))
    assert needed(refused.value) > ram


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "core"), sampled_rows([(3, "cortex-m4"), (0, "cortex-m7"), (1, "cortex-m33")], 3)
)
def test_the_least_ram_is_right(seed: int, core: str) -> None:
    """Kernels without scratch read rows by their addresses, and compilers have registers for them."""
    need_tools(*CROSS_TOOLS)
    graph = WideNets(seed).wide()
    with pytest.raises(InputError) as refused:
        compile_graph(graph, target.load(core), Options(io="caller", ram=8))
    ram = needed(refused.value)
    program = compile_graph(graph, target.load(core), Options(io="caller", ram=ram), name="wide")
    assert verify(program, input_sets([b.type for b in program.inputs], 4)).exact


def test_tiles_that_are_faster_than_slow_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows of full width fit, tiles are looked at if the rows' kernels are slow."""
    graph = WideNets(3).wide()
    core = target.load("cortex-m4")
    options = Options(io="caller", ram=compile_graph(graph, core, Options(io="rows")).arena.size)

    def tiles() -> int:
        found = compile_graph(graph, core, options).stream
        assert found is not None
        return sum(bool(region.inputs) for region in found.timeline.regions)

    monkeypatch.setattr(stream, "WORTHWHILE", 0.0)
    monkeypatch.setattr(Streamed, "is_slow", False)
    assert tiles() == 1
    monkeypatch.setattr(Streamed, "is_slow", True)
    assert tiles() > 1
    monkeypatch.setattr(stream, "WORTHWHILE", 100.0)
    assert tiles() == 1


def test_weights_are_there_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tiles read the same constants, and the image from its first row on."""
    graph = WideNets(3).wide()
    whole = compile_graph(graph, target.load("host"), Options(io="caller", optimize="size"))
    monkeypatch.setattr(chosen_kernels, "prefers_streaming", lambda _: True)
    monkeypatch.setattr(selection_result, "best_streamed", lambda _: [])
    monkeypatch.setattr(selection_result, "best_tiled", lambda *given: in_turns(given[0], 0))
    options = Options(io="caller", ram=whole.arena.size, optimize="size")
    program = compile_graph(graph, target.load("host"), options, name="wide")
    assert program.weight_bytes < whole.weight_bytes * 5 // 4
    limited = compile_graph(graph, target.load("host"), replace(options, flash=program.flash))
    assert limited.weight_bytes <= program.weight_bytes
    source = emit(program)["wide.c"]
    assert "rows = input_0;" in source
    assert "memcpy(" in source and "rows + " in source
